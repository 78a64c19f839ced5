//! One connection to the file, and the transactions on it.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OptionalExtension as _, Params, Row};
use wasmcron_core::time::Timestamp;

use super::clock::StoreClock;
use super::errors::{self, Checked, Trouble};
use super::identity::{self, Identity, Lost};
use super::signals::Signal;

/// Statements that a connection keeps prepared: about eight for each table.
const STATEMENTS_KEPT: usize = 512;
/// Pages of the write-ahead log after which a commit moves it into the file, as far as readers let it.
const CHECKPOINT_PAGES: u32 = 1_000;
/// Bytes of the write-ahead log that are left on disk once it has been moved.
const LOG_KEPT_BYTES: u64 = 4 * 1_024 * 1_024;
/// Bytes of the write-ahead log after which the writer waits for readers to let go of it.
const LOG_LARGE_BYTES: u64 = 16 * 1_024 * 1_024;
/// How long it waits.
const LOG_WAIT: Duration = Duration::from_millis(100);
/// How long it lets the log grow after it waited for nothing.
const LOG_PAUSE: Duration = Duration::from_secs(2);
/// Waits between tries to begin while another process writes. SQLite's own would grow to 100 ms.
const BUSY_PAUSES: (Duration, Duration) = (Duration::from_micros(200), Duration::from_millis(2));
/// Memory for pages, in KiB.
const CACHE_KIB: u32 = 16 * 1_024;
/// Signals that are kept for other processes. Who is further behind looks at everything.
pub(super) const SIGNALS_KEPT: i64 = 1_000;

/// Settings of every connection. `FULL` is what makes an acknowledged write outlive a power cut.
pub(super) fn settings() -> String {
    format!(
        "PRAGMA synchronous = FULL;
         PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES};
         PRAGMA journal_size_limit = {LOG_KEPT_BYTES};
         PRAGMA cache_size = -{CACHE_KIB};
         PRAGMA temp_store = MEMORY;
         PRAGMA trusted_schema = OFF;
         PRAGMA cell_size_check = ON;"
    )
}

/// A connection, with what is known of its file.
pub(super) struct Place {
    pub(super) connection: Connection,
    /// What the file is called in messages.
    pub(super) name: Arc<str>,
    /// Which file it is; none in memory.
    file: Option<Identity>,
    clock: Arc<StoreClock>,
    /// Identifies the signals of this process.
    source: i64,
    /// The time that stands in the file, as of this transaction.
    kept: Timestamp,
    /// Tables that exist for certain.
    tables: HashSet<&'static str>,
    /// Whether the transaction made a table, which a rollback takes away again.
    made_tables: bool,
    /// What last went wrong, in case it ended the transaction for all.
    pub(super) trouble: Option<Trouble>,
    log_pause_until: Option<Instant>,
}

impl Place {
    /// Over an open connection to a file that was found good.
    pub(super) fn new(
        connection: Connection,
        name: Arc<str>,
        file: Option<Identity>,
        clock: Arc<StoreClock>,
        source: i64,
    ) -> Place {
        connection.set_prepared_statement_cache_capacity(STATEMENTS_KEPT);
        Place {
            connection,
            name,
            file,
            clock,
            source,
            kept: Timestamp::EPOCH,
            tables: HashSet::new(),
            made_tables: false,
            trouble: None,
            log_pause_until: None,
        }
    }

    fn noted<T>(&mut self, answer: rusqlite::Result<T>) -> Checked<T> {
        answer.map_err(|error| {
            let trouble = errors::trouble(&self.name, &error);
            self.trouble = Some(trouble.clone());
            trouble
        })
    }

    /// Runs a statement; how many rows it changed.
    pub(super) fn execute(&mut self, sql: &str, params: impl Params) -> Checked<usize> {
        let answer = self
            .connection
            .prepare_cached(sql)
            .and_then(|mut statement| statement.execute(params));
        self.noted(answer)
    }

