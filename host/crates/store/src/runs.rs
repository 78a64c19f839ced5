//! What an executing attempt writes. Every write carries its fence and may be refused.

use std::time::Duration;

use async_trait::async_trait;
use wasmcron_core::ids::{Digest, Fence, JobName, PodRef, RunId};
use wasmcron_core::run::{Outcome, Progress, RunState};
use wasmcron_core::task::Reason;

use crate::error::Result;

/// Attempts in one `extend` call at most.
pub const EXTEND_MAX: usize = 500;

/// An attempt by the names a write needs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AttemptRef {
    /// The job, whose lock it holds.
    pub job: JobName,
    /// The run.
    pub run: RunId,
    /// Its fence.
    pub fence: Fence,
}

/// Answer to `extend` for one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Extension {
    /// The lock runs for its full length again.
    Extended,
    /// Somebody else may execute the run: stop at once.
    Lost,
    /// The attempt is past its end: stop at once.
    Expired,
    /// The lock was extended, and somebody asks for the end of the run.
    Cancel {
        /// Who.
        by: String,
    },
}

/// A checkpoint to save.
#[derive(Clone, Debug, PartialEq)]
pub struct SaveCheckpoint {
    /// The attempt.
    pub attempt: AttemptRef,
    /// Its number.
    pub number: u32,
    /// One more than the last acknowledged sequence of the run.
    pub seq: u64,
    /// Number of the bytes' format.
    pub schema: u32,
    /// Version of the plugin that wrote them.
    pub digest: Digest,
    /// The bytes.
    pub data: Vec<u8>,
    /// The limit in bytes.
    pub limit: u32,
}

/// Answer to `save_checkpoint`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saved {
    /// It is in the store, as this sequence.
    Saved(u64),
    /// The attempt owns the run no more.
    Fenced,
    /// Over the limit, in bytes.
    TooLarge(u32),
}

/// Answer to a fenced write that returns nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// Done.
    Written,
    /// The attempt owns the run no more.
    Fenced,
    /// Over the limit, in bytes.
    TooLarge(u32),
}

/// A write to the job's state: a value, or none to remove the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateWrite {
    /// 1 to 128 bytes.
    pub key: String,
    /// The value.
    pub value: Option<Vec<u8>>,
}

/// What comes after an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// The run is over.
    End {
        /// How.
        state: RunState,
        /// Why, for people.
        why: Option<String>,
    },
    /// The run goes on later.
    Again {
        /// Why the next attempt happens.
        reason: Reason,
        /// Due after this long.
        due_in: Duration,
        /// Failed attempts so far, this one included.
        failures: u32,
        /// Yields in a row without a newer checkpoint, this one included.
        idle_yields: u32,
        /// Why it waits, for people.
        why: String,
    },
}

/// The end of an attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct Finish {
    /// The attempt.
    pub attempt: AttemptRef,
    /// Where it executed.
    pub me: PodRef,
    /// How it ended.
    pub outcome: Outcome,
    /// What comes after it.
    pub next: Next,
    /// Version of the plugin it ran, if it got so far.
    pub digest: Option<Digest>,
    /// State writes that take effect with success.
    pub state: Vec<StateWrite>,
    /// Limit of the job's state, in bytes.
    pub state_limit: u32,
    /// The limits of what is kept.
    pub retention: Retention,
}

/// What is kept of ended runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// How long the record, log and failed checkpoint of an ended run are kept.
    pub age: Duration,
    /// How many runs a job's list keeps.
    pub runs: u32,
}

/// Answer to `finish`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finished {
    /// Done.
    Finished,
    /// This attempt ended before, by the same caller.
    AlreadyFinished,
    /// The run was taken over: the outcome does not count.
    Fenced,
    /// The state writes exceed the limit, in bytes: nothing was changed.
    TooLarge(u32),
}

/// Answer to `cancel`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// The executing pod learns of it with its next `extend`; it was woken.
    Requested,
    /// It was not executing, so it ended at once.
    Ended,
    /// It had ended before.
    AlreadyEnded,
    /// No such run.
    Unknown,
}

/// One line of a run's log.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LogLine {
    /// When the host took it, milliseconds since the epoch by the pod's clock.
    pub at: wasmcron_core::time::Timestamp,
    /// Number of the attempt that wrote it.
    pub attempt: u32,
    /// `trace`, `debug`, `info`, `warn`, `error`, `stdout` or `stderr`.
    pub level: String,
    /// The text, without control characters.
    pub message: String,
    /// Fields, in the guest's order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<(String, String)>,
}

/// What executing attempts write.
#[async_trait]
pub trait Runs: Send + Sync {
    /// Extends the locks of a pod's attempts, [`EXTEND_MAX`] at most; answers in order. All are
    /// `Lost` for a superseded session.
    async fn extend(
        &self,
        me: &PodRef,
        attempts: &[AttemptRef],
        lock_ttl: Duration,
    ) -> Result<Vec<Extension>>;

    /// Saves a checkpoint: durable and seen by every later attempt once it answers `Saved`. The same
    /// sequence by the same fence is `Saved` again. A few earlier ones are kept.
    async fn save_checkpoint(&self, save: &SaveCheckpoint) -> Result<Saved>;

    /// The job's state value of a key.
    async fn get_state(&self, job: &JobName, key: &str) -> Result<Option<Vec<u8>>>;

    /// Writes to the job's state now.
    async fn set_state(
        &self,
        attempt: &AttemptRef,
        write: &StateWrite,
        limit: u32,
    ) -> Result<Written>;

    /// Appends lines to the run's log; the oldest go once there are more than `max_lines`.
    async fn append_log(
        &self,
        attempt: &AttemptRef,
        lines: &[LogLine],
        max_lines: u32,
    ) -> Result<Written>;

    /// Keeps the newest progress report.
    async fn report_progress(&self, attempt: &AttemptRef, progress: &Progress) -> Result<Written>;

    /// Ends an attempt: register, lock, record, execution log, statistics, state, checkpoint and what
    /// comes next in one step. Counts until somebody took the run over, whatever became of the lock.
    async fn finish(&self, finish: &Finish) -> Result<Finished>;

    /// Asks for the end of a run; ends it at once if it does not execute.
    async fn cancel(&self, run: &RunId, by: &str, retention: Retention) -> Result<Cancelled>;
}
