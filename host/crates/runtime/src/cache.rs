//! Compiled plugins on disk.
//!
//! What lies in the folder is mapped and executed, so it must be ours alone: the folder is created
//! for its owner only and refused when anybody else may write to it. The name of an entry carries
//! the plugin's digest, the engine's settings and the digest of the entry itself; an entry that does
//! not fit its name was damaged, and is compiled again.

use std::fs;
use std::hash::{Hash as _, Hasher as _};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context as _, bail};
use wasmcron_core::ids::Digest;
use wasmtime::Engine;
use wasmtime::component::Component;

/// Entries that are kept; the ones used longest ago go first.
const ENTRIES_MAX: usize = 128;

/// The private folder of one engine.
#[derive(Debug)]
pub(crate) struct CompileCache {
    dir: PathBuf,
    /// Stands for wasmtime's version and the engine's settings.
    engine: String,
}

impl CompileCache {
    /// Opens the folder, creating it if need be.
    pub(crate) fn open(dir: &Path, engine: &Engine) -> anyhow::Result<Self> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .with_context(|| format!("cannot create the cache folder `{}`", dir.display()))?;
        let found = fs::metadata(dir)
            .with_context(|| format!("cannot read the cache folder `{}`", dir.display()))?;
        if !found.is_dir() {
            bail!("the cache folder `{}` is a file", dir.display());
        }
        let (owner, mode) = (found.uid(), found.mode() & 0o777);
        let us = effective_user();
        if owner != us || mode & 0o022 != 0 {
            bail!(
                "the cache folder `{}` must belong to user {us} and be writable by nobody else, since \
                 what lies in it is executed; found owner {owner}, mode {mode:o}",
                dir.display()
            );
        }
        let mut hasher = std::hash::DefaultHasher::new();
        engine.precompile_compatibility_hash().hash(&mut hasher);
        Ok(Self {
            dir: dir.to_owned(),
            engine: format!("{:016x}", hasher.finish()),
        })
    }

    /// The compiled form of a plugin, if a sound one is there.
    pub(crate) fn load(&self, engine: &Engine, plugin: &Digest) -> Option<Component> {
        let (path, expected) = self.find(plugin)?;
        let component = fs::read(&path)
            .map_err(|error| error.to_string())
            .and_then(|bytes| {
                let found = Digest::of(&bytes);
                if found.as_str().starts_with(&expected) {
                    Ok(())
                } else {
                    Err("its bytes are not those that were written".to_owned())
                }
            })
            .and_then(|()| map(engine, &path).map_err(|error| format!("{error:#}")));
        match component {
            Ok(component) => {
                touch(&path);
                Some(component)
            }
            Err(why) => {
                tracing::warn!(file = %path.display(), why, "compiled plugin is damaged: compiling again");
                let _ = fs::remove_file(&path);
                None
            }
        }
    }

    /// Writes an entry and maps it, so that its pages belong to the file and not to our memory.
    pub(crate) fn store(
        &self,
        engine: &Engine,
        plugin: &Digest,
        compiled: &[u8],
    ) -> anyhow::Result<Component> {
        let name = format!(
            "{}{}.cwasm",
            self.prefix(plugin),
            &Digest::of(compiled).as_str()[..32]
        );
        let path = self.dir.join(&name);
        let unfinished = self.dir.join(format!(
            ".{name}.{}.{:x}",
            std::process::id(),
            thread_number()
        ));
        let written = (|| -> io::Result<()> {
            let mut file = fs::File::create(&unfinished)?;
            file.write_all(compiled)?;
            file.sync_all()?;
            fs::rename(&unfinished, &path)
        })();
        if let Err(error) = written {
            let _ = fs::remove_file(&unfinished);
            return Err(error).with_context(|| format!("cannot write `{}`", path.display()));
        }
        self.prune();
        map(engine, &path)
            .map_err(anyhow::Error::from)
            .with_context(|| format!("cannot map `{}`", path.display()))
    }

    fn prefix(&self, plugin: &Digest) -> String {
        format!("{}-{}-", plugin.as_str(), self.engine)
    }

    /// An entry of the plugin and the digest its bytes must begin with.
    fn find(&self, plugin: &Digest) -> Option<(PathBuf, String)> {
        let prefix = self.prefix(plugin);
        fs::read_dir(&self.dir).ok()?.flatten().find_map(|entry| {
            let name = entry.file_name();
            let digest = name
                .to_str()?
                .strip_prefix(&prefix)?
                .strip_suffix(".cwasm")?;
            Some((entry.path(), digest.to_owned()))
        })
    }

    /// Removes what was used longest ago.
    fn prune(&self) {
        let Ok(entries) = fs::read_dir(&self.dir) else {
            return;
        };
        let mut entries: Vec<(SystemTime, PathBuf)> = entries
            .flatten()
            .filter(|entry| entry.path().extension().is_some_and(|ext| ext == "cwasm"))
            .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
            .collect();
        entries.sort();
        let surplus = entries.len().saturating_sub(ENTRIES_MAX);
        for (_, path) in entries.iter().take(surplus) {
            // A plugin that is mapped from it keeps its pages.
            let _ = fs::remove_file(path);
        }
    }
}

