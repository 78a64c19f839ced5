//! The folder of a fleet.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use tempfile::TempDir;

use super::timing::Timing;
use crate::guests;

/// A folder with the plugins and job files of a fleet, the settings and logs of its pods.
#[derive(Debug)]
pub struct Site {
    folder: TempDir,
    timing: Timing,
}

impl Site {
    /// An empty one.
    ///
    /// # Errors
    /// When no folder can be made.
    pub fn new(name: &str, timing: Timing) -> Result<Site> {
        let folder = tempfile::Builder::new()
            .prefix(&format!("wasmcron-{name}-"))
            .tempdir()?;
        for name in ["plugins", "jobs"] {
            std::fs::create_dir(folder.path().join(name))?;
        }
        Ok(Site { folder, timing })
    }

    /// Where it lies.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Keeps the folder from now on; answers where it lies.
    #[must_use]
    pub fn keep(self) -> PathBuf {
        self.folder.keep()
    }

    /// Puts a built guest into service under its own name.
    ///
    /// # Errors
    /// When it is not built and cannot be, or cannot be written.
    pub fn install(&self, guest: &str) -> Result<()> {
        self.write_plugin(guest, &guests::bytes(guest)?)
    }

    /// Puts bytes into service under a plugin's name, as a deployment would.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn write_plugin(&self, name: &str, bytes: &[u8]) -> Result<()> {
        replace(
            &self.path().join("plugins").join(format!("{name}.wasm")),
            bytes,
        )
    }

    /// Writes the file of a job whole; `text` is what follows its name.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_job(&self, name: &str, text: &str) -> Result<()> {
        let text = format!("name = \"{name}\"\n{text}");
        let file = self.path().join("jobs").join(format!("{name}.toml"));
        replace(&file, text.as_bytes())
    }

    /// Writes the settings of a pod; `more` are top-level keys, then tables. Its log lies beside them.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn configure(&self, address: &str, store: &str, more: &str) -> Result<PathBuf> {
        let timing = self.timing.settings();
        let text = format!(
            "store = \"{store}\"\npod.address = \"{address}\"\nlog.format = \"json\"\n\
             log.level = \"wasmcron=debug,info\"\nplugins.directory = \"plugins\"\nplugins.poll = \"2s\"\n\
             plugins.cache = \"cache\"\njobs.directory = \"jobs\"\njobs.poll = \"2s\"\n{timing}{more}"
        );
        let config = self.path().join(format!("{address}.toml"));
        replace(&config, text.as_bytes())?;
        Ok(config)
    }

    /// The log of a pod.
    #[must_use]
    pub fn log(&self, address: &str) -> PathBuf {
        self.path().join(format!("{address}.log"))
    }
}

/// Writes beside and renames over, so that nobody reads half a file.
fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let beside = path.with_extension("part");
    std::fs::write(&beside, bytes)
        .and_then(|()| std::fs::rename(&beside, path))
        .with_context(|| format!("cannot write {}", path.display()))
}
