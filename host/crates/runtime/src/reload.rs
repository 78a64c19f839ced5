//! The life of plugins: Loading → Verified → Active → Draining → Retired.
//!
//! Each tick of the folder's watch is a look at all its files. Bytes that differ from those seen last
//! are loaded beside the version that serves, and take its place only when every check passed.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsStr;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::task::JoinSet;
use wasmcron_core::ids::Digest;

use crate::Runtime;
use crate::dir_watch::{DirWatch, Tick};
use crate::plugin::{LoadError, LoadStage, Plugin};
use crate::registry::Shelf;

/// How often bytes that change while they are read are read again, and how long between.
const READ_TRIES: u32 = 40;
const READ_PAUSE: Duration = Duration::from_millis(50);
/// When to try again what failed by no fault of the plugin.
const RETRY: Duration = Duration::from_secs(5);

/// Tells versions of a file apart without reading it. Any write changes at least the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Signature {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Signature {
    fn of(found: &std::fs::Metadata) -> Self {
        Self {
            device: found.dev(),
            inode: found.ino(),
            size: found.len(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        }
    }
}

/// A file that could serve a name.
#[derive(Clone, Debug)]
struct Candidate {
    path: PathBuf,
    signature: Signature,
    note: Option<String>,
}

/// What became of a file's bytes.
enum Loaded {
    /// They serve already.
    Serving,
    /// They were refused before.
    RefusedBefore,
    /// They passed every check.
    Verified(Arc<Plugin>, Duration),
    Refused(LoadError),
}

struct Done {
    name: String,
    /// Of the bytes that were read, if they could be read.
    read: Option<(Digest, Signature)>,
    result: Loaded,
}

/// Follows the folder until the task is aborted.
pub(crate) async fn follow(
    runtime: Arc<Runtime>,
    shelf: Arc<Shelf>,
    mut watch: DirWatch,
    quiet: Duration,
) {
    let mut looks = Looks {
        runtime,
        shelf,
        quiet,
        handled: HashMap::new(),
        missing: HashMap::new(),
        empty: HashMap::new(),
        loading: JoinSet::new(),
        in_flight: HashSet::new(),
        retry: None,
    };
    let mut latest = Tick::default();
    loop {
        let retry = looks.retry;
        tokio::select! {
            tick = watch.tick() => latest = tick,
            Some(done) = looks.loading.join_next() => {
                match done {
                    Ok(done) => looks.apply(done),
                    Err(error) => tracing::error!(%error, "loading a plugin panicked"),
                }
            }
            () = async {
                match retry {
                    Some(at) => tokio::time::sleep_until(at.into()).await,
                    None => std::future::pending().await,
                }
            } => {}
        }
        looks.look(watch.dir(), &latest).await;
        if looks.loading.is_empty() {
            looks.shelf.set_loaded();
        }
    }
}

struct Looks {
    runtime: Arc<Runtime>,
    shelf: Arc<Shelf>,
    quiet: Duration,
    /// The signature whose bytes were dealt with last.
    handled: HashMap<String, Signature>,
    /// Since when a file is gone: editors remove and put back.
    missing: HashMap<String, Instant>,
    /// Since when a file is empty: that is how many writers begin.
    empty: HashMap<String, Instant>,
    loading: JoinSet<Done>,
    in_flight: HashSet<String>,
    /// Look again then.
    retry: Option<Instant>,
}

impl Looks {
    async fn look(&mut self, dir: &Path, tick: &Tick) {
        self.retry = None;
        let listed = {
            let dir = dir.to_owned();
            tokio::task::spawn_blocking(move || list(&dir)).await
        };
        let files = match listed {
            Ok(Ok(files)) => files,
            // The folder itself is unreadable or gone: what serves goes on serving.
            Ok(Err(error)) => {
                tracing::warn!(dir = %dir.display(), %error, "plugin folder cannot be read");
                return;
            }
            Err(error) => {
                tracing::error!(%error, "listing the plugin folder panicked");
                return;
            }
        };
        for name in self.shelf.with_file() {
            if files.contains_key(&name) {
                self.missing.remove(&name);
            } else {
                self.gone(&name);
            }
        }
        for (name, candidate) in files {
            self.consider(name, candidate, tick);
        }
    }

