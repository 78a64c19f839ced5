//! Opening the file: what is accepted, and how a new one begins.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::clock::{WallClock, wall_clock};
use super::connection::{create, settings};
use super::errors::{self, Checked, Kind, Trouble};
use super::filesystem::{self, FileSystem};
use super::identity::{self, Identity, beside};
use crate::embedded::records::TABLES;

/// Says of a database that it is ours: "WACR".
pub const APPLICATION_ID: i32 = 0x5741_4352;
/// Version of the layout that this program reads and writes.
pub const LAYOUT: i32 = 1;
/// Largest file that is checked whole when it is opened, in bytes: about a quarter of a second. Of a
/// larger one only what is read is checked.
const CHECK_MAX_BYTES: u64 = 128 * 1_024 * 1_024;
/// Waits between tries to open a file that another process is making.
const RETRY_PAUSE: Duration = Duration::from_millis(5);
/// Nobody but its user reads the store: parameters and logs may hold what is nobody's business.
const MODE: u32 = 0o600;

/// Where the store lies, and how patient it is.
#[derive(Clone)]
pub struct SqliteOptions {
    /// The file; none for a store in memory, which ends with the engine.
    pub path: Option<PathBuf>,
    /// The longest wait for an answer, and for other processes that write.
    pub response_timeout: Duration,
    /// This machine's clock.
    pub clock: WallClock,
}

impl SqliteOptions {
    /// The defaults, for a file.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> SqliteOptions {
        SqliteOptions {
            path: Some(path.into()),
            ..SqliteOptions::in_memory()
        }
    }

    /// The defaults, in memory.
    #[must_use]
    pub fn in_memory() -> SqliteOptions {
        SqliteOptions {
            path: None,
            response_timeout: Duration::from_secs(1),
            clock: wall_clock(),
        }
    }
}

impl fmt::Debug for SqliteOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteOptions")
            .field("path", &self.path)
            .field("response_timeout", &self.response_timeout)
            .finish_non_exhaustive()
    }
}

/// A file that was found good.
pub(super) struct Opened {
    /// Where it lies, without links.
    pub(super) path: PathBuf,
    /// What it is called in messages.
    pub(super) name: Arc<str>,
    /// Which file that is.
    pub(super) identity: Identity,
    /// What processes touch to wake each other.
    pub(super) wake: PathBuf,
    /// The same, open.
    pub(super) touched: File,
    /// For the thread that writes.
    pub(super) writer: Connection,
}

/// Closing any handle of a file gives up all locks that the process has on it. So no handle of ours may
/// close while another thread opens the same file through SQLite: one opens at a time.
static OPENING: Mutex<()> = Mutex::new(());

/// Opens the file, making it if there is none.
pub(super) fn open(path: &Path, limit: Duration) -> Checked<Opened> {
    let _alone = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
    let path = locate(path)?;
    let name: Arc<str> = path.display().to_string().into();
    make_file(&path, &name)?;
    begin_in_empty(&path, &name)?;
    let writer = until_free(&name, limit, || prepare(&path, &name))?;
    let wake = beside(&path, "-wake");
    let touched = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(MODE)
        .open(&wake)
        .map_err(|error| cannot(&wake.display().to_string(), &error))?;
    Ok(Opened {
        identity: Identity::of(&path, &name)?,
        path,
        name,
        wake,
        touched,
        writer,
    })
}

/// What an error of the system means for a path.
fn cannot(name: &str, error: &io::Error) -> Trouble {
    if matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    ) {
        return Trouble::new(Kind::Full, format!("no room left for {name} on its disk"));
    }
    Trouble::refused(format!(
        "{name} cannot be opened: {error}; accepted: a file in a folder that exists and that this user \
         may write"
    ))
}

/// The path without links, if it lies where a store can.
fn locate(path: &Path) -> Checked<PathBuf> {
    let shown = path.display().to_string();
    let real = match fs::canonicalize(path) {
        Ok(real) => real,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let folder = match path.parent() {
                Some(folder) if folder != Path::new("") => folder,
                _ => Path::new("."),
            };
            let file = path.file_name().ok_or_else(|| cannot(&shown, &error))?;
            fs::canonicalize(folder)
                .map_err(|error| cannot(&shown, &error))?
                .join(file)
        }
        Err(error) => return Err(cannot(&shown, &error)),
    };
    if let Some(kind) = fs::metadata(&real)
        .ok()
        .and_then(|found| identity::no_file(&found))
    {
        return Err(Trouble::refused(format!(
            "{shown} is {kind}; accepted: a file, which is made if it is missing"
        )));
    }
    let folder = real.parent().unwrap_or(Path::new("/"));
    match filesystem::of(folder) {
        Ok(FileSystem::Network(kind)) => Err(Trouble::refused(on_network(&shown, &kind))),
        Ok(_) => Ok(real),
        Err(error) => Err(cannot(&shown, &error)),
    }
}

