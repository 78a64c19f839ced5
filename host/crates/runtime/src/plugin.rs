//! A loaded plugin: compiled, checked against the contract and introduced by its own `describe`.

use std::fmt;
use std::time::Duration;

use serde::Serialize;
use wasmcron_core::ids::Digest;

use crate::bindings::JobPre;
use crate::bindings::migrator::MigratorPre;
use crate::params::ParameterSchema;
use crate::sandbox::Sandbox;

/// A plugin that may be executed. Cheap to share; attempts hold it until they end.
pub struct Plugin {
    pub(crate) name: String,
    pub(crate) digest: Digest,
    pub(crate) size: u64,
    pub(crate) metadata: Metadata,
    pub(crate) origin: CodeOrigin,
    pub(crate) compile_time: Duration,
    pub(crate) load_time: Duration,
    pub(crate) memory_minimum: u64,
    pub(crate) pre: JobPre<Sandbox>,
    pub(crate) migrate: Option<MigratorPre<Sandbox>>,
    pub(crate) schema: ParameterSchema,
}

/// Where a plugin's machine code came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CodeOrigin {
    /// It was compiled.
    Compiled,
    /// It was compiled before and read from the cache folder.
    Cache,
}

/// What a plugin says of itself, checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Metadata {
    /// Its own name; the file's name is what jobs refer to.
    pub name: String,
    /// Its version, as its author counts.
    pub version: String,
    /// One sentence for people.
    pub description: String,
    /// JSON Schema of its parameters; none: any object is accepted.
    pub parameter_schema: Option<serde_json::Value>,
    /// Number of the format of its checkpoints.
    pub checkpoint_schema: u32,
    /// What it asks the operator to grant.
    pub wants: Vec<Want>,
}

/// Something a plugin asks for. Asking grants nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Want {
    /// An HTTP origin, or `param:NAME`.
    Http(String),
    /// A TCP endpoint, `host:port`.
    Tcp(String),
    /// A folder to read.
    FolderRead(String),
    /// A folder to read and write.
    FolderWrite(String),
    /// An environment variable.
    Env(String),
    /// A secret.
    Secret(String),
}

impl Plugin {
    /// The name jobs refer to: the file's name without extension, with `_` written as `-`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// SHA-256 of the component's bytes.
    #[must_use]
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// Size of the component, in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// What it said of itself.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Where its machine code came from.
    #[must_use]
    pub fn code_origin(&self) -> CodeOrigin {
        self.origin
    }

    /// Time to compile it, or to read it from the cache.
    #[must_use]
    pub fn compile_time(&self) -> Duration {
        self.compile_time
    }

    /// Time to load it: checks, compilation, waiting for another compilation, `describe`.
    #[must_use]
    pub fn load_time(&self) -> Duration {
        self.load_time
    }

    /// The largest memory that it starts with, in bytes: a job with a lower `limits.memory` can
    /// never run it.
    #[must_use]
    pub fn memory_minimum(&self) -> u64 {
        self.memory_minimum
    }

    /// Whether it exports `migrate`, so that it can read checkpoints of other formats.
    #[must_use]
    pub fn supports_migration(&self) -> bool {
        self.migrate.is_some()
    }

    /// Checks a job's parameters against the plugin's schema.
    ///
    /// # Errors
    ///
    /// One sentence for each fault (the first ten): JSON pointer, found, accepted.
    pub fn check_parameters(&self, parameters: &serde_json::Value) -> Result<(), Vec<String>> {
        self.schema.check(parameters)
    }
}

impl fmt::Debug for Plugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plugin")
            .field("name", &self.name)
            .field("digest", &self.digest)
            .field("version", &self.metadata.version)
            .finish_non_exhaustive()
    }
}

/// Why a plugin was not loaded. The text is one sentence for people and names the plugin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("plugin `{plugin}` {message}")]
pub struct LoadError {
    /// The name it would have had.
    pub plugin: String,
    /// How far it came.
    pub stage: LoadStage,
    /// What is wrong: found and accepted.
    pub message: String,
}

/// The steps of loading, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LoadStage {
    /// The file could not be read.
    Read,
    /// It is not a component.
    Format,
    /// It could not be compiled.
    Compile,
    /// It does not fit the world `job`.
    World,
    /// It cannot live within the pod's limits.
    Limits,
    /// `describe` failed.
    Describe,
    /// What `describe` said is not acceptable.
    Metadata,
    /// The pod failed, not the plugin; it is tried again.
    Pod,
}

impl LoadError {
    /// Whether the pod failed rather than the plugin, so that the same bytes may load later.
    #[must_use]
    pub fn is_pods_fault(&self) -> bool {
        matches!(self.stage, LoadStage::Read | LoadStage::Pod)
    }

    pub(crate) fn new(plugin: &str, stage: LoadStage, message: impl Into<String>) -> Self {
        Self {
            plugin: plugin.to_owned(),
            stage,
            message: message.into(),
        }
    }
}
