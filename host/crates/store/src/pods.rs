//! Which pods live, and what they say of themselves.

use std::time::Duration;

use async_trait::async_trait;
use wasmcron_core::ids::{PodAddress, PodRef};
use wasmcron_core::time::Timestamp;
use wasmcron_core::view::{Pod, PodLoad, PodReport};

use crate::error::Result;
use crate::leadership::TermRef;

/// Whether the caller is still the current session of its address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is; `now` is the store's clock.
    Current {
        /// The store's clock at the answer.
        now: Timestamp,
    },
    /// It is, and an operator asks it to leave the fleet. Only an answer to `heartbeat`.
    AskedToLeave {
        /// The store's clock at the answer.
        now: Timestamp,
        /// Who asks.
        by: String,
    },
    /// A later session took the address: the caller must end itself.
    Superseded,
    /// The store knows no session of this address, as it came back empty or the pod was silent for
    /// ten windows: register again. Never an answer to `register`.
    Unknown,
}

/// Answer to `drain`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Draining {
    /// It gets no more tasks, and is told with its next heartbeat.
    Asked,
    /// It was asked before, or leaves already.
    Leaving,
    /// No such pod.
    Unknown,
}

/// Answer to `forget`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forgotten {
    /// Nothing is left of the pod.
    Forgotten,
    /// It lives or has entries; nothing changed.
    InUse,
    /// The caller leads no more.
    NotLeader,
}

/// The register of pods.
#[async_trait]
pub trait Pods: Send + Sync {
    /// The store's clock.
    async fn now(&self) -> Result<Timestamp>;

    /// Makes the caller the session of its address, unless a session with a later start already is.
    /// `started` is the start by the store's clock; equal starts are told apart by the session id.
    async fn register(
        &self,
        me: &PodRef,
        started: Timestamp,
        report: &PodReport,
    ) -> Result<Standing>;

    /// Replaces what the pod says of itself.
    async fn report(&self, me: &PodRef, report: &PodReport) -> Result<Standing>;

    /// Marks the pod as alive now, by the store's clock, and keeps its load.
    /// What it said of itself is kept for ten of these `window`s.
    async fn heartbeat(&self, me: &PodRef, load: &PodLoad, window: Duration) -> Result<Standing>;

    /// Takes the pod off the subscribers, marks it draining and drops its two lists, so that the
    /// leader publishes their tasks again at once. Wakes the leader.
    async fn leave(&self, me: &PodRef) -> Result<Standing>;

    /// Asks the current session of a pod to leave the fleet in good order. No task is sent to it from
    /// now on; a later session of the address is not asked.
    async fn drain(&self, pod: &PodAddress, by: &str) -> Result<Draining>;

    /// Removes what is left of a pod that was silent for ten windows and that no entry names.
    async fn forget(&self, term: &TermRef, pod: &PodAddress, window: Duration)
    -> Result<Forgotten>;

    /// Every pod that left a trace, in the order of addresses.
    async fn pods(&self) -> Result<Vec<Pod>>;
}
