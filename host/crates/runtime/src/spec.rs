//! What one attempt is given: the call, its limits, its grants and the checkpoint to resume from.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::control::AttemptControl;
use crate::grants::HttpGrant;

/// Everything [`Runtime::execute`](crate::Runtime::execute) needs for one attempt.
#[derive(Clone, Debug)]
pub struct AttemptSpec {
    /// What the guest is told about itself.
    pub call: Call,
    /// What the guest may use up.
    pub limits: Limits,
    /// What the guest may reach. Nothing by default.
    pub grants: Arc<Grants>,
    /// The checkpoint that `checkpoint.load` answers until this attempt saves one of its own.
    pub checkpoint: Option<SavedCheckpoint>,
    /// The caller's hold on the attempt: stop, interrupt, lease.
    pub control: AttemptControl,
}

/// The `call` record of the WIT contract, field by field.
///
/// Times are RFC 3339 text in UTC and are handed on unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Name of the job.
    pub job: String,
    /// Id of the run.
    pub run_id: String,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// The time the run stands for.
    pub nominal_time: String,
    /// When the attempt starts.
    pub actual_time: String,
    /// Nominal time of the latest earlier run that succeeded.
    pub previous_success: Option<String>,
    /// When the attempt will be interrupted. For the guest's information only:
    /// what ends it is [`Limits::time`].
    pub deadline: Option<String>,
    /// Why the attempt happens.
    pub reason: CallReason,
    /// The job's parameters as JSON text.
    pub parameters: String,
    /// The attempt's fence; the guest sees it as 20 decimal digits.
    pub fence: u64,
}

/// Why an attempt happens, as the guest is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallReason {
    /// The schedule said so.
    Scheduled,
    /// Somebody asked for it.
    Manual,
    /// An earlier attempt failed.
    Retry,
    /// An earlier attempt was interrupted or yielded.
    Resume,
    /// A missed nominal time is caught up.
    CatchUp,
    /// A nominal time of the past was asked for.
    Backfill,
}

/// A checkpoint as an earlier attempt saved it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedCheckpoint {
    /// Number of the format.
    pub schema: u32,
    /// The bytes; empty bytes are a checkpoint too.
    pub data: Bytes,
    /// Number of the attempt that saved it.
    pub attempt: u32,
}

/// What one attempt may use up. The name in brackets is the key that reports and messages name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// `timeout`: wall time of the attempt; `None` for no limit.
    pub time: Option<Duration>,
    /// How long before [`Limits::time`] is over the guest is told `time-out-near`; `None` for a
    /// tenth of the time, at least 100 ms and at most 10 s.
    pub time_notice: Option<Duration>,
    /// `limits.memory`, in bytes: all linear memories and tables of the guest together with what the
    /// host keeps for it (offered checkpoint, pending state, log tails).
    pub memory: u64,
    /// `limits.checkpoint`, in bytes, for one checkpoint.
    pub checkpoint: u32,
    /// `limits.state`, in bytes: the pending on-success writes of this attempt, keys and values
    /// together. The store checks the job's total.
    pub state: u32,
    /// `limits.log`, in bytes of messages and fields, for the whole attempt.
    pub log: u64,
    /// `limits.log_rate`: lines a second that are kept, averaged; a burst of twice as many passes.
    pub log_rate: u32,
    /// `limits.log_line`, in bytes: longer lines are cut.
    pub log_line: u32,
    /// `limits.http_body`, in bytes, for each request body and each response body.
    pub http_body: u64,
    /// `limits.http_connections`: requests in flight at the same time.
    pub http_connections: u32,
    /// `limits.resources`: WASI resources (streams, pollables, requests, …) alive at the same time.
    pub resources: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            time: Some(Duration::from_secs(3600)),
            time_notice: None,
            memory: 256 << 20,
            checkpoint: 1 << 20,
            state: 1 << 20,
            log: 1 << 20,
            log_rate: 1000,
            log_line: 8 << 10,
            http_body: 64 << 20,
            http_connections: 16,
            resources: 1024,
        }
    }
}

impl Limits {
    /// How long before the end of [`Limits::time`] the guest is warned.
    #[must_use]
    pub fn notice(&self) -> Duration {
        let Some(time) = self.time else {
            return Duration::ZERO;
        };
        self.time_notice
            .unwrap_or_else(|| {
                (time / 10).clamp(Duration::from_millis(100), Duration::from_secs(10))
            })
            .min(time)
    }

    /// Upper bound of what one call may copy from the guest into the host: the largest legal
    /// payload and some slack for names, keys and log fields.
    #[must_use]
    pub fn largest_payload(&self) -> u64 {
        const SLACK: u64 = 1 << 20;
        u64::from(self.checkpoint.max(self.state)) + SLACK
    }
}

/// What a job file grants to its plugin. The default grants nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants {
    /// HTTP origins, each optionally narrowed to methods and path prefixes.
    pub http: Vec<HttpGrant>,
    /// Environment variables with the values that the guest sees, and no others.
    pub env: Vec<(String, String)>,
    /// Names that `secrets.get` may be asked for.
    pub secrets: BTreeSet<String>,
}