    /// The first row of an answer.
    pub(super) fn first<T>(
        &mut self,
        sql: &str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Checked<Option<T>> {
        let answer = self
            .connection
            .prepare_cached(sql)
            .and_then(|mut statement| statement.query_row(params, read).optional());
        self.noted(answer)
    }

    /// All rows of an answer.
    pub(super) fn all<T>(
        &mut self,
        sql: &str,
        params: impl Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Checked<Vec<T>> {
        let answer = self
            .connection
            .prepare_cached(sql)
            .and_then(|mut statement| statement.query_map(params, read)?.collect());
        self.noted(answer)
    }

    /// Begins a transaction that may write, as soon as no other process has one.
    pub(super) fn begin_write(&mut self, limit: Duration) -> Checked<()> {
        self.still_there()?;
        let began = Instant::now();
        let mut pause = BUSY_PAUSES.0;
        loop {
            let answer = self
                .connection
                .prepare_cached("BEGIN IMMEDIATE")
                .and_then(|mut statement| statement.execute([]));
            match answer {
                Ok(_) => break,
                Err(error) if errors::is_busy(&error) && began.elapsed() < limit => {
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(BUSY_PAUSES.1);
                }
                Err(error) if errors::is_busy(&error) => {
                    let name = &self.name;
                    return Err(Trouble::new(
                        errors::Kind::Unavailable,
                        format!(
                            "{name} was locked by another process for {limit:?}; {}",
                            errors::HELD
                        ),
                    ));
                }
                Err(error) => return self.noted(Err(error)),
            }
        }
        self.begun()
    }

    /// SQLite would go on writing into files that nobody else can find.
    fn still_there(&mut self) -> Checked<()> {
        let Some(lost) = self.file.as_ref().and_then(Identity::lost) else {
            return Ok(());
        };
        // A log without a name ends with the last process that has it open, however that ends. As long as
        // nobody has begun another one, what was acknowledged can still be brought into the file.
        let moved = matches!(lost, Lost::Side(_, false)) && self.truncate_log(LOG_WAIT);
        if !matches!(lost, Lost::Side(_, false)) {
            self.leave_alone();
        }
        Err(identity::refused(&self.name, &lost, moved))
    }

    /// From now on nothing of the log is moved into a file that others may have made anew.
    fn leave_alone(&mut self) {
        // If SQLite does not take it, it has nothing open either.
        let _ = self
            .connection
            .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
    }

    /// Begins a transaction that only reads, over the file as it is now.
    pub(super) fn begin_read(&mut self) -> Checked<()> {
        self.execute("BEGIN", [])?;
        self.begun()
    }

    fn begun(&mut self) -> Checked<()> {
        self.made_tables = false;
        self.trouble = None;
        let kept = self.first("SELECT now FROM wasmcron_clock", [], |row| row.get(0));
        match kept {
            Ok(kept) => {
                self.kept = Timestamp::from_millis(kept.unwrap_or(0));
                Ok(())
            }
            Err(trouble) => {
                self.roll_back();
                Err(trouble)
            }
        }
    }

    /// The store's clock.
    pub(super) fn now(&self) -> Timestamp {
        self.clock.now(self.kept)
    }

    /// Whether SQLite has ended the transaction by itself, as some errors make it do.
    pub(super) fn is_over(&self) -> bool {
        self.connection.is_autocommit()
    }

    /// Keeps everything since the beginning, with the signals, or says why nothing of it is kept.
    pub(super) fn commit(&mut self, wrote: bool, signals: &[Signal]) -> Checked<()> {
        let answer = self.finish(wrote, signals);
        if answer.is_err() {
            self.roll_back();
        }
        answer
    }

    fn finish(&mut self, wrote: bool, signals: &[Signal]) -> Checked<()> {
        for signal in signals {
            let (kind, body) = signal.row();
            self.execute(
                "INSERT INTO wasmcron_signals (source, kind, body) VALUES (?1, ?2, ?3)",
                (self.source, kind, body),
            )?;
        }
        if !signals.is_empty() {
            let last = self.connection.last_insert_rowid();
            self.execute(
                "DELETE FROM wasmcron_signals WHERE id <= ?1",
                [last - SIGNALS_KEPT],
            )?;
        }
        if wrote || !signals.is_empty() {
            // Whoever writes next, after a reboot or in another process, is not earlier than this.
            let now = self.now().as_millis();
            self.execute("UPDATE wasmcron_clock SET now = ?1", [now])?;
        }
        self.execute("COMMIT", [])?;
        Ok(())
    }

    /// Takes everything back.
    pub(super) fn roll_back(&mut self) {
        if !self.is_over() {
            // An error here leaves a transaction that the next BEGIN complains about.
            let _ = self.execute("ROLLBACK", []);
        }
    }

    /// Takes back what was done since the savepoint.
    pub(super) fn roll_back_verb(&mut self) -> Checked<()> {
        self.execute("ROLLBACK TO verb", [])?;
        self.execute("RELEASE verb", [])?;
        Ok(())
    }

    /// Whether a table of records exists.
    pub(super) fn has_table(&mut self, table: &'static str) -> Checked<bool> {
        if self.tables.contains(table) {
            return Ok(true);
        }
        let found = self.first(
            "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?1",
            [table],
            |_| Ok(()),
        )?;
        // What a transaction made itself may still go away; what it found was kept by an earlier one.
        if found.is_some() && !self.made_tables {
            self.tables.insert(table);
        }
        Ok(found.is_some())
    }

    /// Makes a table of records unless it exists.
    pub(super) fn make_table(&mut self, table: &'static str) -> Checked<()> {
        if self.has_table(table)? {
            return Ok(());
        }
        self.execute(&create(table), [])?;
        self.made_tables = true;
        Ok(())
    }

    /// Keeps the write-ahead log small. A commit does so by itself unless somebody reads all the time.
    pub(super) fn tidy(&mut self) {
        let Some(file) = &self.file else { return };
        let bytes = std::fs::metadata(file.log()).map_or(0, |file| file.len());
        let now = Instant::now();
        if bytes < LOG_LARGE_BYTES || self.log_pause_until.is_some_and(|until| now < until) {
            return;
        }
        let done = self.truncate_log(LOG_WAIT);
        self.log_pause_until = (!done).then(|| now + LOG_PAUSE);
        if !done {
            let name = &self.name;
            tracing::warn!(store = %name, bytes, "the write-ahead log grows: some process reads for long");
        }
    }

    /// Moves the whole write-ahead log into the file; whether that could be done.
    pub(super) fn truncate_log(&mut self, wait: Duration) -> bool {
        match self.file.as_ref().map(Identity::lost) {
            None => return true,
            Some(None | Some(Lost::Side(_, false))) => {}
            Some(Some(_)) => return false,
        }
        let truncate = || {
            self.connection.busy_timeout(wait)?;
            let busy: i64 =
                self.connection
                    .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))?;
            Ok::<bool, rusqlite::Error>(busy == 0)
        };
        let done = truncate().unwrap_or(false);
        // Beginning a transaction waits in its own way.
        let _ = self.connection.busy_timeout(Duration::ZERO);
        done
    }
}

/// A table of records. With a row id, because records of some hundred bytes, checkpoints above all, would
/// make the inner pages of a table without one carry them too.
pub(super) fn create(table: &str) -> String {
    format!(
        "CREATE TABLE IF NOT EXISTS \"{table}\" (
            scope TEXT NOT NULL, at INTEGER NOT NULL, name TEXT NOT NULL, value BLOB NOT NULL,
            PRIMARY KEY (scope, at, name)
        );"
    )
}

/// Bytes of the write-ahead log after which an operator is told.
pub(super) const LOG_WARN_BYTES: u64 = 4 * LOG_LARGE_BYTES;
