//! What the runtime needs from whoever executes an attempt: a place for checkpoints, state, log
//! lines, progress and secrets. The runtime knows no store; this trait is where one is plugged in.

use async_trait::async_trait;
use bytes::Bytes;

/// The attempt's way out of the sandbox.
///
/// The futures are polled on the guest runtime's threads, so they must not block and must not depend
/// on the caller's runtime being entered (handles and channels of it are fine). A future is dropped
/// when the attempt is ended while it waits: a write may then have happened or not.
#[async_trait]
pub trait AttemptHost: Send + Sync + 'static {
    /// Saves a checkpoint. `Ok` promises that every later attempt of the run sees these bytes or
    /// newer ones. Calls of one attempt never overlap and come in the order in which they count.
    async fn save_checkpoint(&self, data: Bytes) -> Result<(), WriteRefused>;

    /// The stored value of a key of the job's state.
    async fn state_get(&self, key: &str) -> Result<Option<Bytes>, WriteRefused>;

    /// Sets a key of the job's state before it returns. Writes that take effect on success do not
    /// come here: they are in [`AttemptReport::on_success_state`](crate::AttemptReport).
    async fn state_set(&self, key: &str, value: Bytes) -> Result<(), WriteRefused>;

    /// Removes a key of the job's state before it returns.
    async fn state_delete(&self, key: &str) -> Result<(), WriteRefused>;

    /// Takes a log line. Called on a guest thread, in order, already limited: must return at once.
    fn log(&self, line: LogLine);

    /// Takes the newest report of progress, at most a few a second: must return at once.
    fn progress(&self, progress: Progress);

    /// The value of a secret that the grants name, or one sentence why this pod has none.
    async fn secret(&self, name: &str) -> Result<String, String>;
}

/// Why a write (or a read that needs the store) was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteRefused {
    /// Another attempt owns the run. The attempt is over; what it does no longer counts.
    #[error("fenced: another attempt owns the run")]
    Fenced,
    /// Larger than the limit, which is given in bytes. Nothing was changed.
    #[error("larger than the limit of {0} bytes")]
    TooLarge(u32),
    /// The store did not answer in time. The earlier value stands or the new one does.
    #[error("unavailable: {0}")]
    Unavailable(String),
}

/// One line of a run's log, within its limits and free of control characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// How much it matters.
    pub level: LogLevel,
    /// Where it came from.
    pub source: LogSource,
    /// The text, without line feeds.
    pub message: String,
    /// Fields in the guest's order.
    pub fields: Vec<(String, String)>,
}

/// How much a log line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// For the author, while looking for a fault.
    Trace,
    /// For the author.
    Debug,
    /// Normal.
    Info,
    /// Unusual.
    Warn,
    /// Something failed.
    Error,
}

impl LogLevel {
    /// The level in lower case, as logs and JSON show it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Trace => "trace",
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }
}

/// Where a log line came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogSource {
    /// The `log` interface.
    Guest,
    /// The guest's standard output (level info).
    Stdout,
    /// The guest's standard error (level warn).
    Stderr,
    /// The runtime itself, about this attempt.
    Host,
}

impl LogSource {
    /// The source in lower case, as logs and JSON show it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Guest => "guest",
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
            Self::Host => "host",
        }
    }
}

/// How far a run has come.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// Units done; finite.
    pub done: f64,
    /// Units in all, if known; finite.
    pub total: Option<f64>,
    /// A word for people, at most 256 bytes.
    pub message: String,
}
