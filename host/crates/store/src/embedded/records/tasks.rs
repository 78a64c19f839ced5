//! Tasks, and the registers they stand in.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use wasmcron_core::ids::{Delivery, Fence, PodAddress, PodRef, RunId, SessionId, Token};
use wasmcron_core::run::Progress;
use wasmcron_core::task::{Reason, Task};
use wasmcron_core::time::Timestamp;

use super::shared;
pub use crate::base::Base;

/// A task: what never changes, and what does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskRow {
    /// What never changes.
    #[serde(with = "shared")]
    pub base: Arc<Base>,
    /// Number of the next attempt.
    pub attempt: u32,
    /// Failed attempts so far.
    pub failures: u32,
    /// Yields in a row without a newer checkpoint.
    pub idle_yields: u32,
    /// Why the next attempt happens.
    pub reason: Reason,
    /// Pods that must not get it again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub avoid: Vec<PodAddress>,
}

impl From<Task> for TaskRow {
    fn from(task: Task) -> TaskRow {
        TaskRow {
            base: Arc::new(Base::of(&task)),
            attempt: task.attempt,
            failures: task.failures,
            idle_yields: task.idle_yields,
            reason: task.reason,
            avoid: task.avoid,
        }
    }
}

impl TaskRow {
    /// The task as pods get it, with the queue it was last pushed to.
    #[must_use]
    pub fn task(&self, queue: Option<&PodAddress>) -> Task {
        let base = &*self.base;
        Task {
            run: base.run.clone(),
            job: base.run.job(),
            nominal: base.nominal,
            reason: self.reason,
            attempt: self.attempt,
            failures: self.failures,
            idle_yields: self.idle_yields,
            params: base.params.clone(),
            digest: base.digest.clone(),
            avoid: self.avoid.clone(),
            of: base.of.clone(),
            subscriber_queue: queue.map(|pod| format!("tasks:{pod}")),
            trace: base.trace.clone(),
        }
    }
}

/// A run in a pod's queue: the authority on what queue entries mean.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scheduled {
    /// The only delivery that counts.
    pub delivery: Delivery,
    /// The pod.
    pub pod: PodAddress,
    /// Its session when it was picked.
    pub session: SessionId,
    /// When it was published.
    pub at: Timestamp,
    /// What to do.
    pub task: TaskRow,
}

/// A run that executes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Running {
    /// The number its writes carry.
    pub fence: Fence,
    /// Where.
    pub pod: PodAddress,
    /// In which session.
    pub session: SessionId,
    /// When it was claimed.
    pub claimed_at: Timestamp,
    /// When the store gives it up whatever its pod says.
    pub ends_by: Timestamp,
    /// The take it was claimed with.
    pub token: Token,
    /// Who asked for its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel: Option<String>,
    /// Latest progress report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// What it does.
    pub task: TaskRow,
}

/// A run that waits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Delayed {
    /// When it is due; none while it is parked.
    pub due: Option<Timestamp>,
    /// Why it waits.
    pub why: Cow<'static, str>,
    /// What to do.
    pub task: TaskRow,
}

/// A delayed run at its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Due {}

/// A run behind its job's active one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parked {
    /// The run.
    pub run: RunId,
    /// It may be skipped, so it counts towards those that may wait.
    pub skippable: bool,
}

/// The run of a job that has begun and not ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Active(
    /// It.
    pub RunId,
);

/// A job's lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lock {
    /// Who executes.
    pub pod: PodRef,
    /// Which run.
    pub run: RunId,
    /// By which attempt.
    pub fence: Fence,
    /// How long it was asked for, in milliseconds.
    pub ttl: i64,
    /// When it ends.
    pub expires_at: Timestamp,
}

/// The last number given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Counter(
    /// It.
    pub u64,
);
