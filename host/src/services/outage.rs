//! One line of a pod when the store goes, one when it comes back, and counters between.
//!
//! Some ten loops of a pod ask the store. Each repeats what failed at its own pace, but they share what
//! they know of the store, so that an outage is told once and not by each of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use wasmcron_store::StoreError;

use super::machine::Machine;
use super::metrics::Metrics;

/// The shortest wait before a failed request is repeated.
pub const RETRY_MIN: Duration = Duration::from_millis(100);
/// The longest.
pub const RETRY_MAX: Duration = Duration::from_secs(2);

/// The store as all loops of a pod see it together.
pub struct StoreHealth {
    machine: Arc<dyn Machine>,
    /// Whether anything is lost: what a loop that got an answer looks at first.
    lost: AtomicBool,
    next_loop: AtomicU64,
    troubles: Mutex<BTreeMap<&'static str, Trouble>>,
}

/// One kind of trouble, from its first failure on.
struct Trouble {
    since: Duration,
    failures: u32,
    loops: BTreeSet<u64>,
}

impl StoreHealth {
    /// All is well so far.
    #[must_use]
    pub fn new(machine: Arc<dyn Machine>) -> Arc<Self> {
        Arc::new(StoreHealth {
            machine,
            lost: AtomicBool::new(false),
            next_loop: AtomicU64::new(0),
            troubles: Mutex::default(),
        })
    }

    fn troubles(&self) -> MutexGuard<'_, BTreeMap<&'static str, Trouble>> {
        self.troubles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, one: &Outage, error: &StoreError) {
        let mut troubles = self.troubles();
        let kind = kind(error);
        for (other, trouble) in troubles.iter_mut() {
            if *other != kind {
                trouble.loops.remove(&one.id);
            }
        }
        let trouble = troubles.entry(kind).or_insert_with(|| {
            tracing::warn!(r#loop = one.name, kind, %error, "store.lost");
            Trouble {
                since: self.machine.boot(),
                failures: 0,
                loops: BTreeSet::new(),
            }
        });
        trouble.failures = trouble.failures.saturating_add(1);
        trouble.loops.insert(one.id);
        self.lost.store(true, Ordering::Relaxed);
    }

    /// A loop got an answer: what no loop meets any more is over.
    fn answered(&self, one: &Outage) {
        if !self.lost.load(Ordering::Relaxed) {
            return;
        }
        let mut troubles = self.troubles();
        troubles.retain(|kind, trouble| {
            trouble.loops.remove(&one.id);
            if trouble.loops.is_empty() {
                let lasted = self.machine.boot().saturating_sub(trouble.since);
                let (seconds, failures) = (lasted.as_secs_f64(), trouble.failures);
                tracing::info!(kind, seconds, failures, "store.back");
            }
            !trouble.loops.is_empty()
        });
        self.lost.store(!troubles.is_empty(), Ordering::Relaxed);
    }

    /// A loop asks nothing for now, which says nothing of the store.
    fn left(&self, one: &Outage) {
        for trouble in self.troubles().values_mut() {
            trouble.loops.remove(&one.id);
        }
    }
}

/// What a person tells apart.
fn kind(error: &StoreError) -> &'static str {
    match error {
        StoreError::Unavailable { .. } => "unavailable",
        StoreError::Full { .. } => "full",
        StoreError::Refused { .. } => "refused",
        StoreError::Corrupt { .. } => "corrupt",
        StoreError::TooLarge { .. } => "too-large",
    }
}

/// The state of the store as one loop sees it.
pub struct Outage {
    name: &'static str,
    id: u64,
    failures: AtomicU32,
    health: Arc<StoreHealth>,
}

impl Outage {
    /// For the loop of this name.
    #[must_use]
    pub fn new(name: &'static str, health: &Arc<StoreHealth>) -> Self {
        Outage {
            name,
            id: health.next_loop.fetch_add(1, Ordering::Relaxed),
            failures: AtomicU32::new(0),
            health: health.clone(),
        }
    }

    /// Notes a failure; answers how long to wait before the next try: doubling, with a random fifth
    /// taken off so that pods do not come back together.
    pub fn failed(&self, error: &StoreError, metrics: &Metrics) -> Duration {
        metrics.store_errors.with_label_values(&[self.name]).inc();
        self.health.failed(self, error);
        let before = self.failures.fetch_add(1, Ordering::Relaxed);
        let wait = (RETRY_MIN * 2_u32.saturating_pow(before.min(8))).min(RETRY_MAX);
        wait - self.health.machine.jitter(wait / 5)
    }

    /// Notes an answer.
    pub fn answered(&self) {
        self.failures.store(0, Ordering::Relaxed);
        self.health.answered(self);
    }

    /// Notes that the loop asks nothing for now: whether the store is back, others find out.
    pub fn idle(&self) {
        if self.failures.swap(0, Ordering::Relaxed) > 0 {
            self.health.left(self);
        }
    }
}

impl Drop for Outage {
    fn drop(&mut self) {
        self.idle();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::machine::RealMachine;

    fn away() -> StoreError {
        StoreError::Unavailable {
            verb: "now",
            message: "gone".into(),
        }
    }

    fn loops() -> (Arc<StoreHealth>, Metrics, [Outage; 3]) {
        let health = StoreHealth::new(Arc::new(RealMachine));
        let outages = ["a", "b", "c"].map(|name| Outage::new(name, &health));
        (health, Metrics::new().expect("series"), outages)
    }

    fn troubles(health: &StoreHealth) -> Vec<(&'static str, u32)> {
        let troubles = health.troubles();
        troubles
            .iter()
            .map(|(kind, it)| (*kind, it.failures))
            .collect()
    }

    #[test]
    fn an_outage_is_one_however_many_loops_meet_it() {
        let (health, metrics, [a, b, c]) = loops();
        for one in [&a, &b, &a, &b] {
            one.failed(&away(), &metrics);
        }
        assert_eq!(troubles(&health), [("unavailable", 4)]);
        a.answered();
        c.answered();
        assert_eq!(
            troubles(&health),
            [("unavailable", 4)],
            "b has no answer yet"
        );
        b.answered();
        assert_eq!(troubles(&health), []);
    }

    #[test]
    fn a_loop_that_asks_no_more_holds_nothing_up() {
        let (health, metrics, [a, b, c]) = loops();
        a.failed(&away(), &metrics);
        b.failed(&away(), &metrics);
        a.idle();
        drop(b);
        assert_eq!(
            troubles(&health),
            [("unavailable", 2)],
            "nobody had an answer"
        );
        c.answered();
        assert_eq!(troubles(&health), []);
    }

    #[test]
    fn another_kind_of_trouble_is_told_apart() {
        let (health, metrics, [a, b, _]) = loops();
        let refused = StoreError::Refused {
            verb: "view",
            message: "a key of the wrong type".into(),
        };
        a.failed(&refused, &metrics);
        b.failed(&away(), &metrics);
        b.answered();
        assert_eq!(troubles(&health), [("refused", 1)]);
        a.failed(&away(), &metrics);
        a.answered();
        assert_eq!(troubles(&health), []);
    }

    #[test]
    fn the_wait_doubles_and_begins_anew_after_an_answer() {
        let (_, metrics, [a, ..]) = loops();
        let waits: Vec<Duration> = (0..8).map(|_| a.failed(&away(), &metrics)).collect();
        assert!(waits[0] <= RETRY_MIN && waits[7] <= RETRY_MAX);
        assert!(waits[7] >= RETRY_MAX * 4 / 5, "{waits:?}");
        a.answered();
        assert!(a.failed(&away(), &metrics) <= RETRY_MIN);
    }
}