    /// Loads a file if its bytes may be new and its writer is done.
    fn consider(&mut self, name: String, candidate: Candidate, tick: &Tick) {
        if self.in_flight.contains(&name) || self.handled.get(&name) == Some(&candidate.signature) {
            return;
        }
        let unsettled = candidate
            .path
            .file_name()
            .is_some_and(|file| tick.unsettled.contains(file));
        if unsettled {
            return;
        }
        if candidate.signature.size == 0 {
            let since = *self.empty.entry(name.clone()).or_insert_with(Instant::now);
            if since.elapsed() < self.quiet {
                self.look_again(since + self.quiet);
                return;
            }
        }
        self.empty.remove(&name);
        self.shelf.update(&name, |entry| {
            if candidate.note.is_some() && entry.note != candidate.note {
                tracing::warn!(plugin = %name, note = candidate.note.as_deref(), "plugin file is ambiguous");
            }
            entry.file = Some(candidate.path.clone());
            entry.note = candidate.note;
        });
        self.in_flight.insert(name.clone());
        let (runtime, shelf) = (self.runtime.clone(), self.shelf.clone());
        self.loading
            .spawn(async move { load(&runtime, &shelf, name, candidate.path).await });
    }

    /// Takes the result of a load: the one place where a version begins to serve.
    fn apply(&mut self, done: Done) {
        let Done { name, read, result } = done;
        self.in_flight.remove(&name);
        let pods_fault = matches!(&result, Loaded::Refused(error) if error.is_pods_fault());
        let (digest, signature) = read.unzip();
        match signature {
            // Whatever the file holds by now, these bytes are dealt with.
            Some(signature) if !pods_fault => {
                self.handled.insert(name.clone(), signature);
            }
            _ => self.look_again(Instant::now() + RETRY),
        }
        let refused_anew = self.shelf.update(&name, |entry| {
            entry.loading = false;
            let seen_before = std::mem::replace(&mut entry.seen, digest.clone());
            match result {
                Loaded::RefusedBefore => None,
                Loaded::Serving => {
                    entry.refused = None;
                    None
                }
                Loaded::Verified(plugin, time) => {
                    tracing::info!(
                        plugin = %name, digest = plugin.digest().short(),
                        version = %plugin.metadata().version, ?time, code = ?plugin.code_origin(),
                        "plugin.active"
                    );
                    entry.refused = None;
                    entry.load_time = Some(time);
                    entry.swap(Some(plugin));
                    None
                }
                Loaded::Refused(error) => {
                    // The same fault of the same bytes is told once.
                    let anew = entry.refused.as_ref() != Some(&error) || seen_before != digest;
                    let serving = entry.active.as_ref().map(|plugin| plugin.digest().clone());
                    entry.refused = Some(error.clone());
                    if anew {
                        // Before whoever listens is told that something changed.
                        self.shelf.count_refusal();
                    }
                    anew.then_some((error, serving))
                }
            }
        });
        if let Some((error, serving)) = refused_anew {
            tracing::warn!(
                plugin = %name, digest = digest.as_ref().map(Digest::short), stage = ?error.stage,
                reason = %error, serving = serving.as_ref().map(Digest::short), "plugin.refused"
            );
        }
    }

    /// A file is not there. After a quiet period its name is retired.
    fn gone(&mut self, name: &str) {
        if self.in_flight.contains(name) {
            return;
        }
        let since = *self
            .missing
            .entry(name.to_owned())
            .or_insert_with(Instant::now);
        if since.elapsed() < self.quiet {
            self.look_again(since + self.quiet);
            return;
        }
        self.missing.remove(name);
        self.handled.remove(name);
        self.shelf.update(name, |entry| {
            entry.swap(None);
            entry.file = None;
            entry.seen = None;
            entry.refused = None;
            entry.note = None;
        });
        tracing::info!(plugin = name, "plugin.retired");
    }

    fn look_again(&mut self, at: Instant) {
        self.retry = Some(self.retry.map_or(at, |retry| retry.min(at)));
    }
}

/// Reads, judges and loads one file.
async fn load(runtime: &Runtime, shelf: &Shelf, name: String, path: PathBuf) -> Done {
    let started = Instant::now();
    let max = runtime.plugin_max();
    let file = path.clone();
    let read = tokio::task::spawn_blocking(move || read_whole(&file, max)).await;
    let (bytes, digest, signature) = match read {
        Ok(Ok(read)) => read,
        Ok(Err(why)) => return unreadable(name, &path, &why),
        Err(error) => return unreadable(name, &path, &error.to_string()),
    };
    let read = Some((digest.clone(), signature));
    let known = shelf.look(&name, |entry| {
        if entry
            .active
            .as_ref()
            .is_some_and(|plugin| *plugin.digest() == digest)
        {
            return Some(Loaded::Serving);
        }
        let refused = entry
            .refused
            .as_ref()
            .is_some_and(|error| !error.is_pods_fault());
        if refused && entry.seen.as_ref() == Some(&digest) {
            return Some(Loaded::RefusedBefore);
        }
        // The way back to a version that still lives costs nothing.
        let version = entry.version(&digest)?;
        Some(Loaded::Verified(version, started.elapsed()))
    });
    if let Some(result) = known.flatten() {
        return Done { name, read, result };
    }
    shelf.update(&name, |entry| entry.loading = true);
    let result = match runtime.load(&name, bytes).await {
        Ok(plugin) => Loaded::Verified(plugin, started.elapsed()),
        Err(error) => Loaded::Refused(error),
    };
    Done { name, read, result }
}

