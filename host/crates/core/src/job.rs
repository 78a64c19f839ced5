//! What a job is: its schedule, its policies, and the part of it that the leader decides from.
//!
//! [`Job`] is the whole definition as the executing pod has it from its job file, grants and limits
//! included. [`Definition`] is the part that travels through the store, so that whoever leads can
//! decide for a job whose file it lacks. Grants and limits stay behind on purpose: whoever can write
//! to the store must not be able to widen a sandbox.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::{DefinitionHash, Digest, JobName, PluginName};
use crate::schedule::Schedule;
use crate::time::Timestamp;

/// The part of a job that decisions are made from, in the store and in the view.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Definition {
    /// The plugin that the job runs.
    pub plugin: PluginName,
    /// A disabled job is not fired.
    pub enabled: bool,
    /// When it fires.
    pub schedule: Schedule,
    /// Its guest continues from a checkpoint after its pod died.
    pub resumable: bool,
    /// Run again after a lost attempt although it is not resumable, if it is usually short.
    pub auto_rerun: bool,
    /// Needs the executing pod to itself.
    pub exclusive: bool,
    /// Limit of one attempt.
    #[serde(with = "duration_ms")]
    pub timeout: Duration,
    /// Limit of a whole run, from its first claim over every wait and attempt; none: there is none.
    #[serde(default, with = "optional_ms", skip_serializing_if = "Option::is_none")]
    pub run_timeout: Option<Duration>,
    /// What happens to a firing that comes while the job still runs.
    pub overlap: Overlap,
    /// What happens to a firing that was missed.
    pub misfire: Misfire,
    /// Whether and when a failed attempt is followed by another.
    pub retry: Retry,
    /// Labels that a pod must carry to be picked.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pods: BTreeMap<String, String>,
    /// Runs only this version of the plugin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// Parameters as JSON text. References such as `{"env": "NAME"}` stay unresolved here.
    pub params: String,
}

impl Definition {
    /// The hash under which pods report this definition; equal definitions have equal hashes.
    #[must_use]
    pub fn hash(&self) -> DefinitionHash {
        // Serialising a struct of plain fields cannot fail; an empty text would only mean that two
        // pods agree on a definition that neither could write down.
        let text = serde_json::to_vec(self).unwrap_or_default();
        DefinitionHash::of(&text)
    }
}

/// A job as the executing pod knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Its name.
    pub name: JobName,
    /// What the leader needs of it.
    pub definition: Definition,
    /// What an attempt may use.
    pub limits: Limits,
    /// What an attempt may reach.
    pub allow: Allow,
    /// What a newer plugin version means for a running attempt.
    pub reload: Reload,
}

/// What happens to a firing that comes while an earlier run of the job is not over.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Overlap {
    /// It ends as `Skipped`.
    #[default]
    Skip,
    /// One such firing waits for the job's active run; later ones are skipped.
    Queue,
    /// The active run is cancelled and the firing waits for its end.
    Replace,
}

/// What happens to firings whose time passed without a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Misfire {
    /// Which of the missed firings run.
    pub policy: MisfirePolicy,
    /// How late a firing may be and still count as on time.
    #[serde(with = "duration_ms")]
    pub grace: Duration,
}

impl Default for Misfire {
    /// The latest missed firing runs, if it is at most ten minutes late.
    fn default() -> Self {
        Misfire {
            policy: MisfirePolicy::Once,
            grace: Duration::from_secs(600),
        }
    }
}

/// Which missed firings run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MisfirePolicy {
    /// None beyond the grace.
    Skip,
    /// The latest within the grace; earlier ones are recorded as missed.
    Once,
    /// The latest `max` within the grace, in order.
    All {
        /// How many at most, from 1.
        max: u32,
    },
}

/// Whether and when a failed attempt is followed by another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    /// Attempts in all, failures only: a resumed attempt does not count. From 1.
    pub max_attempts: u32,
    /// Wait after the first failure; doubles with each further one.
    #[serde(with = "duration_ms")]
    pub backoff: Duration,
    /// The longest wait.
    #[serde(with = "duration_ms")]
    pub max_backoff: Duration,
}

impl Default for Retry {
    /// One attempt.
    fn default() -> Self {
        Retry {
            max_attempts: 1,
            backoff: Duration::from_secs(30),
            max_backoff: Duration::from_secs(600),
        }
    }
}

/// What a newer plugin version means for an attempt that runs.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Reload {
    /// It runs to its end on the version it began with.
    #[default]
    Finish,
    /// It is asked to yield and continues on the new version.
    Handoff,
}

/// What one attempt may use, in bytes, lines and milliseconds. The pod's policy caps each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Sum of all linear memories and tables and of host-side copies, in bytes.
    pub memory: u64,
    /// What a run may log, in bytes.
    pub log_bytes: u64,
    /// Log lines a second.
    pub log_lines_per_second: u32,
    /// Size of a checkpoint, in bytes.
    pub checkpoint: u32,
    /// All state keys and values of the job together, in bytes.
    pub state: u32,
    /// One HTTP request or response body, in bytes.
    pub http_body: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            memory: 256 << 20,
            log_bytes: 1 << 20,
            log_lines_per_second: 1_000,
            checkpoint: 1 << 20,
            state: 1 << 20,
            http_body: 64 << 20,
        }
    }
}

/// The largest checkpoint that any job may allow itself, in bytes.
pub const CHECKPOINT_CAP: u32 = 16 << 20;

/// What one attempt may reach. Everything else is denied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allow {
    /// HTTP origins, each with an optional path prefix, such as `https://api.example.com/v1`.
    pub http: Vec<String>,
    /// Environment variables of the pod, by name.
    pub env: Vec<String>,
    /// Secrets, by name.
    pub secrets: Vec<String>,
}

/// A definition as the store keeps it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredDefinition {
    /// What the leader decides from.
    #[serde(flatten)]
    pub definition: Definition,
    /// Its hash, as pods report it.
    pub hash: DefinitionHash,
    /// From when on it rules, by the store's clock.
    pub since: Timestamp,
}

/// Optional durations as whole milliseconds in JSON.
mod optional_ms {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize as _, Serializer};

    pub(super) fn serialize<S: Serializer>(
        duration: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        duration.map(crate::time::millis).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        let millis = Option::<u64>::deserialize(deserializer)?;
        Ok(millis.map(Duration::from_millis))
    }
}

/// Durations as whole milliseconds in JSON.
pub(crate) mod duration_ms {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(
        duration: &Duration,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_i64(crate::time::millis(*duration))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_millis)
    }
}
