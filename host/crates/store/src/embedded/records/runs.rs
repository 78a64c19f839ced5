//! What is kept of a run: its record, attempts and checkpoints.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use wasmcron_core::ids::{Digest, Fence, PodAddress, RunId};
use wasmcron_core::run::{Outcome, Progress, RunState};
use wasmcron_core::task::Reason;
use wasmcron_core::time::Timestamp;

use super::{Base, shared};
use crate::embedded::engine::Record;

/// A run's record, without its attempts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunRow {
    /// What never changes; none where that was lost.
    pub base: Option<BaseRef>,
    /// When it was made.
    pub created_at: Option<Timestamp>,
    /// When its first attempt was claimed.
    #[serde(default)]
    pub began: Option<Timestamp>,
    /// How it ended; none before.
    pub state: Option<RunState>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// Why it is where it is.
    pub why: Option<Cow<'static, str>>,
    /// Who closed which attempts last, so that a repeat is known as one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub closed: Vec<(Closer, Fence)>,
    /// Recoveries in the window that began then.
    pub recoveries: Option<(u32, Timestamp)>,
    /// Latest progress report of a closed attempt.
    pub progress: Option<Progress>,
    /// Hash of the latest batch of log lines.
    pub logged: Option<u64>,
    /// When it is forgotten, with its attempts, log and checkpoints; none before it ended.
    pub expires_at: Option<Timestamp>,
}

/// A shared [`Base`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BaseRef(
    /// It.
    #[serde(with = "shared")]
    pub Arc<Base>,
);

/// Who closed an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Closer {
    /// Its own `finish`.
    Finish,
    /// A `hand_back`.
    HandBack,
    /// The recoverer.
    Recoverer,
}

/// An attempt of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttemptRow {
    /// Where it executed.
    pub pod: PodAddress,
    /// The number its writes carried.
    pub fence: Fence,
    /// Why it happened.
    pub reason: Reason,
    /// When it was claimed.
    pub claimed_at: Timestamp,
    /// Sequence of the checkpoint it began from.
    pub resumed_from: Option<u64>,
    /// The plugin version its pod was about to run.
    pub digest: Option<Digest>,
    /// How it ended.
    pub end: Option<AttemptEnd>,
}

/// The end of an attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttemptEnd {
    /// When.
    pub at: Timestamp,
    /// The version that ended it, if it was known.
    pub digest: Option<Digest>,
    /// How.
    pub outcome: Outcome,
}

/// One of a job's latest runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunOf(
    /// It.
    pub RunId,
);

/// A run's latest checkpoints, without their bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoints {
    /// At most three, in the order of their sequences.
    pub kept: Vec<Kept>,
}

/// What a checkpoint is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// Its sequence.
    pub seq: u64,
    /// Number of the bytes' format.
    pub schema: u32,
    /// Version of the plugin that wrote them.
    pub digest: Digest,
    /// Number of the attempt.
    pub attempt: u32,
    /// Its fence.
    pub fence: Fence,
    /// When it was saved.
    pub saved_at: Timestamp,
}

/// Records that are bytes and nothing else.
macro_rules! bytes {
    ($($(#[$doc:meta])* $type:ident: $table:literal, $what:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $type(
            /// They.
            pub Vec<u8>,
        );

        impl Record for $type {
            const TABLE: &'static str = $table;
            const WHAT: &'static str = $what;

            fn encode(&self) -> Result<Vec<u8>, String> {
                Ok(self.0.clone())
            }

            fn decode(bytes: &[u8]) -> Result<Self, String> {
                Ok($type(bytes.to_vec()))
            }
        }
    )*};
}

bytes! {
    /// The bytes of a checkpoint.
    CheckpointBytes: "checkpoint_bytes", "a checkpoint's bytes";
    /// A value of a job's state.
    StateValue: "state", "a value of a job's state";
}
