//! Which plugins this pod serves, and how each file of the plugin folder fares.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::sync::watch;
use wasmcron_core::ids::Digest;

use crate::Runtime;
use crate::dir_watch::DirWatchConfig;
use crate::plugin::{CodeOrigin, LoadStage, Metadata, Plugin};

/// Settings of the registry.
#[derive(Clone, Debug, Default)]
pub struct RegistryConfig {
    /// How the folder is watched.
    pub watch: DirWatchConfig,
}

/// What a pod knows of one plugin name.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PluginStatus {
    /// The name jobs refer to.
    pub name: String,
    /// The file, unless it is gone.
    pub file: Option<PathBuf>,
    /// Where it stands in its life.
    pub state: PluginState,
    /// Digest of the bytes that serve, if any do.
    pub active: Option<Digest>,
    /// Digest of the file's newest bytes.
    pub seen: Option<Digest>,
    /// Why the newest bytes do not serve, if they do not.
    pub refused: Option<String>,
    /// The step that refused them.
    pub stage: Option<LoadStage>,
    /// What the serving version says of itself.
    pub metadata: Option<Metadata>,
    /// Size of the serving version, in bytes.
    pub size: Option<u64>,
    /// Where its machine code came from.
    pub code: Option<CodeOrigin>,
    /// Time from the file's settling to serving.
    pub load_time: Option<Duration>,
    /// Digests of earlier versions that attempts still run on.
    pub draining: Vec<Digest>,
}

/// The life of a plugin: the newest version's, as far as it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PluginState {
    /// New bytes are being checked and compiled. An older version may serve meanwhile.
    Loading,
    /// The newest bytes serve.
    Active,
    /// The newest bytes are refused; an older version serves.
    Kept,
    /// The newest bytes are refused and nothing serves.
    Refused,
    /// The file is gone and attempts still run.
    Draining,
    /// The file is gone.
    Retired,
}

/// The plugins of one folder, kept up to date until it is dropped.
#[derive(Debug)]
pub struct PluginRegistry {}

impl PluginRegistry {
    /// Starts to follow `dir`. Returns at once; see [`Self::wait_loaded`].
    ///
    /// # Errors
    ///
    /// The folder does not exist and cannot be created, or is no folder.
    pub fn start(
        _runtime: Arc<Runtime>,
        _dir: PathBuf,
        _config: RegistryConfig,
    ) -> std::io::Result<Arc<Self>> {
        todo!()
    }

    /// Waits until every file that was there at the start is serving or refused.
    pub async fn wait_loaded(&self) {
        todo!()
    }

    /// The version that serves `name` now.
    #[must_use]
    pub fn active(&self, _name: &str) -> Option<Arc<Plugin>> {
        todo!()
    }

    /// A version by digest: one that serves, or an earlier one that an attempt still holds.
    #[must_use]
    pub fn by_digest(&self, _digest: &Digest) -> Option<Arc<Plugin>> {
        todo!()
    }

    /// All names ever seen, in order.
    #[must_use]
    pub fn statuses(&self) -> Vec<PluginStatus> {
        todo!()
    }

    /// A counter that grows whenever an answer of this registry may have changed.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        todo!()
    }

    /// How many times a version was refused since the start (one per digest).
    #[must_use]
    pub fn refusals(&self) -> u64 {
        todo!()
    }
}
