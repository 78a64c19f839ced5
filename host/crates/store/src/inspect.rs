//! What people and tools read.

use async_trait::async_trait;
use wasmcron_core::ids::{JobName, RunId};
use wasmcron_core::run::{Checkpoint, RunRecord};
use wasmcron_core::time::Timestamp;
use wasmcron_core::view::{DelayedEntry, Gap, Hold};

use crate::error::Result;
use crate::runs::LogLine;

/// An entry of the execution log.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ExecutionEvent {
    /// Its position; entries stand in this order.
    pub id: String,
    /// When, by the store's clock.
    pub at: Timestamp,
    /// The event's name, such as `run.published`.
    pub event: String,
    /// The job.
    pub job: String,
    /// The run; empty where there is none.
    pub run: String,
    /// Further facts: pod, attempt, fence, outcome, why.
    pub fields: Vec<(String, String)>,
}

/// A page of log lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPage {
    /// The lines, oldest first.
    pub lines: Vec<LogLine>,
    /// Give this to the next call.
    pub next: Option<String>,
}

/// How many of what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counts {
    /// Jobs with a stored definition.
    pub jobs: u64,
    /// Runs in queues.
    pub scheduled: u64,
    /// Runs that execute.
    pub running: u64,
    /// Runs that wait.
    pub delayed: u64,
    /// Entries that could not be decoded.
    pub dead_letters: u64,
}

/// Answer to `clear_checkpoint`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cleared {
    /// Done.
    Cleared,
    /// There was none.
    None,
    /// The run executes; nothing changed.
    Running,
}

/// Answer to `rewind_checkpoint`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rewound {
    /// That checkpoint is the current one; later ones are gone.
    Rewound,
    /// It is not among those that are kept.
    None,
    /// The run executes; nothing changed.
    Running,
}

/// Reads for people, and the operator's hand on a checkpoint.
#[async_trait]
pub trait Inspect: Send + Sync {
    /// The record of a run.
    async fn run(&self, run: &RunId) -> Result<Option<RunRecord>>;

    /// A job's latest runs, newest first, 1,000 at most.
    async fn runs(&self, job: &JobName, limit: usize) -> Result<Vec<RunRecord>>;

    /// Where a delayed run waits.
    async fn delayed(&self, run: &RunId) -> Result<Option<DelayedEntry>>;

    /// A job's latest gaps, newest first.
    async fn gaps(&self, job: &JobName, limit: usize) -> Result<Vec<Gap>>;

    /// Lines of a run's log after a position (none: from its beginning).
    async fn log(&self, run: &RunId, after: Option<&str>, limit: usize) -> Result<LogPage>;

    /// The execution log after a position (none: from its beginning), oldest first.
    async fn execution_log(&self, after: Option<&str>, limit: usize)
    -> Result<Vec<ExecutionEvent>>;

    /// The current checkpoint of a run.
    async fn checkpoint(&self, run: &RunId) -> Result<Option<Checkpoint>>;

    /// The kept checkpoints of a run, newest first: three at most.
    async fn checkpoints(&self, run: &RunId) -> Result<Vec<Checkpoint>>;

    /// Makes the kept checkpoint of this sequence the current one; refused while the run executes.
    async fn rewind_checkpoint(&self, run: &RunId, seq: u64, by: &str) -> Result<Rewound>;

    /// Jobs in quarantine, by name.
    async fn quarantined(&self) -> Result<Vec<(JobName, Hold)>>;

    /// Removes a run's checkpoints; refused while it executes.
    async fn clear_checkpoint(&self, run: &RunId, by: &str) -> Result<Cleared>;

    /// What about the store's own settings or state endangers what it promises, in one sentence each.
    async fn warnings(&self) -> Result<Vec<String>>;

    /// How many of what.
    async fn counts(&self) -> Result<Counts>;
}
