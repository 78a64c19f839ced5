//! Wake-ups: in memory between tasks of one process, as rows of a small table between processes.
//!
//! A process that commits signals then touches a file beside the store, which the others watch. The
//! write-ahead log would not do: its last change on disk comes before the commit is visible, so whoever
//! looked at once would find nothing. A slow look catches what a watch misses.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::{broadcast, watch};
use wasmcron_core::ids::PodAddress;

use super::connection::Place;
use super::errors::{Checked, Trouble};
use crate::control::{WAKES_MAX, Wake};

/// How often a process looks for signals of others while it watches.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often it looks where nothing can be watched.
const POLL_EVERY: Duration = Duration::from_millis(50);
/// Events that wait for the watching thread; one is as good as many.
const EVENTS_MAX: usize = 4;

/// What a verb tells other tasks and processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    /// Everybody looks.
    Wake(Wake),
    /// A task may have come into this pod's queue.
    Queued(PodAddress),
}

const KIND_WAKE: i64 = 0;
const KIND_QUEUED: i64 = 1;

impl Signal {
    /// As columns of its row.
    pub(super) fn row(&self) -> (i64, String) {
        match self {
            // A wake-up that has no JSON is one that nobody understands.
            Signal::Wake(wake) => (KIND_WAKE, serde_json::to_string(wake).unwrap_or_default()),
            Signal::Queued(pod) => (KIND_QUEUED, pod.as_str().to_owned()),
        }
    }

    /// From its row; none if a newer version wrote what this one does not know.
    fn parse(kind: i64, body: &str) -> Option<Signal> {
        match kind {
            KIND_WAKE => serde_json::from_str(body).ok().map(Signal::Wake),
            KIND_QUEUED => body.parse().ok().map(Signal::Queued),
            _ => None,
        }
    }
}

/// Where tasks of this process listen.
#[derive(Debug)]
pub(super) struct Hub {
    wakes: broadcast::Sender<Wake>,
    queues: Mutex<HashMap<PodAddress, watch::Sender<u64>>>,
    /// The file that others watch; none in memory.
    touched: Option<File>,
}

impl Hub {
    /// With the file to touch.
    pub(super) fn new(touched: Option<File>) -> Hub {
        Hub {
            wakes: broadcast::channel(WAKES_MAX).0,
            queues: Mutex::default(),
            touched,
        }
    }

    /// Wake-ups from now on.
    pub(super) fn wakes(&self) -> broadcast::Receiver<Wake> {
        self.wakes.subscribe()
    }

    /// Changes of a queue from now on.
    pub(super) fn queue(&self, pod: &PodAddress) -> watch::Receiver<u64> {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(changes) = queues.get(pod) {
            return changes.subscribe();
        }
        queues.retain(|_, changes| changes.receiver_count() > 0);
        let (changes, receiver) = watch::channel(0);
        queues.insert(pod.clone(), changes);
        receiver
    }

    /// Tells the tasks of this process.
    pub(super) fn tell(&self, signals: &[Signal]) {
        let queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        for signal in signals {
            match signal {
                // Nobody listens: then nobody misses it.
                Signal::Wake(wake) => drop(self.wakes.send(wake.clone())),
                Signal::Queued(pod) => {
                    if let Some(changes) = queues.get(pod) {
                        changes.send_modify(|count| *count += 1);
                    }
                }
            }
        }
    }

    /// Tells the tasks of this process that signals may have been missed.
    fn tell_missed(&self) {
        let queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        for changes in queues.values() {
            changes.send_modify(|count| *count += 1);
        }
        drop(self.wakes.send(Wake::Subscribed));
    }

    /// Tells other processes to look.
    pub(super) fn tell_others(&self) {
        if let Some(file) = &self.touched {
            // On a full disk they look a second later.
            let _ = file.write_at(b"\n", 0);
        }
    }
}

/// What the watching thread hears.
enum Event {
    Look,
    Stop,
}

