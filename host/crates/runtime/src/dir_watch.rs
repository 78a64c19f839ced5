//! A folder's changes as ticks, for plugins and job files alike.
//!
//! Events are hints only: which ones come, for which name and in which order differs between editors,
//! file systems and mounts, and some never come at all. So the folder is watched and not the file, a
//! tick says "look", never "what", and a slow poll ticks even when no event does.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use notify::event::{AccessKind, AccessMode, ModifyKind, RenameMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::mpsc;

/// How a folder is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirWatchConfig {
    /// Look at the folder this often even without events (NFS, mounts without inotify).
    pub poll: Duration,
    /// A file whose writer has not closed it is left alone until nothing happened to it for this long.
    pub quiet: Duration,
    /// But it is looked at this long after its first event, whatever happens.
    pub quiet_max: Duration,
}

impl Default for DirWatchConfig {
    fn default() -> Self {
        Self {
            poll: Duration::from_secs(30),
            quiet: Duration::from_millis(300),
            quiet_max: Duration::from_secs(10),
        }
    }
}

/// A reason to look at the folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tick {
    /// Names of files that are being written: do not read them yet, another tick will come.
    pub unsettled: HashSet<OsString>,
}

/// Watches one folder until it is dropped.
pub struct DirWatch {
    dir: PathBuf,
    config: DirWatchConfig,
    events: mpsc::UnboundedReceiver<notify::Result<Event>>,
    sender: mpsc::UnboundedSender<notify::Result<Event>>,
    /// None where the system cannot watch: then only the poll ticks.
    watcher: Option<RecommendedWatcher>,
    /// The folder that is watched: its path may come to name another one.
    watched: Option<(u64, u64)>,
    warned: bool,
    pending: Pending,
    next_poll: Instant,
}

/// What events left to do.
#[derive(Debug, Default)]
struct Pending {
    /// Tick at once.
    now: bool,
    /// Files that are being written: first and latest event.
    writing: HashMap<OsString, (Instant, Instant)>,
}

impl DirWatch {
    /// Starts to watch. The first tick is there at once.
    ///
    /// # Errors
    ///
    /// The folder cannot be read. (One that can be read but not watched is polled.)
    pub fn start(dir: &Path, config: DirWatchConfig) -> std::io::Result<Self> {
        std::fs::read_dir(dir)?;
        let (sender, events) = mpsc::unbounded_channel();
        let mut watch = Self {
            dir: dir.to_owned(),
            next_poll: Instant::now() + config.poll,
            config,
            events,
            sender,
            watcher: None,
            watched: None,
            warned: false,
            pending: Pending {
                now: true,
                writing: HashMap::new(),
            },
        };
        watch.watch();
        Ok(watch)
    }

    /// The folder.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Polls no more often than this from the next poll on: a look at a large folder takes its time.
    pub fn poll_at_most_every(&mut self, least: Duration) {
        self.config.poll = self.config.poll.max(least);
    }

    /// Waits for the next reason to look. Cancel safe.
    pub async fn tick(&mut self) -> Tick {
        loop {
            let now = Instant::now();
            self.pending.settle(now, &self.config);
            if now >= self.next_poll {
                self.watch();
                self.pending.now = true;
            }
            if std::mem::take(&mut self.pending.now) {
                self.next_poll = now + self.config.poll;
                return Tick {
                    unsettled: self.pending.writing.keys().cloned().collect(),
                };
            }
            let next = self
                .pending
                .next(&self.config)
                .map_or(self.next_poll, |at| at.min(self.next_poll));
            tokio::select! {
                event = self.events.recv() => {
                    // The sender lives in self, so the channel never closes.
                    if let Some(event) = event {
                        self.pending.note(event, Instant::now());
                    }
                }
                () = tokio::time::sleep_until(next.into()) => {}
            }
        }
    }

