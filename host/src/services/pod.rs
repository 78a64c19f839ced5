//! What all loops of a pod share.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::sync::{Notify, broadcast, mpsc};
use tokio_util::sync::CancellationToken;
use wasmcron_core::ids::{PodAddress, PodRef, SessionId};
use wasmcron_core::time::Timestamp;
use wasmcron_core::view::{PodLoad, PodReport};
use wasmcron_store::Store;
use wasmcron_store::control::Wake;
use wasmcron_store::runs::Retention;

use super::attempts::Attempts;
use super::clock::StoreClock;
use super::jobs::JobBook;
use super::lead::{self, Lead, LeadSetter};
use super::machine::Machine;
use super::metrics::Metrics;
use super::outage::StoreHealth;
use super::plugins::Plugins;
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
    /// What it runs on.
    pub machine: Arc<dyn Machine>,
    /// Where pods meet.
    pub store: Arc<dyn Store>,
    /// What its loops know of the store together.
    pub health: Arc<StoreHealth>,
    /// The store's clock.
    pub clock: Arc<StoreClock>,
    /// What it counts.
    pub metrics: Arc<Metrics>,
    /// Its jobs.
    pub jobs: JobBook,
    /// Its plugins.
    pub plugins: Arc<dyn Plugins>,
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
    pub last_take: AtomicI64,
    /// When the last heartbeat was acknowledged, in milliseconds since boot; 0 before the first.
    pub last_beat: AtomicU64,
    /// Cancelled when an operator asks the pod to leave, through the store.
    pub asked_to_leave: CancellationToken,
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

/// What a pod is made of.
pub struct Parts {
    /// What it runs on.
    pub machine: Arc<dyn Machine>,
    /// Where pods meet.
    pub store: Arc<dyn Store>,
    /// Its plugins.
    pub plugins: Arc<dyn Plugins>,
    /// Its settings.
    pub settings: Settings,
    /// Its address, unique among live pods.
    pub address: PodAddress,
    /// Attempts it executes at once, at least 1.
    pub capacity: u32,
}

/// The ends of a new pod's channels that its loops take.
pub struct Ends {
    /// Says whether the pod leads; the elector's.
    pub lead: LeadSetter,
    /// Hears why the pod must end.
    pub fatal: mpsc::Receiver<Fatal>,
}

impl Pod {
    /// A new session of a pod, which starts now by the store's clock. Nothing runs and nobody knows of
    /// it yet.
    ///
    /// # Errors
    /// When the store does not tell its time.
    pub async fn create(parts: Parts) -> Result<(Arc<Pod>, Ends)> {
        let Parts {
            machine,
            store,
            plugins,
            settings,
            address,
            capacity,
        } = parts;
        let session = SessionId::new(&machine.ulid().to_string())?;
        let me = PodRef { address, session };
        let clock = StoreClock::new(machine.clone());
        let sent = machine.boot();
        let started = store
            .now()
            .await
            .context("the store does not tell its time")?;
        clock.measure(sent, started);
        let (setter, lead) = lead::channel(me.clone(), machine.clone());
        let (fatal, fatals) = mpsc::channel(4);
        let pod = Pod {
            me,
            settings,
            capacity: capacity.max(1),
            started,
            health: StoreHealth::new(machine.clone()),
            clock: Arc::new(clock),
            metrics: Arc::new(Metrics::new()?),
            jobs: JobBook::default(),
            plugins,
            attempts: Attempts::default(),
            lead,
            wakes: broadcast::Sender::new(WAKES_MAX),
            beat_now: Notify::new(),
            extend_now: Notify::new(),
            last_take: AtomicI64::new(started.as_millis()),
            last_beat: AtomicU64::new(0),
            asked_to_leave: CancellationToken::new(),
            leaving: CancellationToken::new(),
            stopped: CancellationToken::new(),
            fatal,
            machine,
            store,
        };
        let ends = Ends {
            lead: setter,
            fatal: fatals,
        };
        Ok((Arc::new(pod), ends))
    }

    /// What the pod says of itself and seldom changes.
    #[must_use]
    pub fn report(&self) -> PodReport {
        let jobs = self.jobs.all();
        PodReport {
            version: env!("CARGO_PKG_VERSION").into(),
            started: self.started,
            capacity: self.capacity,
            labels: self.settings.pod.labels.clone(),
            plugins: self.plugins.serving(),
            jobs: jobs
                .iter()
                .map(|(name, known)| (name.clone(), known.report.clone()))
                .collect(),
            refused: (*self.jobs.refused()).clone(),
        }
    }

    /// What the pod says with every heartbeat.
    #[must_use]
    pub fn load(&self) -> PodLoad {
        let local = self.attempts.local(self.capacity);
        let last_take = self.last_take.load(Ordering::Relaxed);
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
            biased;
            () = self.stopped.cancelled() => false,
            () = tokio::time::sleep(wait) => true,
        }
    }
}
