//! Logs, and what goes at its time.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use wasmcron_core::ids::{JobName, RunId};
use wasmcron_core::time::Timestamp;

use crate::runs::LogLine;

/// A transition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LogEvent {
    /// When.
    pub at: Timestamp,
    /// Its name, such as `run.published`.
    pub event: Cow<'static, str>,
    /// The job, where there is one.
    pub job: Option<JobName>,
    /// The run, where there is one.
    pub run: Option<RunId>,
    /// Further facts.
    pub facts: Vec<(Cow<'static, str>, Fact)>,
}

/// A fact of a transition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Fact {
    /// A number.
    Number(u64),
    /// A text.
    Text(Cow<'static, str>),
}

/// A line of a run's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Line(
    /// It.
    pub LogLine,
);

/// A request for a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Idempotency {
    /// Digest of its body.
    pub body: String,
    /// The run it made.
    pub run: RunId,
    /// When it is forgotten.
    pub expires_at: Timestamp,
}

/// An entry that could not be decoded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// When it was found.
    pub at: Timestamp,
    /// Where.
    pub register: Cow<'static, str>,
    /// By which name.
    pub id: String,
    /// What stood there.
    pub entry: String,
}

/// Something that goes at its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Expiry {
    /// A run's record, attempts, log and checkpoints.
    Run(RunId),
    /// An idempotency key.
    Idempotency(String),
}
