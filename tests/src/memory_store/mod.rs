//! The embedded store's records in memory: for conformance, and for simulations that make thousands of
//! calls a second over a clock of their own.
//!
//! Nothing is serialised: records stay what they are, shared. A [`Snapshot`] shares all of them, so that
//! a failover that loses writes is taking one, going on, and restoring it.

mod table;
mod tx;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tokio::sync::{broadcast, watch};
use wasmcron_core::ids::PodAddress;
use wasmcron_core::time::Timestamp;
use wasmcron_store::Result;
use wasmcron_store::control::{WAKES_MAX, Wake};
use wasmcron_store::embedded::engine::Engine;

use tx::{News, Tables};

pub use tx::MemoryTx;

/// The store's clock.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Keeps records in memory.
pub struct MemoryEngine {
    clock: Clock,
    tables: Mutex<Tables>,
    /// Who waits for entries of a queue. Each has a channel of its own: one that several share wakes
    /// them in a random order, and two processes of one address would make a simulation's history one
    /// of several.
    queues: Mutex<HashMap<PodAddress, Vec<watch::Sender<u64>>>>,
    wakes: broadcast::Sender<Wake>,
}

impl fmt::Debug for MemoryEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryEngine").finish_non_exhaustive()
    }
}

/// All records of a moment.
pub struct Snapshot(Tables);

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").finish_non_exhaustive()
    }
}

fn shared(tables: &Tables) -> Tables {
    let copies = tables.iter().map(|(id, table)| (*id, table.snapshot()));
    copies.collect()
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A verb that panicked was taken back as its transaction was dropped.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MemoryEngine {
    /// An empty one.
    #[must_use]
    pub fn new(clock: Clock) -> MemoryEngine {
        MemoryEngine {
            clock,
            tables: Mutex::default(),
            queues: Mutex::default(),
            wakes: broadcast::Sender::new(WAKES_MAX),
        }
    }

    /// An empty one whose clock begins at `start` and goes as tokio's does, also where that is paused.
    #[must_use]
    pub fn on_tokio(start: Timestamp) -> MemoryEngine {
        let began = tokio::time::Instant::now();
        MemoryEngine::new(Arc::new(move || start + began.elapsed()))
    }

    /// Everything as it is now.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot(shared(&locked(&self.tables)))
    }

    /// Makes everything as it was then. Nobody is told: who waits finds out by looking.
    pub fn restore(&self, snapshot: &Snapshot) {
        *locked(&self.tables) = shared(&snapshot.0);
    }

    /// Forgets everything.
    pub fn clear(&self) {
        locked(&self.tables).clear();
    }

    /// Reads records as a verb would: for who checks what must always hold.
    pub fn look<T>(&self, body: impl FnOnce(&mut MemoryTx<'_>) -> T) -> T {
        let now = (self.clock)();
        let mut tables = locked(&self.tables);
        body(&mut MemoryTx::new(&mut tables, now, "look", false))
    }

    /// Writes what no verb writes: for who does damage.
    ///
    /// # Errors
    /// The body's own; then nothing was written.
    pub fn edit<T>(&self, body: impl FnOnce(&mut MemoryTx<'_>) -> Result<T>) -> Result<T> {
        self.transact("edit", body)
    }

    fn transact<T>(
        &self,
        verb: &'static str,
        body: impl FnOnce(&mut MemoryTx<'_>) -> Result<T>,
    ) -> Result<T> {
        let now = (self.clock)();
        let (answer, news) = {
            let mut tables = locked(&self.tables);
            let mut tx = MemoryTx::new(&mut tables, now, verb, true);
            let answer = body(&mut tx)?;
            (answer, tx.keep())
        };
        self.tell(news);
        Ok(answer)
    }

    fn tell(&self, news: News) {
        for wake in news.wakes {
            // Without a listener nobody has to be woken.
            let _ = self.wakes.send(wake);
        }
        if news.queued.is_empty() {
            return;
        }
        let queues = locked(&self.queues);
        for waiting in news.queued.iter().filter_map(|pod| queues.get(pod)) {
            for one in waiting {
                one.send_modify(|changes| *changes += 1);
            }
        }
    }
}

#[async_trait]
impl Engine for MemoryEngine {
    type Tx<'a> = MemoryTx<'a>;

    async fn write<T, F>(&self, verb: &'static str, body: F) -> Result<T>
    where
        T: Send + 'static,
        F: for<'a, 'b> FnOnce(&'a mut Self::Tx<'b>) -> Result<T> + Send + 'static,
    {
        self.transact(verb, body)
    }

    async fn read<T, F>(&self, verb: &'static str, body: F) -> Result<T>
    where
        T: Send + 'static,
        F: for<'a, 'b> FnOnce(&'a mut Self::Tx<'b>) -> Result<T> + Send + 'static,
    {
        let now = (self.clock)();
        let mut tables = locked(&self.tables);
        body(&mut MemoryTx::new(&mut tables, now, verb, false))
    }

    fn queue_changes(&self, pod: &PodAddress) -> watch::Receiver<u64> {
        let mut queues = locked(&self.queues);
        let waiting = queues.entry(pod.clone()).or_default();
        waiting.retain(|one| !one.is_closed());
        let (one, changes) = watch::channel(0);
        waiting.push(one);
        changes
    }

    fn wakes(&self) -> broadcast::Receiver<Wake> {
        self.wakes.subscribe()
    }

    async fn warnings(&self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }
}
