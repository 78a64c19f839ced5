//! How an attempt ended, in the words that the run's record keeps.

use std::time::Duration;

use bytes::Bytes;

use crate::control::Why;

/// The result of one attempt.
#[derive(Clone, Debug)]
#[must_use = "a guest's result is never swallowed"]
pub struct AttemptReport {
    /// How it ended.
    pub end: AttemptEnd,
    /// From the call of [`Runtime::execute`](crate::Runtime::execute) to its end, including the last
    /// save of an offered checkpoint.
    pub wall: Duration,
    /// From the call of `execute` to the first guest instruction of `run`.
    pub start: Duration,
    /// The most that the guest's memories and tables held at one time, in bytes.
    pub peak_memory: u64,
    /// Log lines that were not handed to [`AttemptHost::log`](crate::AttemptHost::log).
    pub log_dropped_lines: u64,
    /// Bytes of those lines and of what was cut from others.
    pub log_dropped_bytes: u64,
    /// Checkpoints that [`AttemptHost::save_checkpoint`](crate::AttemptHost::save_checkpoint)
    /// acknowledged, offered ones included.
    pub checkpoints_saved: u32,
    /// Why the last offered checkpoint could not be saved at the end, if it could not.
    pub offer_lost: Option<String>,
    /// State writes for the step that records the success. Empty unless the end is
    /// [`AttemptEnd::Done`]; in key order.
    pub on_success_state: Vec<StateWrite>,
}

/// One pending write of the job's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateWrite {
    /// The key, 1 to 128 bytes.
    pub key: String,
    /// The new value; none to remove the key.
    pub value: Option<Bytes>,
}

/// How an attempt ended. Texts come from the guest or from wasmtime: at most 4 KiB of them are kept
/// and control characters are made visible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptEnd {
    /// The run is complete.
    Done {
        /// The guest's summary.
        summary: String,
    },
    /// A checkpoint is saved; the run goes on elsewhere or later.
    Yielded,
    /// The guest failed and asks for another attempt.
    Retry {
        /// The guest's message.
        message: String,
        /// Wait at least this long.
        after: Option<Duration>,
    },
    /// The guest failed for good.
    Fatal {
        /// The guest's message.
        message: String,
    },
    /// The guest stopped because it was asked to.
    Cancelled,
    /// The guest broke: a panic, an invalid access, too deep a recursion.
    Trap(Trap),
    /// The guest used up its time.
    TimedOut {
        /// The limit.
        limit: Duration,
    },
    /// The guest failed on one of its limits.
    LimitExceeded {
        /// The config key of the limit.
        key: &'static str,
        /// The limit, in the key's unit.
        limit: u64,
        /// What it asked for, in the same unit.
        found: u64,
        /// What happened then.
        trap: Trap,
    },
    /// It was ended by [`AttemptControl::interrupt`](crate::AttemptControl::interrupt).
    Interrupted {
        /// Why.
        why: Why,
    },
    /// The lease deadline passed while it ran.
    LeaseLost,
    /// The platform failed, not the guest: the message says what.
    HostError {
        /// What failed.
        message: String,
    },
}

/// Who has to act on an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// Nobody: the attempt ended well or as it was asked to.
    None,
    /// The plugin or its limits.
    Guest,
    /// The pod, the store or the network between them.
    Platform,
}

impl AttemptEnd {
    /// Whether the guest or the platform failed.
    #[must_use]
    pub fn blame(&self) -> Blame {
        match self {
            Self::Done { .. } | Self::Yielded | Self::Cancelled => Blame::None,
            Self::Interrupted { why } => match why {
                Why::Cancelled => Blame::None,
                Why::LockLost | Why::Shutdown | Why::Reload => Blame::Platform,
            },
            Self::Retry { .. }
            | Self::Fatal { .. }
            | Self::Trap(_)
            | Self::TimedOut { .. }
            | Self::LimitExceeded { .. } => Blame::Guest,
            Self::LeaseLost | Self::HostError { .. } => Blame::Platform,
        }
    }

    /// One sentence for the run's record and for people.
    #[must_use]
    pub fn message(&self) -> String {
        match self {
            Self::Done { summary } => summary.clone(),
            Self::Yielded => "yielded".to_owned(),
            Self::Retry { message, .. } | Self::Fatal { message } => message.clone(),
            Self::Cancelled => "cancelled".to_owned(),
            Self::Trap(trap) => trap.to_string(),
            Self::TimedOut { limit } => {
                format!("ran longer than its time limit of {limit:?} (`timeout`)")
            }
            Self::LimitExceeded {
                key,
                limit,
                found,
                trap,
            } => format!("asked for {found} where `{key}` allows {limit}; then: {trap}"),
            Self::Interrupted { why } => match why {
                Why::Cancelled => "cancelled, and ended by the host after its grace".to_owned(),
                Why::LockLost => "ended by the host: the job's lock was lost".to_owned(),
                Why::Shutdown => "ended by the host: the pod shut down".to_owned(),
                Why::Reload => "ended by the host: a newer plugin takes over".to_owned(),
            },
            Self::LeaseLost => "ended by the host: the lease ran out".to_owned(),
            Self::HostError { message } => message.clone(),
        }
    }
}

/// A guest that broke.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trap {
    /// A stable word: `panic`, `unreachable`, `memory-out-of-bounds`, `stack-overflow`, `exit`, …
    pub kind: String,
    /// What a person needs first: the panic's text if there is one, else wasmtime's.
    pub message: String,
    /// The guest's stack, innermost frame first.
    pub backtrace: Option<String>,
}

impl std::fmt::Display for Trap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.kind, self.message)
    }
}
