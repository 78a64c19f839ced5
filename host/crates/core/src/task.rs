//! The message that asks a pod to make one attempt of a run.

use serde::{Deserialize, Serialize};

use crate::ids::{Digest, JobName, PodAddress, RunId};
use crate::time::Timestamp;

/// The largest task, as JSON, that a store takes, in bytes.
pub const TASK_MAX_BYTES: usize = 64 << 10;

/// Why an attempt happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// The schedule said so.
    Scheduled,
    /// A person or a program asked for it.
    Manual,
    /// An earlier attempt failed.
    Retry,
    /// An earlier attempt was interrupted or yielded.
    Resume,
    /// The misfire policy caught up a missed firing.
    CatchUp,
    /// An operator asked for a nominal time of the past.
    Backfill,
}

impl Reason {
    /// Only a cron firing that has not begun may be skipped for an overlap; whatever a person or a
    /// policy asked for waits instead.
    #[must_use]
    pub fn may_be_skipped(self) -> bool {
        self == Reason::Scheduled
    }
}

/// The facts of a run that one attempt needs.
///
/// Grants and limits are not among them: they come from the executing pod's own job file.
/// The store's scripts read and write the fields in place and treat `params` as opaque text.
/// Optional fields are absent rather than null, and a list is absent rather than empty, since Lua's
/// JSON cannot tell an empty list from an empty object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// The run.
    pub run: RunId,
    /// Its job.
    pub job: JobName,
    /// The time it stands for; for a manual run the time it was asked for.
    pub nominal: Timestamp,
    /// Why the next attempt happens.
    pub reason: Reason,
    /// Number of the next attempt, from 1.
    pub attempt: u32,
    /// Failed attempts so far.
    #[serde(default)]
    pub failures: u32,
    /// Yields in a row without a newer checkpoint.
    #[serde(default)]
    pub idle_yields: u32,
    /// Parameters as JSON text.
    pub params: String,
    /// The only plugin version that may run it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// Pods that handed it back and must not get it again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub avoid: Vec<PodAddress>,
    /// The ended run that an operator made this one of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<RunId>,
    /// The queue it was last pushed to, by the key's name: what an operator looks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subscriber_queue: Option<String>,
    /// W3C trace context of the firing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
}

impl Task {
    /// The first attempt of a firing.
    #[must_use]
    pub fn first(run: RunId, nominal: Timestamp, reason: Reason, params: String) -> Task {
        let job = run.job();
        Task {
            run,
            job,
            nominal,
            reason,
            attempt: 1,
            failures: 0,
            idle_yields: 0,
            params,
            digest: None,
            avoid: Vec::new(),
            of: None,
            subscriber_queue: None,
            trace: None,
        }
    }

    /// Whether some attempt of the run has begun.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.attempt > 1
    }
}