fn unreadable(name: String, path: &Path, why: &str) -> Done {
    let message = format!("cannot be read from `{}`: {why}", path.display());
    let result = Loaded::Refused(LoadError::new(&name, LoadStage::Read, message));
    Done {
        name,
        read: None,
        result,
    }
}

/// Reads a file whose bytes stay the same while they are read.
fn read_whole(path: &Path, max: u64) -> Result<(Bytes, Digest, Signature), String> {
    for _ in 0..READ_TRIES {
        let text = |error: std::io::Error| error.to_string();
        let mut file = std::fs::File::open(path).map_err(text)?;
        let before = Signature::of(&file.metadata().map_err(text)?);
        let mut bytes = Vec::with_capacity(usize::try_from(before.size.min(max)).unwrap_or(0));
        // One byte more than is accepted, so that too large is seen to be too large.
        (&mut file)
            .take(max + 1)
            .read_to_end(&mut bytes)
            .map_err(text)?;
        let after = Signature::of(&std::fs::metadata(path).map_err(text)?);
        if before == after {
            let digest = Digest::of(&bytes);
            return Ok((bytes.into(), digest, before));
        }
        std::thread::sleep(READ_PAUSE);
    }
    Err("it changes while it is read".to_owned())
}

/// The files that could serve, by the name they would serve. Links are followed.
fn list(dir: &Path) -> std::io::Result<BTreeMap<String, Candidate>> {
    let mut files: BTreeMap<String, Candidate> = BTreeMap::new();
    let mut paths: Vec<PathBuf> = std::fs::read_dir(dir)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    // `-` sorts before `_`, so the spelling that equals the name comes first.
    paths.sort();
    for path in paths {
        let Some(name) = plugin_name(&path) else {
            continue;
        };
        // A link to nothing is no file; it may become one.
        let Ok(found) = std::fs::metadata(&path) else {
            continue;
        };
        if !found.is_file() {
            continue;
        }
        if let Some(first) = files.get_mut(&name) {
            first.note = Some(format!(
                "`{}` and `{}` are both the plugin `{name}`: the first serves",
                first.path.display(),
                path.display()
            ));
            continue;
        }
        let signature = Signature::of(&found);
        files.insert(
            name,
            Candidate {
                path,
                signature,
                note: None,
            },
        );
    }
    Ok(files)
}

/// The name that a file serves: `merchant_full_sync.wasm`, as cargo writes it, is
/// `merchant-full-sync`.
fn plugin_name(path: &Path) -> Option<String> {
    if path.extension() != Some(OsStr::new("wasm")) {
        return None;
    }
    let stem = path.file_stem()?.to_str()?;
    (!stem.starts_with('.')).then(|| stem.replace('_', "-"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn files_serve_names() {
        for (file, name) in [
            ("a/merchant_full_sync.wasm", Some("merchant-full-sync")),
            ("merchant-full-sync.wasm", Some("merchant-full-sync")),
            (".hidden.wasm", None),
            ("x.cwasm", None),
            ("x.wasm.tmp", None),
            (".wasm", None),
        ] {
            assert_eq!(plugin_name(Path::new(file)).as_deref(), name, "{file}");
        }
    }

    #[test]
    fn two_spellings_of_a_name_are_told() {
        let dir = tempfile::tempdir().unwrap_or_else(|e| panic!("{e}"));
        for file in ["a_b.wasm", "a-b.wasm", "c.wasm", "..data.wasm", "note.txt"] {
            assert!(fs::write(dir.path().join(file), file).is_ok());
        }
        assert!(std::os::unix::fs::symlink("nowhere", dir.path().join("dead.wasm")).is_ok());
        let files = list(dir.path()).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(files.keys().collect::<Vec<_>>(), ["a-b", "c"]);
        assert!(files["a-b"].path.ends_with("a-b.wasm"));
        assert!(
            files["a-b"]
                .note
                .as_ref()
                .is_some_and(|note| note.contains("a_b.wasm"))
        );
        assert!(files["c"].note.is_none());
    }
}
