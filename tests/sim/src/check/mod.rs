//! The witness: sees every request when the store executes it and every effect of a guest, and says
//! which invariant of the protocol broke, when.

mod answers;
mod layer;
mod ledger;
mod promises;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use wasmcron_core::ids::{Fence, JobName, PodAddress, RunId};
use wasmcron_store::Store;

use crate::clock::Clock;
use crate::layer::Layered;

pub use answers::{Answers, check_answers};
pub use layer::Watched;
pub use ledger::Ledger;

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// When, since the world began.
    pub at: Duration,
    /// The number of the invariant in the protocol, 1 to 7; 8: the rightful owner's repeat is answered
    /// as the first request was; 9: what an operator was told holds.
    pub invariant: u8,
    /// What happened.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.at.as_secs_f64();
        write!(f, "{at:.3} s: invariant {}: {}", self.invariant, self.what)
    }
}

/// What kept a pod, or all of them, from its work.
#[derive(Clone, Copy, Debug, Default)]
struct Trouble {
    now: u32,
    until: Duration,
}

/// How long a pod's late requests from before a trouble may still arrive.
const TROUBLE_ECHO: Duration = Duration::from_secs(25);

/// Violations kept; the first is the one that matters.
const VIOLATIONS_MAX: usize = 20;
/// Lines of the history that are kept: those of an ordinary world are fewer.
const HISTORY_MAX: usize = 100_000;

/// What happened in a world, as far as its invariants ask.
pub struct Witness {
    clock: Clock,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    ledger: Ledger,
    violations: Vec<Violation>,
    history: std::collections::VecDeque<String>,
    troubles: BTreeMap<Option<PodAddress>, Trouble>,
    claims_in_vain: BTreeMap<PodAddress, Vec<Duration>>,
    keeps_history: bool,
    digest: u64,
    events: u64,
    begun: u64,
}

impl Witness {
    /// Of a world that has just begun. The history costs time, so it is only kept if asked for.
    #[must_use]
    pub fn new(clock: Clock, keeps_history: bool) -> Arc<Witness> {
        Arc::new(Witness {
            clock,
            inner: Mutex::new(Inner {
                keeps_history,
                ..Inner::default()
            }),
        })
    }

