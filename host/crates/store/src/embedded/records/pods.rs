//! Who leads, which pods live, and what is queued for them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use wasmcron_core::ids::{Delivery, PodRef, RunId, SessionId, Term};
use wasmcron_core::time::Timestamp;
use wasmcron_core::view::{PodLoad, PodReport};

use super::shared;

/// The leader's lease and what outlives it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Leadership {
    /// The latest term.
    pub term: Term,
    /// Who won it.
    pub holder: PodRef,
    /// When.
    pub since: Timestamp,
    /// How long its lease was asked for, in milliseconds.
    pub ttl: i64,
    /// Until when it leads; none once it resigned.
    pub until: Option<Timestamp>,
    /// Who resigned last, and from which term.
    pub resigned: Option<(PodRef, Term)>,
}

/// A pod that registered and was not forgotten.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PodRecord {
    /// Its last heartbeat; none before the first and once it left.
    pub beat: Option<Timestamp>,
    /// What it said.
    pub said: Option<Said>,
}

/// What a pod said of itself, but for its report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Said {
    /// Its session.
    pub session: SessionId,
    /// When that started.
    pub started: Timestamp,
    /// Another number for each report that differs from the one before.
    pub version: i64,
    /// What it said with its last heartbeat.
    pub load: Option<PodLoad>,
    /// It takes nothing more.
    pub draining: bool,
    /// It left.
    pub left: bool,
    /// Who asks it to leave.
    #[serde(default)]
    pub leave: Option<String>,
    /// When this is forgotten.
    pub expires_at: Timestamp,
}

/// A pod's report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Report(
    /// It.
    #[serde(with = "shared")]
    pub Arc<PodReport>,
);

/// An entry in a pod's queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queued {
    /// The run.
    pub run: RunId,
    /// The delivery.
    pub delivery: Delivery,
}

/// An entry that a pod took and did not claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claiming {
    /// The run.
    pub run: RunId,
    /// The delivery.
    pub delivery: Delivery,
}
