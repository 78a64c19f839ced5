//! One store, and what its answers named so far.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use wasmcron_core::ids::{PodRef, RunId};
use wasmcron_store::Store;
use wasmcron_store::leadership::TermRef;
use wasmcron_store::queue::{Claim, Consumer, Taken};
use wasmcron_store::recovery::{Register, Seen};
use wasmcron_store::runs::AttemptRef;
use wasmcron_store::schedule::ViewVersion;

use super::canonical::{Symbols, said};
use super::inputs::{PASSES, PODS, Pick, pod};
use crate::conformance::{Harness, Settings};

/// An attempt that once executed.
#[derive(Clone)]
pub(super) struct Held {
    pub(super) pod: PodRef,
    pub(super) at: AttemptRef,
    pub(super) number: u32,
    pub(super) failures: u32,
    pub(super) seq: u64,
}

/// Plays steps to one store.
pub struct Player {
    pub(super) name: &'static str,
    pub(super) harness: Arc<dyn Harness>,
    pub(super) store: Arc<dyn Store>,
    pub(super) symbols: Symbols,
    pub(super) terms: Vec<TermRef>,
    pub(super) taken: Vec<(PodRef, Taken)>,
    pub(super) claims: Vec<Claim>,
    pub(super) held: Vec<Held>,
    pub(super) seen: Vec<(RunId, Seen)>,
    pub(super) runs: Vec<RunId>,
    pub(super) versions: Vec<ViewVersion>,
    pub(super) remembered: Vec<(Register, RunId)>,
    pub(super) log_read: Option<String>,
    sessions: [usize; PODS],
    consumers: HashMap<usize, Box<dyn Consumer>>,
}

/// One of the things that a store named.
pub(super) fn chosen<T: Clone>(things: &[T], pick: Pick) -> Option<T> {
    let last = things.len().checked_sub(1)?;
    things.get(last - pick.min(last)).cloned()
}

impl Player {
    /// To a store without data.
    pub async fn new(name: &'static str, harness: Arc<dyn Harness>) -> Player {
        let store = harness.store(Settings::default()).await;
        Player {
            name,
            harness,
            store,
            symbols: Symbols::default(),
            terms: Vec::new(),
            taken: Vec::new(),
            claims: Vec::new(),
            held: Vec::new(),
            seen: Vec::new(),
            runs: Vec::new(),
            versions: Vec::new(),
            remembered: Vec::new(),
            log_read: None,
            sessions: std::array::from_fn(|i| i),
            consumers: HashMap::new(),
        }
    }

    /// The latest term, or an earlier one; nobody's before somebody won.
    pub(super) fn term(&self, pick: Pick) -> TermRef {
        chosen(&self.terms, pick).unwrap_or_else(|| TermRef {
            pod: pod(0),
            term: wasmcron_core::ids::Term(1),
        })
    }

    /// Keeps a run that a store made.
    pub(super) fn knows(&mut self, run: RunId) {
        if !self.runs.contains(&run) {
            self.runs.push(run);
        }
    }

    /// What a pod took and did not claim, or anything that one ever took.
    pub(super) async fn taken(&mut self, pick: Pick, fresh: bool) -> Option<(PodRef, Taken)> {
        if !fresh {
            return chosen(&self.taken, pick);
        }
        for looks in 0..2 {
            let mut now = Vec::new();
            for of in 0..PODS {
                let taken = self.store.claiming(&pod(of)).await.expect("claiming");
                // Whose session it is, the pod that took it knows.
                let by = |taken: &Taken| self.taken.iter().rev().find(|(_, t)| t == taken);
                now.extend(taken.iter().filter_map(by).cloned());
            }
            if let Some(last) = now.len().checked_sub(1) {
                return now.get(last - pick % now.len()).cloned();
            }
            for of in 0..PODS * (1 - looks) {
                self.take_for(self.latest(of), 3).await;
            }
        }
        None
    }

    /// An attempt that executes, or any that ever did.
    pub(super) async fn held(&self, pick: Pick, fresh: bool) -> Option<Held> {
        let mut now = self.held.clone();
        if fresh {
            let running = self.store.running(None).await.expect("running").entries;
            now.retain(|held| running.iter().any(|entry| entry.fence == held.at.fence));
        }
        let last = now.len().checked_sub(1)?;
        let back = if fresh {
            pick % now.len()
        } else {
            pick.min(last)
        };
        now.get(last - back).cloned()
    }

    /// The latest session of an address that this store was told of.
    fn latest(&self, address: usize) -> usize {
        self.sessions[address]
    }

    /// Keeps which session an address has now.
    pub(super) fn started(&mut self, i: usize) {
        let latest = &mut self.sessions[i % PODS];
        *latest = i.max(*latest);
    }

    /// Takes from a pod's queue, and keeps what it got.
    pub(super) async fn take_for(&mut self, of: usize, max: usize) -> String {
        let (store, me) = (&self.store, pod(of));
        let new = || store.consumer(&me);
        let consumer = self.consumers.entry(of).or_insert_with(new);
        let answer = consumer.take(Duration::ZERO, max).await;
        if let Ok(taken) = &answer {
            let taken = taken.iter().map(|taken| (me.clone(), taken.clone()));
            self.taken.extend(taken);
        }
        said(&answer)
    }

    /// Lets everything brief run out.
    pub(super) async fn pass_if(&self, brief: bool) {
        if brief {
            self.harness.pass(PASSES).await;
        }
    }
}
