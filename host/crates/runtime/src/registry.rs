//! Which plugins this pod serves, and how each file of the plugin folder fares. What moves a plugin
//! through its life is in [`crate::reload`].

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use serde::Serialize;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use wasmcron_core::ids::Digest;

use crate::Runtime;
use crate::dir_watch::{DirWatch, DirWatchConfig};
use crate::host::lock;
use crate::plugin::{CodeOrigin, LoadError, LoadStage, Metadata, Plugin};
use crate::reload;

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
    /// Something to tell the operator that refuses nothing.
    pub note: Option<String>,
    /// What the serving version says of itself.
    pub metadata: Option<Metadata>,
    /// Size of the serving version, in bytes.
    pub size: Option<u64>,
    /// Where its machine code came from.
    pub code: Option<CodeOrigin>,
    /// Time from the first look at its settled bytes to serving.
    pub load_time: Option<Duration>,
    /// Digests of earlier versions that attempts still run on.
    pub draining: Vec<Digest>,
}

/// The life of a plugin name, told by its newest bytes.
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
pub struct PluginRegistry {
    shelf: Arc<Shelf>,
    task: JoinHandle<()>,
}

/// What the registry knows, shared with the task that keeps it up to date.
#[derive(Debug)]
pub(crate) struct Shelf {
    entries: Mutex<BTreeMap<String, Entry>>,
    changes: watch::Sender<u64>,
    loaded: watch::Sender<bool>,
    refusals: AtomicU64,
}

/// One name.
#[derive(Debug, Default)]
pub(crate) struct Entry {
    pub(crate) active: Option<Arc<Plugin>>,
    /// Earlier versions; they live as long as an attempt holds them.
    pub(crate) older: Vec<Weak<Plugin>>,
    pub(crate) file: Option<PathBuf>,
    pub(crate) seen: Option<Digest>,
    pub(crate) refused: Option<LoadError>,
    pub(crate) note: Option<String>,
    pub(crate) loading: bool,
    pub(crate) load_time: Option<Duration>,
}

impl PluginRegistry {
    /// Starts to follow `dir`, which is created if need be. Returns at once; see
    /// [`Self::wait_loaded`]. Must be called within a tokio runtime; following happens there.
    ///
    /// # Errors
    ///
    /// The folder cannot be created or read.
    pub fn start(
        runtime: Arc<Runtime>,
        dir: PathBuf,
        config: RegistryConfig,
    ) -> std::io::Result<Arc<Self>> {
        std::fs::create_dir_all(&dir)?;
        let watch = DirWatch::start(&dir, config.watch.clone())?;
        let shelf = Arc::new(Shelf {
            entries: Mutex::default(),
            changes: watch::channel(0).0,
            loaded: watch::channel(false).0,
            refusals: AtomicU64::new(0),
        });
        let quiet = config.watch.quiet;
        let task = tokio::spawn(reload::follow(runtime, shelf.clone(), watch, quiet));
        Ok(Arc::new(Self { shelf, task }))
    }

    /// Waits until every file that was there at the start is serving or refused.
    pub async fn wait_loaded(&self) {
        let mut loaded = self.shelf.loaded.subscribe();
        // It fails only if the sender is gone, and self holds it.
        let _ = loaded.wait_for(|loaded| *loaded).await;
    }

    /// The version that serves `name` now. Hold it for the whole attempt: that keeps the attempt on
    /// this version whatever happens to the file.
    #[must_use]
    pub fn active(&self, name: &str) -> Option<Arc<Plugin>> {
        lock(&self.shelf.entries).get(name)?.active.clone()
    }

    /// A version by digest: one that serves, or an earlier one that an attempt still holds.
    #[must_use]
    pub fn by_digest(&self, digest: &Digest) -> Option<Arc<Plugin>> {
        let entries = lock(&self.shelf.entries);
        entries.values().find_map(|entry| entry.version(digest))
    }

    /// All names ever seen, in order.
    #[must_use]
    pub fn statuses(&self) -> Vec<PluginStatus> {
        lock(&self.shelf.entries)
            .iter()
            .map(|(name, entry)| entry.status(name))
            .collect()
    }

    /// A number that grows whenever an answer of this registry may have changed.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.shelf.changes.subscribe()
    }

    /// How many versions were refused since the start, each digest counted once in a row.
    #[must_use]
    pub fn refusals(&self) -> u64 {
        self.shelf.refusals.load(Ordering::Relaxed)
    }
}

impl Drop for PluginRegistry {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shelf {
    /// Changes the entry of a name, made if need be, and tells whoever listens.
    pub(crate) fn update<T>(&self, name: &str, change: impl FnOnce(&mut Entry) -> T) -> T {
        let result = change(lock(&self.entries).entry(name.to_owned()).or_default());
        self.changes.send_modify(|number| *number += 1);
        result
    }

    /// Looks at the entry of a name.
    pub(crate) fn look<T>(&self, name: &str, look: impl FnOnce(&Entry) -> T) -> Option<T> {
        lock(&self.entries).get(name).map(look)
    }

    /// Names that have a file, as far as is known.
    pub(crate) fn with_file(&self) -> Vec<String> {
        lock(&self.entries)
            .iter()
            .filter(|(_, entry)| entry.file.is_some())
            .map(|(name, _)| name.clone())
            .collect()
    }

    pub(crate) fn count_refusal(&self) {
        self.refusals.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn set_loaded(&self) {
        self.loaded.send_replace(true);
    }
}

impl Entry {
    /// A version that still lives.
    pub(crate) fn version(&self, digest: &Digest) -> Option<Arc<Plugin>> {
        let older = self.older.iter().filter_map(Weak::upgrade);
        self.active
            .clone()
            .into_iter()
            .chain(older)
            .find(|plugin| plugin.digest() == digest)
    }

    /// Makes `next` serve; the one before it drains.
    pub(crate) fn swap(&mut self, next: Option<Arc<Plugin>>) {
        self.older.retain(|plugin| plugin.strong_count() > 0);
        if let Some(before) = std::mem::replace(&mut self.active, next) {
            self.older.push(Arc::downgrade(&before));
        }
    }

    fn status(&self, name: &str) -> PluginStatus {
        let active = self.active.as_ref();
        let mut draining: Vec<Digest> = self
            .older
            .iter()
            .filter_map(Weak::upgrade)
            .map(|plugin| plugin.digest().clone())
            .filter(|digest| active.is_none_or(|plugin| plugin.digest() != digest))
            .collect();
        draining.sort();
        draining.dedup();
        let state = if self.loading {
            PluginState::Loading
        } else if active.is_some() {
            match self.refused {
                Some(_) => PluginState::Kept,
                None => PluginState::Active,
            }
        } else if self.file.is_some() {
            PluginState::Refused
        } else if draining.is_empty() {
            PluginState::Retired
        } else {
            PluginState::Draining
        };
        PluginStatus {
            name: name.to_owned(),
            file: self.file.clone(),
            state,
            active: active.map(|plugin| plugin.digest().clone()),
            seen: self.seen.clone(),
            refused: self.refused.as_ref().map(|error| error.message.clone()),
            stage: self.refused.as_ref().map(|error| error.stage),
            note: self.note.clone(),
            metadata: active.map(|plugin| plugin.metadata().clone()),
            size: active.map(|plugin| plugin.size()),
            code: active.map(|plugin| plugin.code_origin()),
            load_time: self.load_time,
            draining,
        }
    }
}
