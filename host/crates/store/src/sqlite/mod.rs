//! The embedded store's engine over one SQLite file, which several processes of a machine share.
//!
//! A thread writes: it takes all verbs that wait, runs each within a savepoint of one transaction, commits
//! once and answers all. A few threads read, beside it. Nothing is acknowledged before it is on disk.
//!
//! ```text
//! store.db        tables of records, `wasmcron_clock`, `wasmcron_signals`
//! store.db-wal    what was committed and not yet moved into the file
//! store.db-shm    which part of that is valid; shared memory of all processes
//! store.db-wake   touched after a commit that others should look at; holds nothing
//! ```

mod clock;
mod connection;
mod errors;
pub mod filesystem;
mod identity;
mod jobs;
mod open;
mod signals;
mod threads;
mod tx;

use std::fmt;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use async_trait::async_trait;
use rusqlite::Connection;
use tokio::sync::{broadcast, mpsc, watch};
use wasmcron_core::ids::PodAddress;

use crate::control::Wake;
use crate::embedded::engine::Engine;
use crate::error::{Result, StoreError};

pub use clock::{WallClock, wall_clock};
pub use open::{APPLICATION_ID, LAYOUT, SqliteOptions};
pub use tx::SqliteTx;

use clock::StoreClock;
use connection::Place;
use errors::{Checked, Kind, Trouble};
use filesystem::FileSystem;
use signals::{Hub, Listener};

/// Threads that read. Reads are short; more would fight over two or three processor cores.
const READERS: usize = 2;
/// Free room on the disk below which an operator is told, in bytes.
const FREE_WARN_BYTES: u64 = 256 * 1_024 * 1_024;
/// How far the store's clock may be ahead of this machine's before an operator is told.
const AHEAD_WARN: Duration = Duration::from_secs(2);

/// A SQLite file, or the same in memory. Dropping it ends its threads once all verbs are answered.
pub struct SqliteEngine {
    name: Arc<str>,
    path: Option<PathBuf>,
    limit: Duration,
    clock: Arc<StoreClock>,
    hub: Arc<Hub>,
    writes: Option<jobs::Sender>,
    reads: Option<jobs::Sender>,
    readers: Vec<JoinHandle<()>>,
    writer: Option<JoinHandle<()>>,
    listener: Option<Listener>,
}

impl fmt::Debug for SqliteEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteEngine")
            .field("name", &self.name)
            .field("clock", &self.clock)
            .finish_non_exhaustive()
    }
}

fn thread(name: &str, run: impl FnOnce() + Send + 'static) -> Checked<JoinHandle<()>> {
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run);
    thread.map_err(|error| {
        Trouble::new(
            Kind::Unavailable,
            format!("no thread for the store: {error}"),
        )
    })
}

/// Tells the signals of this engine from those of others.
fn random() -> i64 {
    i64::from_ne_bytes(RandomState::new().build_hasher().finish().to_ne_bytes())
}

impl SqliteEngine {
    /// Opens the file, making it if there is none, and starts the threads.
    ///
    /// # Errors
    /// `Refused` for a file that is no store of ours, is damaged, has another layout or cannot be written,
    /// and for a network file system; `Unavailable` if other processes keep it locked; `Full` if the disk
    /// is. A file that is refused is not changed.
    pub async fn open(options: SqliteOptions) -> Result<SqliteEngine> {
        let opening = tokio::task::spawn_blocking(move || SqliteEngine::start(&options));
        match opening.await {
            Ok(engine) => engine.map_err(|trouble| trouble.error("open")),
            Err(error) => Err(StoreError::Unavailable {
                verb: "open",
                message: error.to_string(),
            }),
        }
    }

    fn start(options: &SqliteOptions) -> Checked<SqliteEngine> {
        match &options.path {
            Some(path) => SqliteEngine::start_file(path, options),
            None => SqliteEngine::start_memory(options),
        }
    }

    fn start_file(path: &Path, options: &SqliteOptions) -> Checked<SqliteEngine> {
        let limit = options.response_timeout;
        let opened = open::open(path, limit)?;
        let (path, name, identity) = (opened.path, opened.name, opened.identity);
        let clock = Arc::new(StoreClock::new(options.clock.clone()));
        let source = random();
        let place = |connection: Connection| {
            let identity = Some(identity.clone());
            Place::new(connection, name.clone(), identity, clock.clone(), source)
        };
        let hub = Arc::new(Hub::new(Some(opened.touched)));
        let mut engine = SqliteEngine::new(name.clone(), Some(path.clone()), limit, &clock, &hub);

        let (sender, receiver) = mpsc::channel(jobs::QUEUE_MAX);
        engine.reads = Some(sender);
        let receiver = Arc::new(Mutex::new(receiver));
        for _ in 0..READERS {
            let place = place(open::connect(&path, &name, limit)?);
            let receiver = receiver.clone();
            let reader = thread("store-read", move || threads::read(place, &receiver))?;
            engine.readers.push(reader);
        }
        let ears = place(open::connect(&path, &name, limit)?);
        engine.listener = Some(Listener::start(ears, opened.wake, source, hub)?);
        engine.start_writer(place(opened.writer))?;
        Ok(engine)
    }

