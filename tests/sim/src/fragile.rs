//! A store whose scripts may stop half-way, as those of Redis do when it runs out of memory or time.

use std::sync::{Mutex, PoisonError};

use wasmcron_store::StoreError;
use wasmcron_store::embedded::engine::Key;
use wasmcron_store::embedded::engine::Tx as _;
use wasmcron_store::embedded::records::{Cursor, Queued, Scheduled};
use wasmcron_tests::memory_store::MemoryEngine;

use crate::check::Witness;
use crate::layer::Layer;
use crate::verbs::words::*;

/// Leaves a publish half done when it is told to.
pub struct Fragile {
    store: Arc<dyn Store>,
    engine: Arc<MemoryEngine>,
    /// The next one is left half done; with its entry in the queue if so.
    armed: Mutex<Option<bool>>,
    witness: Arc<Witness>,
}

/// The layer of a [`Fragile`] that others hold, too.
pub struct FragileLayer(pub Arc<Fragile>);

impl Fragile {
    /// Over a store whose records an engine keeps.
    #[must_use]
    pub fn new(
        store: Arc<dyn Store>,
        engine: Arc<MemoryEngine>,
        witness: Arc<Witness>,
    ) -> Arc<Fragile> {
        Arc::new(Fragile {
            store,
            engine,
            armed: Mutex::default(),
            witness,
        })
    }

    /// The next publish stops before the cursor moves, after or before the queue is written.
    pub fn arm(&self, queued: bool) {
        *self.armed.lock().unwrap_or_else(PoisonError::into_inner) = Some(queued);
    }

    /// Takes back what the script did not come to.
    fn undo(&self, run: &RunId, cursor: Option<Cursor>, queued: bool) -> Result<()> {
        self.engine.edit(|tx| {
            if let Some(cursor) = cursor {
                tx.put(Key::named(run.job().as_str()), cursor)?;
            }
            let entry = tx.get::<Scheduled>(&Key::named(run.as_str()))?;
            if let Some(entry) = entry.filter(|_| !queued) {
                let order = i64::try_from(entry.delivery.0).unwrap_or(i64::MAX);
                tx.remove::<Queued>(&Key::new(entry.pod.as_str(), order, run.as_str()))?;
            }
            Ok(())
        })
    }
}

#[async_trait]
impl Layer for FragileLayer {
    fn inner(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    async fn publish(&self, term: &TermRef, decisions: &[Decision]) -> Result<PublishAnswer> {
        use wasmcron_store::schedule::Published;
        let fragile = &*self.0;
        let fires = |decision: &Decision| matches!(decision, Decision::Fire { .. });
        let armed = *fragile.armed.lock().unwrap_or_else(PoisonError::into_inner);
        let (Some(queued), Some(last)) = (armed, decisions.iter().position(fires)) else {
            return fragile.store.publish(term, decisions).await;
        };
        let Some(Decision::Fire { task, .. }) = decisions.get(last) else {
            return fragile.store.publish(term, decisions).await;
        };
        let key = Key::named(task.job.as_str());
        // What the script wrote for the decisions before this one stays, their cursors too.
        let before = decisions.get(..last).unwrap_or_default();
        if !before.is_empty() {
            fragile.store.publish(term, before).await?;
        }
        let cursor = fragile
            .engine
            .look(|tx| tx.get::<Cursor>(&key).ok().flatten());
        let one = decisions.get(last..=last).unwrap_or_default();
        let answer = fragile.store.publish(term, one).await?;
        let done = matches!(&answer, PublishAnswer::Answers(said) if said.first() == Some(&Published::Published));
        if !done {
            // Repeating the first of them changes nothing.
            return fragile.store.publish(term, decisions).await;
        }
        *fragile.armed.lock().unwrap_or_else(PoisonError::into_inner) = None;
        fragile
            .witness
            .with(|ledger, _| ledger.run(&task.run).half = true);
        fragile.undo(&task.run, cursor.map(|cursor| *cursor), queued)?;
        Err(StoreError::Unavailable {
            verb: "publish",
            message: "the script stopped half-way".into(),
        })
    }
}
