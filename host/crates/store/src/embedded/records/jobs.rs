//! What is kept of a job.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use wasmcron_core::ids::JobName;
use wasmcron_core::job::StoredDefinition;
use wasmcron_core::time::Timestamp;
use wasmcron_core::view::{self, Gap};

use super::shared;

/// Bytes of all keys and values of a job's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StateSize(
    /// How many.
    pub u64,
);

/// The last nominal time of a job that has its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cursor(
    /// It.
    pub Timestamp,
);

/// The definition that rules.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Schedule(
    /// It.
    #[serde(with = "shared")]
    pub Arc<StoredDefinition>,
);

/// Nominal times answered in bulk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GapRecord(
    /// Which, and why.
    pub Gap,
);

/// Why a job's due firing waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Waiting(
    /// Since when, and why.
    pub view::Waiting,
);

/// An operator stopped a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Paused(
    /// Who, when, why.
    pub view::Hold,
);

/// The platform stopped a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Quarantined(
    /// Who, when, why.
    pub view::Hold,
);

/// A job whose view changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Change(
    /// Which.
    pub JobName,
);

/// The number of a job's latest change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ChangeOf(
    /// It.
    pub u64,
);

/// The list of changed jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeList {
    /// The latest number that was dropped from it, or that was given before it began.
    pub dropped: u64,
    /// The latest number given.
    pub top: u64,
    /// Jobs on it.
    pub kept: u64,
}

/// What the statistics say of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// Runs that ended as succeeded.
    pub succeeded: u64,
    /// As failed.
    pub failed: u64,
    /// As timed out.
    pub timed_out: u64,
    /// As cancelled.
    pub cancelled: u64,
    /// As lost.
    pub lost: u64,
    /// As skipped.
    pub skipped: u64,
    /// Attempts that succeeded.
    pub successes: u64,
    /// How long they took together, in milliseconds.
    pub successes_ms: u64,
    /// Nominal time of the latest run that succeeded.
    pub previous: Option<Timestamp>,
}