/// Why a network file system is refused.
pub(super) fn on_network(name: &str, kind: &str) -> String {
    format!(
        "{name} lies on {kind}, which other machines share: SQLite's write-ahead log needs memory and \
         locks that all its processes share, and would be damaged; accepted: a path on a local disk, or \
         Redis for pods on several machines"
    )
}

/// A file without a byte in it is taken for a new store, as SQLite does: whoever makes it first may have
/// wished for its owner and mode. But where a log lies beside it, it was a store that somebody emptied,
/// and SQLite would throw away the log, which may hold what was acknowledged last.
fn begin_in_empty(path: &Path, name: &str) -> Checked<()> {
    let size = |path: &Path| fs::metadata(path).map_or(0, |found| found.len());
    let log = beside(path, "-wal");
    if size(path) > 0 {
        return Ok(());
    }
    // Another process may be making the store: then there is something in the file by now.
    if size(&log) > 0 && size(path) == 0 {
        return Err(Trouble::refused(errors::damaged(
            name,
            "an empty file beside a log of a store",
        )));
    }
    tracing::info!(store = name, "the file is empty; a new store begins in it");
    Ok(())
}

/// Makes the file unless it exists, so that only this user ever reads it.
fn make_file(path: &Path, name: &str) -> Checked<()> {
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(MODE)
        .open(path);
    match made {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        Err(error) => return Err(cannot(name, &error)),
    }
    // That the file exists outlives a power cut no later than what is written into it.
    let folder = path.parent().unwrap_or(Path::new("/"));
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|error| cannot(name, &error))
}

/// Repeats while another process holds a lock.
fn until_free<T>(
    name: &str,
    limit: Duration,
    mut open: impl FnMut() -> Result<T, Fault>,
) -> Checked<T> {
    let began = Instant::now();
    loop {
        match open() {
            Ok(opened) => return Ok(opened),
            Err(Fault::Sqlite(error)) if errors::is_busy(&error) => {
                if began.elapsed() >= limit {
                    return Err(Trouble::new(
                        Kind::Unavailable,
                        format!(
                            "{name} was locked by another process for {limit:?}; accepted: a file that \
                             only pods and commands of wasmcron use"
                        ),
                    ));
                }
                std::thread::sleep(RETRY_PAUSE);
            }
            Err(Fault::Sqlite(error)) => return Err(at_opening(name, &error)),
            Err(Fault::Found(trouble)) => return Err(trouble),
        }
    }
}

/// Why a file was not opened.
enum Fault {
    Sqlite(rusqlite::Error),
    Found(Trouble),
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Fault {
        Fault::Sqlite(error)
    }
}

impl From<Trouble> for Fault {
    fn from(trouble: Trouble) -> Fault {
        Fault::Found(trouble)
    }
}

/// At start a file that cannot be opened is a wrong setting, not an outage.
fn at_opening(name: &str, error: &rusqlite::Error) -> Trouble {
    if error.sqlite_error_code() == Some(rusqlite::ErrorCode::CannotOpen) {
        return Trouble::refused(format!(
            "{name} cannot be opened ({error}); accepted: a file in a folder, both of which this user \
             may write"
        ));
    }
    errors::trouble(name, error)
}

/// A further connection to a file that was found good.
pub(super) fn connect(path: &Path, name: &str, limit: Duration) -> Checked<Connection> {
    let _alone = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
    let connect = || {
        let connection = raw(path)?;
        connection.execute_batch(&settings())?;
        connection.pragma_update(None, "query_only", true)?;
        connection.busy_timeout(limit)?;
        Ok(connection)
    };
    until_free(name, limit, connect)
}

fn raw(path: &Path) -> rusqlite::Result<Connection> {
    // The caller keeps each connection in one thread. No URI: a path is a path.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(Duration::ZERO)?;
    // Closing must not move a log into a file that is not ours or damaged. One that is good is the
    // writer's to tidy up.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    Ok(connection)
}

