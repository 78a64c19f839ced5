//! How a task gets from a pod's queue into execution.

use std::time::Duration;

use async_trait::async_trait;
use wasmcron_core::ids::{Delivery, Digest, Fence, PodRef, RunId, Token};
use wasmcron_core::run::Checkpoint;
use wasmcron_core::task::Task;
use wasmcron_core::time::Timestamp;

use crate::error::Result;

/// An entry taken from a queue. It is only a hint: what it means says the register.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Taken {
    /// The run.
    pub run: RunId,
    /// The delivery.
    pub delivery: Delivery,
}

/// What identifies a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The claiming pod.
    pub me: PodRef,
    /// What it took.
    pub taken: Taken,
    /// Random for each take, the same for each repeat of this claim.
    pub token: Token,
    /// The plugin version that the caller is about to run, for the record.
    pub digest: Option<Digest>,
    /// Length of the job's lock.
    pub lock_ttl: Duration,
    /// After this long the store gives the attempt up whatever its pod says: its time-out and a grace.
    pub ends_in: Duration,
}

/// Answer to `claim`.
#[derive(Clone, Debug, PartialEq)]
pub enum Claimed {
    /// The attempt is the caller's until its lock runs out.
    Claimed(Box<Attempt>),
    /// Another run of the job has begun and not ended; nothing changed.
    Overlap {
        /// That run.
        holder: RunId,
    },
    /// The entry means nothing any more.
    Stale,
    /// A later session of the pod exists.
    Superseded,
}

/// An attempt that may execute.
#[derive(Clone, Debug, PartialEq)]
pub struct Attempt {
    /// What to do; `task.attempt` is its number.
    pub task: Task,
    /// The number every write of it carries.
    pub fence: Fence,
    /// When it was claimed, by the store's clock.
    pub claimed_at: Timestamp,
    /// When the run's first attempt was claimed, by the store's clock.
    pub began_at: Timestamp,
    /// The last acknowledged checkpoint of the run.
    pub checkpoint: Option<Checkpoint>,
    /// Nominal time of the job's latest run that succeeded.
    pub previous_success: Option<Timestamp>,
}

/// Answer to `skip`, `hand_back`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// Done.
    Moved,
    /// The entry is not as the caller saw it; nothing changed.
    Changed,
    /// A later session of the pod exists.
    Superseded,
}

/// Answer to `park`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parked {
    /// It waits for the job's active run; if that ended meanwhile it is due now.
    Parked,
    /// As many as may wait already do; skip it.
    Full,
    /// The entry is not as the caller saw it; nothing changed.
    Changed,
}

/// By what right a pod gives a task back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// It has the delivery and did not claim it.
    Delivery(Delivery),
    /// It executes it. Counted towards the recoveries of the run if `counted`.
    Fence {
        /// The attempt's fence.
        fence: Fence,
        /// Whether it is the attempt of a dead session.
        counted: bool,
    },
}

/// What a pod does with a task it cannot run now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandBack {
    /// The pod.
    pub me: PodRef,
    /// The run.
    pub run: RunId,
    /// By what right.
    pub hold: Hold,
    /// Why, for people.
    pub why: String,
    /// The pod must not get it again.
    pub avoid: bool,
    /// Due after this long.
    pub due_in: Duration,
}

/// Blocks for tasks on a connection of its own.
#[async_trait]
pub trait Consumer: Send {
    /// Waits up to `wait` for an entry and takes up to `max`. An entry whose answer is lost has been
    /// taken all the same: read [`Queue::claiming`] after every error.
    async fn take(&mut self, wait: Duration, max: usize) -> Result<Vec<Taken>>;
}

/// Taking, claiming and giving back.
#[async_trait]
pub trait Queue: Send + Sync {
    /// A consumer of the pod's own queue. Connects lazily, and again after an error.
    fn consumer(&self, me: &PodRef) -> Box<dyn Consumer>;

    /// What the pod took and did not claim, 1,000 at most.
    async fn claiming(&self, me: &PodRef) -> Result<Vec<Taken>>;

    /// Makes an entry an attempt: register, lock, `active` and fence in one step. A repeat with the
    /// same token gets the same answer and the lock's full length anew.
    async fn claim(&self, claim: &Claim) -> Result<Claimed>;

    /// Ends a cron firing without an attempt. A run that has begun is never skipped.
    async fn skip(&self, me: &PodRef, taken: &Taken, why: &str) -> Result<Moved>;

    /// Lets an unclaimed task wait for the end of the job's active run; at most `queue_max` wait,
    /// not counting those that may not be skipped.
    async fn park(&self, me: &PodRef, taken: &Taken, queue_max: u32) -> Result<Parked>;

    /// Gives a task back; it is due again at once or after a while, for another pod if `avoid`.
    async fn hand_back(&self, back: &HandBack) -> Result<Moved>;
}
