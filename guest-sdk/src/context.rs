//! What one attempt is told about itself, and its way to the host.

use std::marker::PhantomData;

use crate::host;
use crate::{Checkpointer, Job};

/// Why an attempt happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The schedule said so.
    Scheduled,
    /// A person or a program asked for it.
    Manual,
    /// An earlier attempt of this run failed and the job allows another.
    Retry,
    /// An earlier attempt was interrupted (its pod died, drained or yielded).
    Resume,
    /// The nominal time was missed and the misfire policy caught it up.
    CatchUp,
    /// An operator asked for a nominal time of the past.
    Backfill,
}

/// Why the host asks a running plugin to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The pod shuts down: save a checkpoint and yield.
    Draining,
    /// Somebody cancelled the run: clean up and return [`crate::Failure::Cancelled`].
    Cancelled,
    /// The attempt's time is nearly over: save a checkpoint and yield.
    TimeOutNear,
    /// A newer version of the plugin is ready: save a checkpoint and yield.
    Reload,
    /// Another attempt may own the run by now: stop at once.
    LockLost,
}

/// What one attempt is told about itself. Times are RFC 3339 text in UTC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Name of the job.
    pub job: String,
    /// Id of the run, the same for all its attempts.
    pub run_id: String,
    /// Number of this attempt, from 1.
    pub attempt: u32,
    /// The time that this run stands for.
    pub nominal_time: String,
    /// When this attempt started.
    pub actual_time: String,
    /// Nominal time of the latest earlier run that succeeded.
    pub previous_success: Option<String>,
    /// When the host will interrupt this attempt.
    pub deadline: Option<String>,
    /// Why this attempt happens.
    pub reason: Reason,
    /// The parameters as JSON text.
    pub parameters: String,
    /// 20 decimal digits, larger for a later attempt.
    pub fence: String,
}

/// One attempt of a [`Job`], as the job sees it.
#[derive(Debug)]
pub struct Context<J> {
    call: Call,
    job: PhantomData<fn() -> J>,
}

impl<J: Job> Context<J> {
    pub(crate) fn new(call: Call) -> Self {
        Self {
            call,
            job: PhantomData,
        }
    }

    /// Everything that the host said about this attempt.
    pub fn call(&self) -> &Call {
        &self.call
    }

    /// Name of the job.
    pub fn job(&self) -> &str {
        &self.call.job
    }

    /// Id of the run, the same for all its attempts: the key to make effects idempotent with.
    pub fn run_id(&self) -> &str {
        &self.call.run_id
    }

    /// Number of this attempt, from 1.
    pub fn attempt(&self) -> u32 {
        self.call.attempt
    }

    /// The time that this run stands for, as RFC 3339 text in UTC.
    pub fn nominal_time(&self) -> &str {
        &self.call.nominal_time
    }

    /// 20 decimal digits, larger for a later attempt also as text: a target that remembers the
    /// largest one seen can refuse a straggler.
    pub fn fence(&self) -> &str {
        &self.call.fence
    }

    /// The job's way to its checkpoint.
    pub fn checkpointer(&self) -> Checkpointer<J::Checkpoint> {
        const {
            assert!(
                J::CHECKPOINT_SCHEMA > 0,
                "a job that saves checkpoints needs `const CHECKPOINT_SCHEMA: u32` of at least 1"
            );
        }
        Checkpointer::new(J::CHECKPOINT_SCHEMA)
    }

    /// The reason to stop, if there is one. Costs next to nothing: ask once per batch, and answer
    /// with [`Checkpointer::stop`].
    pub fn should_stop(&self) -> Option<StopReason> {
        host::with(|host| host.stop_reason())
    }

    /// Reports how far the run has come; `total` is none while it is unknown.
    pub fn progress(&self, done: f64, total: Option<f64>, message: &str) {
        host::with(|host| host.progress(done, total, message));
    }
}