fn number(connection: &Connection, sql: &str) -> rusqlite::Result<i64> {
    connection.query_row(sql, [], |row| row.get(0))
}

/// Whether the database is empty; an error unless it is empty or ours.
fn recognise(connection: &Connection, name: &str) -> Result<bool, Fault> {
    let id = number(connection, "PRAGMA application_id")?;
    let layout = number(connection, "PRAGMA user_version")?;
    let tables = number(connection, "SELECT count(*) FROM sqlite_schema")?;
    if id == 0 && layout == 0 && tables == 0 {
        return Ok(true);
    }
    if id != i64::from(APPLICATION_ID) {
        return Err(Fault::Found(Trouble::refused(format!(
            "{name} is a database of another program: found application id {id} and {tables} tables and \
             indexes; accepted: application id {APPLICATION_ID}, or a path where no file is yet"
        ))));
    }
    if layout != i64::from(LAYOUT) {
        return Err(Fault::Found(Trouble::refused(format!(
            "{name} has layout {layout}; accepted: layout {LAYOUT}. Another version of wasmcron wrote it: \
             run that version, or give this one a file of its own"
        ))));
    }
    Ok(false)
}

/// Opens the file for writing, after nothing but reading has shown that it is empty or ours.
fn prepare(path: &Path, name: &str) -> Result<Connection, Fault> {
    let connection = raw(path)?;
    connection.execute_batch(&settings())?;
    let is_empty = recognise(&connection, name)?;
    if connection.is_readonly("main")? {
        return Err(Fault::Found(Trouble::refused(format!(
            "{name} is read-only; accepted: a file, in a folder, that this user may write"
        ))));
    }
    let mode: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    if mode != "wal" {
        return Err(Fault::Found(Trouble::refused(format!(
            "{name} keeps a log of kind {mode:?}; accepted: a file system where SQLite can have a \
             write-ahead log"
        ))));
    }
    if is_empty {
        begin_file(&connection, name)?;
    } else if fs::metadata(path).map_or(0, |file| file.len()) <= CHECK_MAX_BYTES {
        check(&connection, name)?;
    }
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
    Ok(connection)
}

/// Writes the layout, unless another process was faster.
fn begin_file(connection: &Connection, name: &str) -> Result<(), Fault> {
    connection.execute_batch("BEGIN IMMEDIATE")?;
    if recognise(connection, name)? {
        connection.execute_batch(&layout())?;
    }
    connection.execute_batch("COMMIT")?;
    Ok(())
}

/// All tables, with the two that hold no records.
pub(super) fn layout() -> String {
    let records: String = TABLES.iter().map(|table| create(table)).collect();
    format!(
        "{records}
         CREATE TABLE wasmcron_clock (id INTEGER PRIMARY KEY CHECK (id = 1), now INTEGER NOT NULL);
         INSERT INTO wasmcron_clock VALUES (1, 0);
         CREATE TABLE wasmcron_signals (
             id INTEGER PRIMARY KEY, source INTEGER NOT NULL, kind INTEGER NOT NULL, body TEXT NOT NULL
         );
         PRAGMA application_id = {APPLICATION_ID};
         PRAGMA user_version = {LAYOUT};"
    )
}

/// Reads the whole file for damage.
fn check(connection: &Connection, name: &str) -> Result<(), Fault> {
    let found: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if found == "ok" {
        return Ok(());
    }
    Err(Fault::Found(Trouble::refused(errors::damaged(
        name, &found,
    ))))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a killed process cannot show, as the kernel keeps what it wrote: that a power cut loses nothing.
    #[test]
    fn every_commit_is_flushed() {
        let folder = tempfile::tempdir().expect("a folder");
        let opened = open(&folder.path().join("store.db"), Duration::from_secs(5)).expect("a file");
        let synchronous = number(&opened.writer, "PRAGMA synchronous").expect("a number");
        assert_eq!(synchronous, 2, "FULL");
        let mode: String = opened
            .writer
            .query_row("PRAGMA journal_mode", [], |row| row.get(0))
            .expect("a mode");
        assert_eq!(mode, "wal");
    }

    #[test]
    fn a_network_is_refused_by_name_and_with_a_way_out() {
        let message = on_network("/mnt/fleet/store.db", "NFS");
        for words in [
            "/mnt/fleet/store.db lies on NFS",
            "write-ahead log needs memory",
            "local disk, or Redis",
        ] {
            assert!(message.contains(words), "{message}");
        }
    }
}
