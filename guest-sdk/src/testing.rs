//! Runs a [`crate::Job`] natively: a fake host that keeps checkpoints in memory, answers HTTP from a
//! script, and stops or kills an attempt where a test wants it.
//!
//! ```
//! # use wasmcron_guest::{Context, Failure, Job, Outcome};
//! # #[derive(serde::Deserialize)] struct Params { last: u32 }
//! # struct Count;
//! # impl Job for Count {
//! #     type Params = Params;
//! #     type Checkpoint = u32;
//! #     const CHECKPOINT_SCHEMA: u32 = 1;
//! #     fn run(ctx: &mut Context<Self>, params: Params) -> Result<Outcome, Failure> {
//! #         let mut cp = ctx.checkpointer().every(1);
//! #         let mut n = cp.load()?.unwrap_or(0);
//! #         while n < params.last { n += 1; cp.record(&n)?; }
//! #         Ok(Outcome::done(format!("counted to {n}")))
//! #     }
//! # }
//! use wasmcron_guest::testing::{Ended, Fault, Harness};
//!
//! let mut harness = Harness::<Count>::new().params(&serde_json::json!({ "last": 5 }));
//! assert_eq!(harness.attempt_with(Fault::KillAfterSaves(3)).ended, Ended::Killed);
//! assert_eq!(harness.checkpoint(), Some(3));
//! assert_eq!(harness.attempt().ended, Ended::Done("counted to 5".to_owned()));
//! ```

mod fake_host;
mod harness;

use std::rc::Rc;
use std::time::Duration;

use crate::context::StopReason;
use crate::log::Level;
use crate::{Failure, Host, Outcome, SaveError};

pub use harness::{Harness, kill_everywhere};

/// Runs `body` with `host` as the host of this thread, for a test that brings its own.
pub fn with_host<R>(host: Rc<dyn Host>, body: impl FnOnce() -> R) -> R {
    crate::host::native::with_host(host, body)
}

/// What goes wrong in one attempt.
///
/// Being killed is what SIGKILL does to a pod: the call in question took effect, its answer never
/// comes, and what was offered but not saved is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Killed after the host served this many calls of any kind.
    KillAfterCalls(u32),
    /// Killed after this many checkpoints were saved.
    KillAfterSaves(u32),
    /// Killed after this many HTTP requests were answered.
    KillAfterRequests(u32),
    /// The host asks to stop once this many checkpoints were saved; 0 asks from the start.
    StopAfterSaves(u32, StopReason),
    /// The host asks to stop once this many HTTP requests were answered.
    StopAfterRequests(u32, StopReason),
    /// Every save is refused.
    RefuseSaves(SaveError),
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The run is complete; the text is its summary.
    Done(String),
    /// The attempt yielded.
    Yielded,
    /// It failed and may be tried again.
    Retry {
        /// What went wrong.
        message: String,
        /// The least wait that the job asked for.
        after: Option<Duration>,
    },
    /// It failed for good.
    Fatal(String),
    /// It stopped since the run was cancelled.
    Cancelled,
    /// The job panicked with this text.
    Panicked(String),
    /// A [`Fault`] killed it.
    Killed,
}

impl From<Result<Outcome, Failure>> for Ended {
    fn from(result: Result<Outcome, Failure>) -> Self {
        match result {
            Ok(Outcome::Done(summary)) => Self::Done(summary),
            Ok(Outcome::Yielded) => Self::Yielded,
            Err(Failure::Retry { message, after }) => Self::Retry { message, after },
            Err(Failure::Fatal(message)) => Self::Fatal(message),
            Err(Failure::Cancelled) => Self::Cancelled,
        }
    }
}

/// What one attempt did.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Attempt {
    /// How it ended.
    pub ended: Ended,
    /// Its number, from 1.
    pub number: u32,
    /// Calls of any kind that the host served.
    pub calls: u32,
    /// Checkpoints saved while it ran; offers that the host saved at its end do not count.
    pub saves: u32,
    /// HTTP requests answered.
    pub requests: u32,
}

/// A captured log line.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogLine {
    /// How much it matters.
    pub level: Level,
    /// Its text.
    pub message: String,
    /// Its fields.
    pub fields: Vec<(String, String)>,
}

/// A captured progress report.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ProgressReport {
    /// How much is done.
    pub done: f64,
    /// Of how much, if known.
    pub total: Option<f64>,
    /// Its text.
    pub message: String,
}
