//! Runs and attempts: their states, how they end, and the record of them.

use serde::{Deserialize, Serialize};

use crate::ids::{Digest, Fence, JobName, PodAddress, RunId};
use crate::task::Reason;
use crate::time::Timestamp;

/// Where a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunState {
    /// Waits for its time, a retry, a continuation or a pod.
    Delayed,
    /// Waits for the job's active run to end.
    Parked,
    /// In a pod's queue.
    Scheduled,
    /// An attempt executes.
    Running,
    /// Over: everything asked for was done.
    Succeeded,
    /// Over: the guest failed and no attempt is left.
    Failed,
    /// Over: the last attempt ran out of time.
    TimedOut,
    /// Over: somebody cancelled it.
    Cancelled,
    /// Over: the platform lost it.
    Lost,
    /// Over without an attempt.
    Skipped,
}

impl RunState {
    /// Whether the run is over. An ended run never runs again.
    #[must_use]
    pub fn is_ended(self) -> bool {
        !matches!(
            self,
            RunState::Delayed | RunState::Parked | RunState::Scheduled | RunState::Running
        )
    }

    /// The word, as in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            RunState::Delayed => "delayed",
            RunState::Parked => "parked",
            RunState::Scheduled => "scheduled",
            RunState::Running => "running",
            RunState::Succeeded => "succeeded",
            RunState::Failed => "failed",
            RunState::TimedOut => "timedout",
            RunState::Cancelled => "cancelled",
            RunState::Lost => "lost",
            RunState::Skipped => "skipped",
        }
    }
}

/// How one attempt ended.
///
/// `Failed` is the guest's word or its trap; `Lost` and `Interrupted` are the platform's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "lowercase")]
pub enum Outcome {
    /// The guest did everything.
    Succeeded {
        /// What it says of it.
        summary: String,
    },
    /// The guest failed.
    Failed {
        /// What went wrong.
        message: String,
        /// Another attempt may help.
        retry: bool,
        /// The guest asks for at least this wait, in milliseconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after_ms: Option<u32>,
    },
    /// The attempt ran out of time.
    TimedOut {
        /// The limit that was hit, for people.
        message: String,
    },
    /// The run was cancelled.
    Cancelled {
        /// By whom or what.
        by: String,
    },
    /// The guest saved a checkpoint and asks to be continued.
    Yielded,
    /// The platform ended the attempt: its pod died, was drained, lost the lock, or cannot run it.
    Lost {
        /// Why.
        reason: String,
    },
}

impl Outcome {
    /// The word, as in metrics and the execution log.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Outcome::Succeeded { .. } => "succeeded",
            Outcome::Failed { .. } => "failed",
            Outcome::TimedOut { .. } => "timedout",
            Outcome::Cancelled { .. } => "cancelled",
            Outcome::Yielded => "yielded",
            Outcome::Lost { .. } => "lost",
        }
    }

    /// What a person reads first.
    #[must_use]
    pub fn message(&self) -> &str {
        match self {
            Outcome::Succeeded { summary } => summary,
            Outcome::Failed { message, .. } | Outcome::TimedOut { message } => message,
            Outcome::Cancelled { by } => by,
            Outcome::Yielded => "",
            Outcome::Lost { reason } => reason,
        }
    }
}

/// One attempt in the record of its run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptRecord {
    /// Its number, from 1.
    pub attempt: u32,
    /// Where it executed.
    pub pod: PodAddress,
    /// The number its writes carried.
    pub fence: Fence,
    /// Why it happened.
    pub reason: Reason,
    /// The plugin version it ran, once known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// When it was claimed, by the store's clock.
    pub claimed_at: Timestamp,
    /// When it ended, by the store's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// Sequence of the checkpoint it began from; none: from nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumed_from: Option<u64>,
    /// How it ended; none while it executes.
    #[serde(flatten, default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
}

/// Everything kept about a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRecord {
    /// The run.
    pub run: RunId,
    /// Its job.
    pub job: JobName,
    /// The time it stands for.
    pub nominal: Timestamp,
    /// Why it exists.
    pub reason: Reason,
    /// Where it is.
    pub state: RunState,
    /// When the record was made, by the store's clock.
    pub created_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// Why it is where it is, for people: the last failure, what it waits for, why it was skipped.
    pub why: Option<String>,
    /// How often an attempt of it was lost with its pod, in the current window.
    pub recoveries: u32,
    /// The ended run that an operator made this one of.
    pub of: Option<RunId>,
    /// Its attempts, in order.
    pub attempts: Vec<AttemptRecord>,
    /// Latest progress report, if the run made one.
    pub progress: Option<Progress>,
    /// Parameters as JSON text.
    pub params: String,
}

/// How far a run has come, as its guest said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Units done.
    pub done: f64,
    /// Units in all, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<f64>,
    /// For people.
    #[serde(default)]
    pub message: String,
}

impl Eq for Progress {}

/// A saved checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The guest's bytes.
    pub data: Vec<u8>,
    /// Number of their format.
    pub schema: u32,
    /// Plugin version that wrote them.
    pub digest: Digest,
    /// Attempt that wrote them.
    pub attempt: u32,
    /// Fence of that attempt.
    pub fence: Fence,
    /// Counts up over the attempts of the run, from 1.
    pub seq: u64,
    /// When the store took it.
    pub saved_at: Timestamp,
}
