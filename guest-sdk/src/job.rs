//! What a plugin is: the [`Job`] trait and what it says of itself.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Context, Failure};

/// A plugin's work.
pub trait Job: Sized + 'static {
    /// The job file's `[params]`. A value that does not fit ends the run as fatal with a message
    /// that names the key; `#[serde(deny_unknown_fields)]` also refuses misspelt keys.
    type Params: DeserializeOwned;

    /// What a later attempt needs to go on; `()` for a job that saves none.
    type Checkpoint: Serialize + DeserializeOwned;

    /// Number of the format of [`Job::Checkpoint`], from 1. Raise it with every change that older
    /// bytes do not survive. 0 is for a job without checkpoints.
    const CHECKPOINT_SCHEMA: u32 = 0;

    /// Refines what `Cargo.toml` says of the plugin: the schema of its parameters and what it asks
    /// the operator to grant. Called when the plugin is loaded, without any grants.
    fn describe(metadata: Metadata) -> Metadata {
        metadata
    }

    /// Makes one attempt of a run.
    ///
    /// # Errors
    ///
    /// A [`Failure`] says whether the host should try again.
    fn run(ctx: &mut Context<Self>, params: Self::Params) -> Result<Outcome, Failure>;
}

/// A job that can read the checkpoints of its older versions; exported by
/// `export!(MyJob, migrate)`.
pub trait Migrate: Job {
    /// Translates the bytes that an older version saved with schema number `from_schema`.
    ///
    /// # Errors
    ///
    /// The text says why the bytes cannot be translated. The version that wrote them goes on with the
    /// run, while the pod still has it; else the run starts anew.
    fn checkpoint(from_schema: u32, data: &[u8]) -> Result<Self::Checkpoint, String>;
}

/// How an attempt ended well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The run is complete; the text is a summary for people.
    Done(String),
    /// A checkpoint is saved; the run goes on elsewhere or later. See [`crate::Checkpointer::yield_at`].
    Yielded,
}

impl Outcome {
    /// The run is complete.
    pub fn done(summary: impl Into<String>) -> Self {
        Self::Done(summary.into())
    }
}

/// What a plugin says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metadata {
    /// Its name, that of the crate unless changed.
    pub name: String,
    /// Its version, that of the crate unless changed.
    pub version: String,
    /// One sentence for people.
    pub description: String,
    /// JSON Schema text of its parameters; empty: any object is accepted.
    pub parameter_schema: String,
    /// What it asks the operator to grant. Asking grants nothing.
    pub wants: Vec<Want>,
}

impl Metadata {
    /// Metadata with a name, a version and a description, as [`crate::export!`] takes them from
    /// `Cargo.toml`.
    pub fn new(name: &str, version: &str, description: &str) -> Self {
        Self {
            name: name.to_owned(),
            version: version.to_owned(),
            description: description.to_owned(),
            parameter_schema: String::new(),
            wants: Vec::new(),
        }
    }

    /// Sets the JSON Schema of the parameters as text.
    #[must_use]
    pub fn parameter_schema(mut self, schema: impl Into<String>) -> Self {
        self.parameter_schema = schema.into();
        self
    }

    /// Derives the JSON Schema of the parameters from their type.
    #[cfg(feature = "schema")]
    #[must_use]
    pub fn parameters<P: schemars::JsonSchema>(self) -> Self {
        let schema = schemars::schema_for!(P);
        self.parameter_schema(serde_json::Value::from(schema).to_string())
    }

    /// Adds something that the operator should grant.
    #[must_use]
    pub fn want(mut self, want: Want) -> Self {
        self.wants.push(want);
        self
    }
}

/// Something that a plugin asks its operator to grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Want {
    /// An HTTP origin such as `https://api.example.com`, or `param:NAME`: the origin of the URL in
    /// that parameter.
    Http(String),
    /// A TCP endpoint, `host:port`.
    Tcp(String),
    /// A folder.
    Folder {
        /// The path as the plugin sees it.
        path: String,
        /// What it does there.
        access: FolderAccess,
    },
    /// An environment variable, by name.
    Env(String),
    /// A secret, by name.
    Secret(String),
}

/// What a plugin does with a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FolderAccess {
    /// Read only.
    Read,
    /// Read and write.
    Write,
}