#[allow(unsafe_code)]
fn map(engine: &Engine, path: &Path) -> wasmtime::Result<Component> {
    // SAFETY: the file lies in a folder that only this user may write to, has the digest that it had
    // when we wrote what this engine compiled, and is never written to again: entries are replaced
    // by rename and removed by unlink, neither of which touches mapped pages.
    unsafe { Component::deserialize_file(engine, path) }
}

#[allow(unsafe_code)]
fn effective_user() -> u32 {
    // SAFETY: geteuid has no preconditions and cannot fail.
    unsafe { libc::geteuid() }
}

/// Marks an entry as used now. Losing that only makes it go earlier.
fn touch(path: &Path) {
    if let Ok(file) = fs::File::options().append(true).open(path) {
        let _ = file.set_modified(SystemTime::now());
    }
}

/// Distinguishes the threads of this process in temporary names.
fn thread_number() -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    std::thread::current().id().hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const EMPTY: &[u8] = b"\0asm\x0d\0\x01\0";

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn an_entry_comes_back_and_a_damaged_one_does_not() {
        let (dir, engine) = (folder(), Engine::default());
        let cache =
            CompileCache::open(&dir.path().join("c"), &engine).unwrap_or_else(|e| panic!("{e}"));
        let digest = Digest::of(EMPTY);
        assert!(cache.load(&engine, &digest).is_none());
        let compiled = engine
            .precompile_component(EMPTY)
            .unwrap_or_else(|e| panic!("{e}"));
        assert!(cache.store(&engine, &digest, &compiled).is_ok());
        assert!(cache.load(&engine, &digest).is_some());
        assert!(cache.load(&engine, &Digest::of(b"other")).is_none());

        let (path, _) = cache.find(&digest).unwrap_or_else(|| panic!("entry"));
        let mut bytes = fs::read(&path).unwrap_or_default();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        assert!(fs::write(&path, bytes).is_ok());
        assert!(cache.load(&engine, &digest).is_none());
        assert!(cache.find(&digest).is_none(), "the damaged entry is gone");
    }

    #[test]
    fn a_folder_that_others_may_write_to_is_refused() {
        let (dir, engine) = (folder(), Engine::default());
        assert!(fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).is_ok());
        let error = CompileCache::open(dir.path(), &engine)
            .err()
            .map(|e| e.to_string());
        assert!(error.is_some_and(|text| text.contains("mode 777")));
    }

    #[test]
    fn a_new_folder_is_private() {
        let (dir, engine) = (folder(), Engine::default());
        let path = dir.path().join("a/b");
        assert!(CompileCache::open(&path, &engine).is_ok());
        let mode = fs::metadata(&path).map(|m| m.mode() & 0o777);
        assert!(mode.is_ok_and(|mode| mode == 0o700));
    }
}