    /// Watches the folder that the path names now, unless that is the one already watched.
    fn watch(&mut self) {
        let found = std::fs::metadata(&self.dir)
            .ok()
            .map(|found| (found.dev(), found.ino()));
        if found.is_some() && found == self.watched && self.watcher.is_some() {
            return;
        }
        let sender = self.sender.clone();
        let watcher = notify::recommended_watcher(move |event| {
            // Nobody listens once the watch is dropped.
            let _ = sender.send(event);
        })
        .and_then(|mut watcher| {
            watcher.watch(&self.dir, RecursiveMode::NonRecursive)?;
            Ok(watcher)
        });
        match watcher {
            Ok(watcher) => {
                self.watcher = Some(watcher);
                self.watched = found;
                self.warned = false;
            }
            Err(error) => {
                self.watcher = None;
                self.watched = None;
                if !std::mem::replace(&mut self.warned, true) {
                    tracing::warn!(
                        dir = %self.dir.display(),
                        %error,
                        poll = ?self.config.poll,
                        "folder cannot be watched, it is polled instead"
                    );
                }
            }
        }
    }
}

impl std::fmt::Debug for DirWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DirWatch")
            .field("dir", &self.dir)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl Pending {
    /// Sorts an event into "look now" and "somebody is writing".
    fn note(&mut self, event: notify::Result<Event>, now: Instant) {
        let event = match event {
            Ok(event) => event,
            Err(error) => {
                tracing::debug!(%error, "watcher");
                self.now = true;
                return;
            }
        };
        if event.need_rescan() {
            self.now = true;
            return;
        }
        let names = event.paths.iter().filter_map(|path| path.file_name());
        match event.kind {
            EventKind::Access(AccessKind::Close(AccessMode::Write)) => {
                for name in names {
                    self.writing.remove(name);
                }
                self.now = true;
            }
            // Reading a file raises these: acting on them would make every look the cause of the next.
            EventKind::Access(_) => {}
            EventKind::Modify(ModifyKind::Name(mode)) => {
                // What was renamed into place is complete; the old name is gone.
                if mode != RenameMode::From {
                    self.now = true;
                }
                for name in names {
                    self.writing.remove(name);
                }
            }
            EventKind::Remove(_) => {
                for name in names {
                    self.writing.remove(name);
                }
                self.now = true;
            }
            EventKind::Create(_) | EventKind::Modify(_) | EventKind::Any | EventKind::Other => {
                for name in names {
                    self.writing
                        .entry(name.to_owned())
                        .and_modify(|(_, latest)| *latest = now)
                        .or_insert((now, now));
                }
            }
        }
    }

    /// When the next written file will have been quiet for long enough.
    fn next(&self, config: &DirWatchConfig) -> Option<Instant> {
        self.writing
            .values()
            .map(|(first, latest)| (*latest + config.quiet).min(*first + config.quiet_max))
            .min()
    }

    /// Takes files as settled that have been quiet for long enough.
    fn settle(&mut self, now: Instant, config: &DirWatchConfig) {
        let before = self.writing.len();
        self.writing.retain(|_, (first, latest)| {
            now < (*latest + config.quiet).min(*first + config.quiet_max)
        });
        self.now |= self.writing.len() < before;
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;

    use super::*;

    /// Never polls and never gives up waiting: what ticks, ticks by an event.
    fn events_only() -> DirWatchConfig {
        DirWatchConfig {
            poll: Duration::from_secs(3600),
            quiet: Duration::from_secs(3600),
            quiet_max: Duration::from_secs(3600),
        }
    }

    fn started(config: DirWatchConfig) -> (tempfile::TempDir, DirWatch) {
        let dir = tempfile::tempdir().unwrap_or_else(|e| panic!("{e}"));
        let watch = DirWatch::start(dir.path(), config).unwrap_or_else(|e| panic!("{e}"));
        (dir, watch)
    }

    #[tokio::test]
    async fn the_first_tick_is_there_at_once() {
        let (_dir, mut watch) = started(events_only());
        assert_eq!(watch.tick().await, Tick::default());
    }

    #[tokio::test]
    async fn close_and_rename_tick_at_once_and_reading_never() {
        let (dir, mut watch) = started(events_only());
        watch.tick().await;
        let file = dir.path().join("a.wasm");
        assert!(fs::write(&file, b"x").is_ok());
        assert!(watch.tick().await.unsettled.is_empty());
        for _ in 0..3 {
            let other = dir.path().join("b.tmp");
            assert!(fs::write(&other, b"y").is_ok());
            watch.tick().await;
            assert!(fs::rename(&other, &file).is_ok());
            watch.tick().await;
        }
        let quiet = Duration::from_millis(200);
        while tokio::time::timeout(quiet, watch.tick()).await.is_ok() {}
        assert!(fs::read(&file).is_ok());
        let ticked = tokio::time::timeout(quiet, watch.tick()).await;
        assert!(ticked.is_err(), "reading ticked: {ticked:?}");
    }

    #[tokio::test]
    async fn a_file_that_is_being_written_is_named_in_ticks_for_others() {
        let (dir, mut watch) = started(events_only());
        watch.tick().await;
        let mut open =
            fs::File::create(dir.path().join("slow.wasm")).unwrap_or_else(|e| panic!("{e}"));
        assert!(open.write_all(b"half").is_ok());
        assert!(fs::write(dir.path().join("done.wasm"), b"x").is_ok());
        let tick = watch.tick().await;
        assert!(
            tick.unsettled.contains(&OsString::from("slow.wasm")),
            "{tick:?}"
        );
        drop(open);
        assert!(watch.tick().await.unsettled.is_empty());
    }

    #[tokio::test]
    async fn a_writer_that_never_closes_is_waited_for_only_so_long() {
        let (dir, mut watch) = started(DirWatchConfig {
            quiet: Duration::from_millis(50),
            ..events_only()
        });
        watch.tick().await;
        let mut open =
            fs::File::create(dir.path().join("a.wasm")).unwrap_or_else(|e| panic!("{e}"));
        assert!(open.write_all(b"x").is_ok());
        assert!(watch.tick().await.unsettled.is_empty());
    }

    #[tokio::test]
    async fn a_swapped_link_ticks_although_no_event_names_the_file() {
        let (dir, mut watch) = started(events_only());
        let at = |name: &str| dir.path().join(name);
        for version in ["..1", "..2", "..3"] {
            assert!(fs::create_dir(at(version)).is_ok());
            assert!(fs::write(at(version).join("j.toml"), version).is_ok());
        }
        let link = |to: &str| {
            std::os::unix::fs::symlink(to, at("..tmp"))
                .and_then(|()| fs::rename(at("..tmp"), at("..data")))
        };
        assert!(link("..1").is_ok());
        assert!(std::os::unix::fs::symlink("..data/j.toml", at("j.toml")).is_ok());
        for version in ["..2", "..3"] {
            assert!(link(version).is_ok());
            loop {
                watch.tick().await;
                if fs::read_to_string(at("j.toml")).is_ok_and(|text| text == version) {
                    break;
                }
            }
        }
    }

    #[tokio::test]
    async fn a_folder_that_was_replaced_is_watched_again_by_the_next_poll() {
        let root = tempfile::tempdir().unwrap_or_else(|e| panic!("{e}"));
        let dir = root.path().join("plugins");
        assert!(fs::create_dir(&dir).is_ok());
        let mut watch = DirWatch::start(
            &dir,
            DirWatchConfig {
                poll: Duration::from_millis(50),
                ..events_only()
            },
        )
        .unwrap_or_else(|e| panic!("{e}"));
        let before = watch.watched;
        assert!(fs::rename(&dir, root.path().join("old")).is_ok());
        assert!(fs::create_dir(&dir).is_ok());
        while watch.watched == before {
            watch.tick().await;
        }
    }
}