/// The thread that looks for signals of other processes.
pub(super) struct Listener {
    events: SyncSender<Event>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Listener {
    /// Starts it over a connection of its own and the file that others touch.
    pub(super) fn start(
        place: Place,
        touched: PathBuf,
        source: i64,
        hub: Arc<Hub>,
    ) -> Checked<Listener> {
        let (events, heard) = sync_channel(EVENTS_MAX);
        let mut reader = Reader {
            place,
            source,
            last: 0,
        };
        reader.last = reader.newest()?;
        let mail = events.clone();
        let thread = std::thread::Builder::new()
            .name("store-listen".to_owned())
            .spawn(move || listen(&mut reader, &hub, &touched, mail, &heard));
        let thread = thread.map_err(|error| {
            Trouble::new(
                super::errors::Kind::Unavailable,
                format!("no thread to listen on: {error}"),
            )
        })?;
        Ok(Listener {
            events,
            thread: Some(thread),
        })
    }

    /// Ends it.
    pub(super) fn stop(&mut self) {
        // Its channel is short and it always listens.
        let _ = self.events.send(Event::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Watches a file; none where the system has no watches left.
fn watch_file(path: &Path, mail: SyncSender<Event>) -> Option<RecommendedWatcher> {
    let handler = move |event: notify::Result<notify::Event>| {
        if event.is_ok_and(|event| event.kind.is_modify()) {
            // A full channel is about to be read anyway.
            let _ = mail.try_send(Event::Look);
        }
    };
    let watching = notify::recommended_watcher(handler).and_then(|mut watcher| {
        watcher.watch(path, RecursiveMode::NonRecursive)?;
        Ok(watcher)
    });
    match watching {
        Ok(watcher) => Some(watcher),
        Err(error) => {
            tracing::warn!(
                path = %path.display(), %error,
                "the store's wake-ups cannot be watched; looking every {POLL_EVERY:?} instead"
            );
            None
        }
    }
}

fn listen(
    reader: &mut Reader,
    hub: &Hub,
    touched: &Path,
    mail: SyncSender<Event>,
    heard: &Receiver<Event>,
) {
    let watcher = watch_file(touched, mail);
    let every = if watcher.is_some() {
        LOOK_EVERY
    } else {
        POLL_EVERY
    };
    loop {
        match heard.recv_timeout(every) {
            Ok(Event::Look) | Err(RecvTimeoutError::Timeout) => {}
            Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => return,
        }
        match reader.news() {
            Ok(Some(signals)) if signals.is_empty() => {}
            Ok(Some(signals)) => hub.tell(&signals),
            Ok(None) => hub.tell_missed(),
            Err(trouble) => tracing::debug!(?trouble, "signals of other processes cannot be read"),
        }
    }
}

/// Reads signals of other processes in order.
struct Reader {
    place: Place,
    source: i64,
    last: i64,
}

impl Reader {
    fn newest(&mut self) -> Checked<i64> {
        let sql = "SELECT coalesce(max(id), 0) FROM wasmcron_signals";
        Ok(self.place.first(sql, [], |row| row.get(0))?.unwrap_or(0))
    }

    /// What others told since the last call; `None` if some of it is lost.
    fn news(&mut self) -> Checked<Option<Vec<Signal>>> {
        let rows = self.place.all(
            "SELECT id, source, kind, body FROM wasmcron_signals WHERE id > ?1 ORDER BY id",
            [self.last],
            |row| {
                let body: String = row.get(3)?;
                let signal = Signal::parse(row.get(2)?, &body);
                Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, signal))
            },
        )?;
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else {
            // Numbers that begin anew: somebody emptied the table.
            let newest = self.newest()?;
            let began_anew = newest < self.last;
            self.last = newest;
            return Ok((!began_anew).then(Vec::new));
        };
        // Numbers have no gaps but where old rows were removed.
        let missed = first.0 > self.last + 1;
        self.last = last.0;
        if missed {
            return Ok(None);
        }
        let mine = self.source;
        let others = rows.into_iter().filter(|row| row.1 != mine);
        Ok(Some(others.filter_map(|row| row.2).collect()))
    }
}