    fn start_memory(options: &SqliteOptions) -> Checked<SqliteEngine> {
        let name: Arc<str> = "the store in memory".into();
        let clock = Arc::new(StoreClock::new(options.clock.clone()));
        let hub = Arc::new(Hub::new(None));
        let connection = Connection::open_in_memory().and_then(|connection| {
            connection.execute_batch(&open::layout())?;
            Ok(connection)
        });
        let connection = connection.map_err(|error| errors::trouble(&name, &error))?;
        let limit = options.response_timeout;
        let mut engine = SqliteEngine::new(name.clone(), None, limit, &clock, &hub);
        engine.start_writer(Place::new(connection, name, None, clock, random()))?;
        // There is but one connection to it, so its thread does both.
        engine.reads.clone_from(&engine.writes);
        Ok(engine)
    }

    fn new(
        name: Arc<str>,
        path: Option<PathBuf>,
        limit: Duration,
        clock: &Arc<StoreClock>,
        hub: &Arc<Hub>,
    ) -> SqliteEngine {
        SqliteEngine {
            name,
            path,
            limit,
            clock: clock.clone(),
            hub: hub.clone(),
            writes: None,
            reads: None,
            readers: Vec::new(),
            writer: None,
            listener: None,
        }
    }

    fn start_writer(&mut self, place: Place) -> Checked<()> {
        let (sender, receiver) = mpsc::channel(jobs::QUEUE_MAX);
        let (hub, limit) = (self.hub.clone(), self.limit);
        let writer = thread("store-write", move || {
            threads::write(place, receiver, &hub, limit);
        })?;
        self.writes = Some(sender);
        self.writer = Some(writer);
        Ok(())
    }

    async fn call<T, F>(
        &self,
        jobs: Option<&jobs::Sender>,
        verb: &'static str,
        may_write: bool,
        body: F,
    ) -> Result<T>
    where
        T: Send + 'static,
        F: for<'a, 'b> FnOnce(&'a mut SqliteTx<'b>) -> Result<T> + Send + 'static,
    {
        let Some(jobs) = jobs else {
            return Err(StoreError::Unavailable {
                verb,
                message: format!("{} is closed", self.name),
            });
        };
        jobs::call(jobs, self.limit, verb, may_write, body).await
    }

    fn warnings_now(&self) -> std::io::Result<Vec<String>> {
        let mut found = Vec::new();
        let name = &self.name;
        let ahead = self.clock.ahead();
        if ahead > AHEAD_WARN {
            found.push(format!(
                "the clock of {name} is {} s ahead of this machine's, which was set back; leases and \
                 back-offs take up to twice as long until it has caught up",
                ahead.as_secs()
            ));
        }
        let Some(path) = &self.path else {
            found.push(format!("{name} keeps nothing when its process ends"));
            return Ok(found);
        };
        let file = std::fs::metadata(path)?;
        if file.permissions().mode() & 0o077 != 0 {
            let mode = file.permissions().mode() & 0o777;
            found.push(format!(
                "{name} has mode {mode:o}, so other users reach parameters, logs and checkpoints in it; \
                 0600 keeps them out"
            ));
        }
        let folder = path.parent().unwrap_or(Path::new("/"));
        match filesystem::of(folder)? {
            FileSystem::Memory => found.push(format!("{name} lies in memory and is gone after a reboot")),
            FileSystem::Unknown(kind) => found.push(format!(
                "{name} lies on {kind}; if that is shared with other machines the store will be damaged"
            )),
            FileSystem::Network(kind) => found.push(open::on_network(name, &kind)),
            FileSystem::Local => {}
        }
        let free = filesystem::free_bytes(folder)?;
        if free < FREE_WARN_BYTES {
            found.push(format!(
                "{} MiB are free where {name} lies; without room no verb is applied",
                free / 1_024 / 1_024
            ));
        }
        let log = std::fs::metadata(format!("{name}-wal")).map_or(0, |log| log.len());
        if log > connection::LOG_WARN_BYTES {
            found.push(format!(
                "the write-ahead log of {name} has {} MiB: a process keeps an old view of the store open",
                log / 1_024 / 1_024
            ));
        }
        Ok(found)
    }
}

#[async_trait]
impl Engine for SqliteEngine {
    type Tx<'a> = SqliteTx<'a>;

    async fn write<T, F>(&self, verb: &'static str, body: F) -> Result<T>
    where
        T: Send + 'static,
        F: for<'a, 'b> FnOnce(&'a mut SqliteTx<'b>) -> Result<T> + Send + 'static,
    {
        self.call(self.writes.as_ref(), verb, true, body).await
    }

    async fn read<T, F>(&self, verb: &'static str, body: F) -> Result<T>
    where
        T: Send + 'static,
        F: for<'a, 'b> FnOnce(&'a mut SqliteTx<'b>) -> Result<T> + Send + 'static,
    {
        self.call(self.reads.as_ref(), verb, false, body).await
    }

    fn queue_changes(&self, pod: &PodAddress) -> watch::Receiver<u64> {
        self.hub.queue(pod)
    }

    fn wakes(&self) -> broadcast::Receiver<Wake> {
        self.hub.wakes()
    }

    async fn warnings(&self) -> Result<Vec<String>> {
        self.warnings_now()
            .map_err(|error| StoreError::Unavailable {
                verb: "warnings",
                message: format!("{}: {error}", self.name),
            })
    }
}

impl Drop for SqliteEngine {
    /// Waits for the threads, so that the last to leave can leave one file behind.
    fn drop(&mut self) {
        self.reads = None;
        self.writes = None;
        if let Some(listener) = &mut self.listener {
            listener.stop();
        }
        let me = std::thread::current().id();
        let threads = self.readers.drain(..).chain(self.writer.take());
        for thread in threads {
            // A verb may hold the last handle of its own engine.
            if thread.thread().id() != me {
                let _ = thread.join();
            }
        }
    }
}
