//! What the store shows: the facts that decisions are made from.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::{
    DefinitionHash, Delivery, Digest, Fence, JobName, PluginName, PodAddress, PodRef, RunId,
    SessionId, Term,
};
use crate::job::StoredDefinition;
use crate::run::Progress;
use crate::task::Task;
use crate::time::Timestamp;

/// Who leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    /// The leading pod and session.
    pub pod: PodRef,
    /// The number of its period.
    pub term: Term,
    /// When it began.
    pub since: Timestamp,
    /// When it ends unless renewed.
    pub expires_in: Duration,
}

/// What a pod says of itself and seldom changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodReport {
    /// Version of the host.
    pub version: String,
    /// When this session started, by the store's clock.
    pub started: Timestamp,
    /// Attempts it may execute at once.
    pub capacity: u32,
    /// Labels that jobs may ask for.
    pub labels: BTreeMap<String, String>,
    /// Plugins it can run, by name, with the version that is active.
    pub plugins: BTreeMap<PluginName, Digest>,
    /// Job definitions it has read.
    pub jobs: BTreeMap<JobName, JobReport>,
    /// Jobs whose latest file it refused, with what is wrong with it. It may serve an earlier version.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub refused: BTreeMap<JobName, String>,
}

/// What a pod says of itself with every heartbeat.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodLoad {
    /// Attempts it executes.
    pub running: u32,
    /// The run that has, or waits to have, the pod to itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclusive: Option<RunId>,
    /// It leaves and takes nothing more.
    pub draining: bool,
    /// When it last asked for a task and got an answer, by the store's clock.
    pub last_take: Timestamp,
}

/// One job definition as a pod reports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobReport {
    /// Hash of the definition.
    pub hash: DefinitionHash,
    /// Since when this session has had it, by the store's clock.
    pub since: Timestamp,
}

/// A pod as the store shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Pod {
    /// Its address.
    pub address: PodAddress,
    /// Its session; none if only its queue or a heartbeat is left of it.
    pub session: Option<SessionId>,
    /// Its last heartbeat, by the store's clock; none once it left.
    pub heartbeat: Option<Timestamp>,
    /// What it said of itself; none once that expired. Shared, and the same object as long as the pod
    /// says the same, where the store can tell.
    pub report: Option<Arc<PodReport>>,
    /// What it said with its last heartbeat.
    pub load: PodLoad,
    /// Entries in its queue and among those it has taken without a claim.
    pub queued: u32,
}

impl Pod {
    /// Whether its heartbeat is recent. A heartbeat from the future counts as half a window old, so
    /// that a store clock that stepped back keeps nobody alive for long.
    #[must_use]
    pub fn is_active(&self, now: Timestamp, window: Duration) -> bool {
        let age = |beat: Timestamp| {
            if beat > now {
                window / 2
            } else {
                now.since(beat)
            }
        };
        self.session.is_some() && self.heartbeat.is_some_and(|beat| age(beat) < window)
    }
}

/// A job as the store shows it: what the scheduler decides from.
#[derive(Clone, Debug, PartialEq)]
pub struct JobView {
    /// Its name.
    pub job: JobName,
    /// The stored definition; it rules even where pods disagree.
    pub stored: StoredDefinition,
    /// The last nominal time that has its answer.
    pub cursor: Timestamp,
    /// An operator stopped its firings.
    pub paused: Option<Hold>,
    /// The platform stopped its firings.
    pub quarantined: Option<Hold>,
    /// The run that has begun and not ended.
    pub active: Option<RunId>,
    /// Why a due firing waits.
    pub waiting: Option<Waiting>,
    /// Runs that succeeded, and their average duration in milliseconds.
    pub successes: Successes,
}

/// What the statistics say of a job's successful runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Successes {
    /// How many.
    pub count: u64,
    /// Their average duration.
    pub average: Duration,
}

/// A decision that stops firings, with who made it, when and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// Who.
    pub by: String,
    /// When, by the store's clock.
    pub at: Timestamp,
    /// Why.
    pub why: String,
    /// For a quarantine: the plugin version that was taken for the cause. Another one ends it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
}

/// Why a due firing waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// Since when, by the store's clock.
    pub since: Timestamp,
    /// In one sentence.
    pub why: String,
}

/// A run in a pod's queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScheduledEntry {
    /// What to do.
    pub task: Task,
    /// The pod that shall do it.
    pub pod: PodAddress,
    /// The session of that pod when it was picked.
    pub session: SessionId,
    /// The only delivery that counts.
    pub delivery: Delivery,
    /// When it was published, by the store's clock.
    pub published_at: Timestamp,
}

/// A run that executes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunningEntry {
    /// What it does; `attempt` is the number of the executing one.
    pub task: Task,
    /// Where.
    pub pod: PodAddress,
    /// In which session.
    pub session: SessionId,
    /// The number its writes carry.
    pub fence: Fence,
    /// When it was claimed, by the store's clock.
    pub claimed_at: Timestamp,
    /// When the store gives it up whatever its pod says.
    pub ends_by: Timestamp,
    /// Somebody asked for its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel: Option<String>,
    /// Latest progress report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
}

/// A run that waits for its time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DelayedEntry {
    /// What to do.
    pub task: Task,
    /// When it is due; none while it is parked behind the job's active run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<Timestamp>,
    /// Why it waits.
    pub why: String,
}

/// Who holds a job's lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockHolder {
    /// The executing pod and session.
    pub pod: PodRef,
    /// The run.
    pub run: RunId,
    /// The fence of the attempt.
    pub fence: Fence,
    /// Time left.
    pub expires_in: Duration,
}

/// Nominal times that were decided in bulk without a run each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// The first of them (inclusive).
    pub from: Timestamp,
    /// The last of them (inclusive); the cursor moves here.
    pub to: Timestamp,
    /// How many nominal times lie in between, both ends counted.
    pub count: u64,
    /// Why: `misfire`, `coalesced`, `paused`, `disabled`, `schedule changed`…
    pub why: String,
}
