//! The attempts this pod executes or is about to, and what it may take besides.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use wasmcron_core::decide::claim::Local;
use wasmcron_core::ids::{Delivery, Digest, Fence, RunId};
use wasmcron_runtime::AttemptControl;
use wasmcron_store::queue::Taken;
use wasmcron_store::runs::AttemptRef;

/// One executing attempt.
#[derive(Clone, Debug)]
pub struct Executing {
    /// Its names.
    pub attempt: AttemptRef,
    /// The hold on it.
    pub control: AttemptControl,
    /// The version of the plugin it runs.
    pub digest: Digest,
    /// Its job hands over to a newer version.
    pub hands_over: bool,
    /// Who asked for its end, once somebody did.
    pub cancelled_by: Arc<Mutex<Option<String>>>,
}

/// The table of what this pod has in hand.
#[derive(Debug, Default)]
pub struct Attempts {
    inner: Mutex<Inner>,
    changed: Notify,
    admission: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    executing: BTreeMap<RunId, Executing>,
    /// Those among them whose guest is over and whose end is being written.
    concluding: BTreeSet<(RunId, Fence)>,
    in_hand: BTreeSet<(RunId, Delivery)>,
    exclusive: Option<RunId>,
    draining: bool,
}

impl Attempts {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing panics while it is held; a poisoned table is still a consistent one.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a taken entry; false if it is in hand already.
    pub fn take_in_hand(&self, taken: &Taken) -> bool {
        self.lock()
            .in_hand
            .insert((taken.run.clone(), taken.delivery))
    }

    /// Lets go of an entry that was settled.
    pub fn settle(&self, taken: &Taken) {
        self.lock()
            .in_hand
            .remove(&(taken.run.clone(), taken.delivery));
        self.changed.notify_waiters();
    }

    /// Entries in hand.
    #[must_use]
    pub fn in_hand(&self) -> usize {
        self.lock().in_hand.len()
    }

    /// Notes an attempt that begins.
    pub fn begin(&self, executing: Executing) {
        self.lock()
            .executing
            .insert(executing.attempt.run.clone(), executing);
    }

    /// Notes that an attempt's guest is over: `finish` alone says from now on what became of it.
    pub fn conclude(&self, attempt: &AttemptRef) {
        self.lock().concluding.insert(named(attempt));
    }

    /// Whether an attempt's guest may still be at work.
    #[must_use]
    pub fn has_guest(&self, attempt: &AttemptRef) -> bool {
        let inner = self.lock();
        let known = inner.executing.get(&attempt.run);
        known.is_some_and(|known| known.attempt == *attempt)
            && !inner.concluding.contains(&named(attempt))
    }

    /// Forgets an attempt whose `finish` was answered.
    pub fn end(&self, attempt: &AttemptRef) {
        let mut inner = self.lock();
        if inner
            .executing
            .get(&attempt.run)
            .is_some_and(|known| known.attempt == *attempt)
        {
            inner.executing.remove(&attempt.run);
        }
        inner.concluding.remove(&named(attempt));
        drop(inner);
        self.changed.notify_waiters();
    }

    /// All executing attempts.
    #[must_use]
    pub fn executing(&self) -> Vec<Executing> {
        self.lock().executing.values().cloned().collect()
    }

    /// How many execute.
    #[must_use]
    pub fn running(&self) -> usize {
        self.lock().executing.len()
    }

    /// Reserves the pod for a run; false if another run has it.
    pub fn reserve(&self, run: &RunId) -> bool {
        let mut inner = self.lock();
        if inner.exclusive.as_ref().is_some_and(|holder| holder != run) {
            return false;
        }
        inner.exclusive = Some(run.clone());
        drop(inner);
        self.admission.notify_waiters();
        true
    }

    /// Ends a reservation.
    pub fn release(&self, run: &RunId) {
        let mut inner = self.lock();
        if inner.exclusive.as_ref() == Some(run) {
            inner.exclusive = None;
        }
        drop(inner);
        self.admission.notify_waiters();
    }

    /// Marks the pod as leaving.
    pub fn drain(&self) {
        self.lock().draining = true;
        self.admission.notify_waiters();
    }

    /// Whether the pod leaves.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.lock().draining
    }

    /// What decisions need to know.
    #[must_use]
    pub fn local(&self, capacity: u32) -> Local {
        let inner = self.lock();
        Local {
            capacity,
            running: u32::try_from(inner.executing.len()).unwrap_or(u32::MAX),
            exclusive: inner.exclusive.clone(),
            draining: inner.draining,
        }
    }

    /// Waits until the pod is reserved, given free, or begins to leave, from the moment this future
    /// is created.
    pub fn admission_changed(&self) -> impl Future<Output = ()> + '_ {
        self.admission.notified()
    }

    /// Waits until no taken entry is without its answer.
    pub async fn settled(&self) {
        self.until(|| self.in_hand() == 0).await;
    }

    /// Waits until nothing executes and nothing is in hand.
    pub async fn idle(&self) {
        self.until(|| self.running() == 0 && self.in_hand() == 0)
            .await;
    }

    async fn until(&self, done: impl Fn() -> bool) {
        loop {
            let changed = self.changed();
            if done() {
                return;
            }
            changed.await;
        }
    }

    /// Waits until an entry is settled or an attempt ends, from the moment this future is created.
    fn changed(&self) -> impl Future<Output = ()> + '_ {
        self.changed.notified()
    }
}

fn named(attempt: &AttemptRef) -> (RunId, Fence) {
    (attempt.run.clone(), attempt.fence)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn executing(fence: u64) -> Executing {
        Executing {
            attempt: AttemptRef {
                job: "a".parse().expect("a name"),
                run: "a@2026-01-31T01:00:00Z".parse().expect("a run"),
                fence: Fence(fence),
            },
            control: AttemptControl::new(),
            digest: Digest::of(b"plugin"),
            hands_over: false,
            cancelled_by: Arc::default(),
        }
    }

    /// The lock goes with the end, so an extension that is under way then is answered `Lost`.
    #[test]
    fn an_attempt_that_ended_is_not_taken_for_fenced() {
        let attempts = Attempts::default();
        let first = executing(1);
        attempts.begin(first.clone());
        assert!(attempts.has_guest(&first.attempt));
        attempts.conclude(&first.attempt);
        assert!(!attempts.has_guest(&first.attempt));
        assert_eq!(attempts.running(), 1, "its lock is extended all the same");
        // The next attempt of the run, claimed before the end of the first was answered, has a guest.
        let second = executing(2);
        attempts.begin(second.clone());
        assert!(attempts.has_guest(&second.attempt));
        attempts.end(&first.attempt);
        assert!(attempts.has_guest(&second.attempt));
        assert!(!attempts.has_guest(&first.attempt));
        attempts.end(&second.attempt);
        assert!(!attempts.has_guest(&second.attempt));
    }
}
