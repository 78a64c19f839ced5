//! What all loops of a pod share.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, broadcast, mpsc};
use tokio_util::sync::CancellationToken;
use wasmcron_core::ids::PodRef;
use wasmcron_core::time::Timestamp;
use wasmcron_core::view::{PodLoad, PodReport};
use wasmcron_runtime::{PluginRegistry, Runtime};
use wasmcron_store::Store;
use wasmcron_store::control::Wake;
use wasmcron_store::runs::Retention;

use super::attempts::Attempts;
use super::clock::StoreClock;
use super::jobs::JobBook;
use super::lead::Lead;
use super::metrics::Metrics;
use crate::config::settings::Settings;

/// Wake-ups kept for a loop that is busy; one that missed some looks at everything.
pub const WAKES_MAX: usize = 256;

/// One pod of the fleet, as its loops see it.
pub struct Pod {
    /// Its address and this start of it.
    pub me: PodRef,
    /// Its settings.
    pub settings: Settings,
    /// Attempts it executes at once.
    pub capacity: u32,
    /// When this session started, by the store's clock.
    pub started: Timestamp,
    /// Where pods meet.
    pub store: Arc<dyn Store>,
    /// The store's clock.
    pub clock: Arc<StoreClock>,
    /// What it counts.
    pub metrics: Arc<Metrics>,
    /// Its jobs.
    pub jobs: JobBook,
    /// Its plugins.
    pub plugins: Arc<PluginRegistry>,
    /// Where guests execute.
    pub runtime: Arc<Runtime>,
    /// What it has in hand.
    pub attempts: Attempts,
    /// Whether it leads.
    pub lead: Lead,
    /// Wake-ups from the other pods, for every loop.
    pub wakes: broadcast::Sender<Wake>,
    /// Tells the lease thread to say at once how the pod is.
    pub beat_now: Notify,
    /// Tells the lease thread to extend at once.
    pub extend_now: Notify,
    /// When the subscriber last got an answer, by the store's clock.
    pub last_take: std::sync::atomic::AtomicI64,
    /// When the last heartbeat was acknowledged, in milliseconds since boot.
    pub last_beat: std::sync::atomic::AtomicU64,
    /// Cancelled when the pod begins to leave.
    pub leaving: CancellationToken,
    /// Cancelled when the loops shall end.
    pub stopped: CancellationToken,
    /// Why the process must end, from whichever loop finds out.
    pub fatal: mpsc::Sender<Fatal>,
}

/// Why a process ends itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fatal {
    /// A later session took the pod's address.
    #[error("another process registered as pod {0}: give every pod its own pod.address")]
    Superseded(String),
    /// A loop that must not end did.
    #[error("the {0} loop ended: {1}")]
    LoopEnded(&'static str, String),
}

impl Pod {
    /// What the pod says of itself and seldom changes.
    #[must_use]
    pub fn report(&self) -> PodReport {
        let plugins = self.plugins.statuses().into_iter().filter_map(|status| {
            let name = status.name.parse().ok()?;
            Some((name, status.active?))
        });
        let jobs = self.jobs.all();
        PodReport {
            version: env!("CARGO_PKG_VERSION").into(),
            started: self.started,
            capacity: self.capacity,
            labels: self.settings.pod.labels.clone(),
            plugins: plugins.collect(),
            jobs: jobs
                .iter()
                .map(|(name, known)| (name.clone(), known.report.clone()))
                .collect(),
        }
    }

    /// What the pod says with every heartbeat.
    #[must_use]
    pub fn load(&self) -> PodLoad {
        let local = self.attempts.local(self.capacity);
        let last_take = self.last_take.load(std::sync::atomic::Ordering::Relaxed);
        PodLoad {
            running: local.running,
            exclusive: local.exclusive,
            draining: local.draining,
            last_take: Timestamp::from_millis(last_take),
        }
    }

    /// What is kept of ended runs.
    #[must_use]
    pub fn retention(&self) -> Retention {
        Retention {
            age: self.settings.retention.age.get(),
            runs: self.settings.retention.runs,
        }
    }

    /// Ends the process; the first reason given is the one shown.
    pub fn die(&self, why: Fatal) {
        // A full channel holds an earlier reason.
        let _ = self.fatal.try_send(why);
    }

    /// Ends the process because a later session of this pod exists.
    pub fn superseded(&self) {
        self.die(Fatal::Superseded(self.me.address.to_string()));
    }

    /// Waits, but not beyond the end of the pod's loops; false if that came.
    pub async fn rest(&self, wait: Duration) -> bool {
        tokio::select! {
            () = tokio::time::sleep(wait) => true,
            () = self.stopped.cancelled() => false,
        }
    }
}