    /// Puts the witness before a store.
    #[must_use]
    pub fn watch(self: &Arc<Self>, store: Arc<dyn Store>) -> Arc<dyn Store> {
        Arc::new(Layered(Watched::new(self.clone(), store)))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `look` on the ledger, and notes what it finds broken.
    pub(crate) fn with<T>(&self, look: impl FnOnce(&mut Ledger, &mut Vec<(u8, String)>) -> T) -> T {
        let mut broken = Vec::new();
        let mut inner = self.lock();
        let answer = look(&mut inner.ledger, &mut broken);
        for (invariant, what) in broken {
            inner.break_one(self.clock.elapsed(), invariant, what);
        }
        answer
    }

    /// A fault that keeps a pod (none: every pod) from its work begins, or ends.
    pub fn trouble(&self, pod: Option<&PodAddress>, begins: bool) {
        let at = self.clock.elapsed();
        let mut inner = self.lock();
        let trouble = inner.troubles.entry(pod.cloned()).or_default();
        trouble.until = at + TROUBLE_ECHO;
        trouble.now = if begins {
            trouble.now + 1
        } else {
            trouble.now.saturating_sub(1)
        };
    }

    /// Whether nothing kept a pod from its work since then.
    pub(crate) fn was_well(&self, pod: &PodAddress, since: Duration) -> bool {
        let inner = self.lock();
        [None, Some(pod.clone())].iter().all(|pod| {
            let trouble = inner.troubles.get(pod).copied().unwrap_or_default();
            trouble.now == 0 && trouble.until <= since
        })
    }

    /// A claim of a pod did not reach the store while the pod waited for it.
    pub(crate) fn claim_in_vain(&self, pod: &PodAddress) {
        let at = self.clock.elapsed();
        let mut inner = self.lock();
        inner
            .claims_in_vain
            .entry(pod.clone())
            .or_default()
            .push(at);
    }

    /// How many claims of a pod did not reach the store since then.
    pub(crate) fn claims_in_vain(&self, pod: &PodAddress, since: Duration) -> usize {
        let inner = self.lock();
        let all = inner.claims_in_vain.get(pod).into_iter().flatten();
        all.filter(|at| **at >= since).count()
    }

    /// Time since the world began.
    pub(crate) fn elapsed(&self) -> Duration {
        self.clock.elapsed()
    }

    /// Notes that an invariant is broken.
    pub fn broken(&self, invariant: u8, what: String) {
        let at = self.clock.elapsed();
        self.lock().break_one(at, invariant, what);
    }

    /// What is broken so far.
    #[must_use]
    pub fn violations(&self) -> Vec<Violation> {
        self.lock().violations.clone()
    }

    /// The last lines of what happened.
    #[must_use]
    pub fn history(&self) -> Vec<String> {
        self.lock().history.iter().cloned().collect()
    }

    /// How many events there were, and a number that two equal histories share.
    #[must_use]
    pub fn digest(&self) -> (u64, u64) {
        let inner = self.lock();
        (inner.events, inner.digest)
    }

    /// Notes an event; `text` is only asked for when the history is kept.
    pub(crate) fn event(&self, kind: &'static str, of: &str, text: impl FnOnce() -> String) {
        let at = self.clock.elapsed();
        let mut inner = self.lock();
        inner.events += 1;
        inner.digest = mix(inner.digest, at, kind, of);
        if inner.keeps_history {
            if inner.history.len() == HISTORY_MAX {
                inner.history.pop_front();
            }
            let line = format!("{:>10.3} s  {kind} {of} {}", at.as_secs_f64(), text());
            inner.history.push_back(line);
        }
    }

    /// Attempts of guests that began so far.
    #[must_use]
    pub fn begun(&self) -> u64 {
        self.lock().begun
    }

    /// A guest begins at this step.
    pub fn begins(&self, run: &RunId, fence: Fence, attempt: u32, step: u32) {
        self.with(|ledger, _| ledger.guest_begins(run, fence));
        self.lock().begun += 1;
        self.event("guest-begins", run.as_str(), || {
            format!("attempt {attempt} fence {fence} step {step}")
        });
    }

    /// A guest does something to the outside world.
    pub fn effect(&self, job: &JobName, run: &RunId, fence: Fence, step: u32) {
        self.event("effect", run.as_str(), || {
            format!("fence {fence} step {step}")
        });
        self.with(|ledger, broken| ledger.effect(job, run, fence, step, broken));
    }

    /// Keeps the ledger as it is now, for a failover that comes back to it.
    #[must_use]
    pub fn snapshot(&self) -> Ledger {
        let mut inner = self.lock();
        inner.ledger.touched.clear();
        inner.ledger.clone()
    }

    /// A hand damaged what the store keeps of a run: what it is told after that is no promise.
    pub fn taint(&self, run: &RunId) {
        self.lock().ledger.run(run).tainted = true;
    }

    /// The store lost everything since then. Whoever had something to do with it may see things twice.
    pub fn restore(&self, then: &Ledger) {
        self.event("failover", "", String::new);
        self.lock().ledger.fall_back_to(then);
    }
}

impl Inner {
    fn break_one(&mut self, at: Duration, invariant: u8, what: String) {
        if self.keeps_history {
            let line = format!("{:>10.3} s  BROKEN {invariant}: {what}", at.as_secs_f64());
            self.history.push_back(line);
        }
        if self.violations.len() < VIOLATIONS_MAX {
            self.violations.push(Violation {
                at,
                invariant,
                what,
            });
        }
    }
}

/// Folds an event into the digest (FNV-1a, 64 bits).
fn mix(digest: u64, at: Duration, kind: &str, of: &str) -> u64 {
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let millis = u64::try_from(at.as_millis()).unwrap_or(0).to_le_bytes();
    let bytes = millis.iter().chain(kind.as_bytes()).chain(of.as_bytes());
    bytes.fold(digest ^ 0xcbf2_9ce4_8422_2325, |digest, byte| {
        (digest ^ u64::from(*byte)).wrapping_mul(PRIME)
    })
}
