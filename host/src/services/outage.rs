//! One line when the store goes, one when it comes back, and counters between.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use wasmcron_store::StoreError;

use super::machine::Machine;
use super::metrics::Metrics;

/// The shortest wait before a failed request is repeated.
pub const RETRY_MIN: Duration = Duration::from_millis(100);
/// The longest.
pub const RETRY_MAX: Duration = Duration::from_secs(2);

/// The state of the store as one loop sees it.
pub struct Outage {
    name: &'static str,
    machine: Arc<dyn Machine>,
    since: Mutex<Option<(Duration, u32)>>,
}

impl Outage {
    /// For the loop of this name, of a pod on that machine.
    #[must_use]
    pub fn new(name: &'static str, machine: &Arc<dyn Machine>) -> Self {
        Outage {
            name,
            machine: machine.clone(),
            since: Mutex::new(None),
        }
    }

    /// Notes a failure; answers how long to wait before the next try: doubling, with a random fifth
    /// taken off so that pods do not come back together.
    pub fn failed(&self, error: &StoreError, metrics: &Metrics) -> Duration {
        metrics.store_errors.with_label_values(&[self.name]).inc();
        let mut since = self
            .since
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let (_, count) = since.get_or_insert_with(|| {
            tracing::warn!(r#loop = self.name, %error, "store.lost");
            (self.machine.boot(), 0)
        });
        *count += 1;
        let wait = (RETRY_MIN * 2_u32.saturating_pow((*count - 1).min(8))).min(RETRY_MAX);
        wait - self.machine.jitter(wait / 5)
    }

    /// Notes an answer.
    pub fn answered(&self) {
        let mut since = self
            .since
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some((at, count)) = since.take() {
            let seconds = self.machine.boot().saturating_sub(at).as_secs_f64();
            tracing::info!(r#loop = self.name, seconds, failures = count, "store.back");
        }
    }
}
