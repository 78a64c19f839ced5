//! What shall become of single requests, as a scenario says it.

use std::sync::Arc;

use tokio::sync::Notify;
use wasmcron_core::ids::PodAddress;

use super::{Fate, Network};

/// What shall become of requests to come.
#[derive(Default)]
pub struct Plans {
    plans: Vec<Plan>,
    holds: Vec<Arc<Hold>>,
}

struct Plan {
    /// Whose; none: anybody's.
    pod: Option<PodAddress>,
    verb: &'static str,
    fate: Fate,
    /// Not only the next one.
    all: bool,
}

/// A request that waits on its way.
#[derive(Default)]
pub(super) struct Hold {
    sent: Notify,
    released: Notify,
}

impl Hold {
    /// The request waits here.
    pub(super) async fn wait(&self) {
        self.released.notified().await;
    }
}

/// A request that does not arrive before it is let go.
pub struct Held(Arc<Hold>);

impl Held {
    /// Waits until the request is on its way.
    pub async fn sent(&self) {
        self.0.sent.notified().await;
    }

    /// Lets it arrive. Its sender hears of it if that still waits.
    pub fn release(&self) {
        self.0.released.notify_one();
    }
}

impl Plans {
    /// What was planned for a request that sets out now.
    pub(super) fn meet(&mut self, pod: &PodAddress, verb: &'static str) -> Option<Fate> {
        let is_meant = |plan: &Plan| {
            plan.verb == verb && plan.pod.as_ref().is_none_or(|planned| planned == pod)
        };
        let at = self.plans.iter().position(is_meant)?;
        let plan = self.plans.get(at)?;
        let (fate, all) = (plan.fate, plan.all);
        if !all {
            self.plans.remove(at);
        }
        if let Fate::Held { hold } = fate
            && let Some(hold) = self.holds.get(hold)
        {
            hold.sent.notify_one();
        }
        Some(fate)
    }

    pub(super) fn hold(&self, hold: usize) -> Option<Arc<Hold>> {
        self.holds.get(hold).cloned()
    }
}

impl Network {
    /// Says what becomes of the next request of this verb, a pod's or anybody's; said again, of the one
    /// after it.
    pub fn plan(&self, pod: Option<&PodAddress>, verb: &'static str, fate: Fate) {
        self.note(pod, verb, fate, false);
    }

    /// Says what becomes of all requests of this verb from now on.
    pub fn plan_all(&self, pod: Option<&PodAddress>, verb: &'static str, fate: Fate) {
        self.note(pod, verb, fate, true);
    }

    /// Holds the next request of this verb on its way.
    #[must_use]
    pub fn hold(&self, pod: Option<&PodAddress>, verb: &'static str) -> Held {
        let hold = Arc::new(Hold::default());
        let mut state = self.lock();
        state.plans.holds.push(hold.clone());
        let number = state.plans.holds.len() - 1;
        drop(state);
        self.note(pod, verb, Fate::Held { hold: number }, false);
        Held(hold)
    }

    /// Forgets what was planned for requests that did not set out.
    pub fn mend(&self) {
        self.lock().plans.plans.clear();
    }

    fn note(&self, pod: Option<&PodAddress>, verb: &'static str, fate: Fate, all: bool) {
        self.lock().plans.plans.push(Plan {
            pod: pod.cloned(),
            verb,
            fate,
            all,
        });
    }
}
