//! A verb's view of the records: keys and ranges as SQL.

use std::ops::Bound;
use std::sync::Arc;

use rusqlite::Row;
use wasmcron_core::ids::PodAddress;
use wasmcron_core::time::Timestamp;

use super::connection::Place;
use super::errors::Trouble;
use super::signals::Signal;
use crate::control::Wake;
use crate::embedded::engine::{Found, Key, Range, Record, Tx};
use crate::error::{Result, StoreError};

/// Longest text of a broken record that is passed on, in characters: as much as a dead letter keeps.
const TEXT_MAX: usize = 65_536;

/// One verb's transaction on a SQLite file.
pub struct SqliteTx<'a> {
    place: &'a mut Place,
    verb: &'static str,
    now: Timestamp,
    may_write: bool,
    signals: &'a mut Vec<Signal>,
}

impl<'a> SqliteTx<'a> {
    /// Within the place's transaction.
    pub(super) fn new(
        place: &'a mut Place,
        verb: &'static str,
        may_write: bool,
        signals: &'a mut Vec<Signal>,
    ) -> SqliteTx<'a> {
        SqliteTx {
            now: place.now(),
            place,
            verb,
            may_write,
            signals,
        }
    }

    fn error(&self, trouble: &Trouble) -> StoreError {
        trouble.error(self.verb)
    }

    fn must_write(&self) -> Result<()> {
        if self.may_write {
            return Ok(());
        }
        Err(StoreError::Refused {
            verb: self.verb,
            message: format!("{} only reads, and tried to write", self.verb),
        })
    }

    fn has<R: Record>(&mut self) -> Result<bool> {
        let verb = self.verb;
        let answer = self.place.has_table(R::TABLE);
        answer.map_err(|trouble| trouble.error(verb))
    }

    fn corrupt<R: Record>(&self, key: &Key, message: String) -> StoreError {
        StoreError::Corrupt {
            key: format!("{} {key:?} in {}", R::TABLE, self.place.name),
            what: R::WHAT,
            message,
        }
    }
}

/// The bytes of a value, also where a hand wrote them as text.
fn bytes(row: &Row<'_>, column: usize) -> rusqlite::Result<Vec<u8>> {
    let value = row.get_ref(column)?;
    Ok(value.as_bytes_or_null()?.unwrap_or_default().to_vec())
}

/// The condition of a range, with its parameters `?1` to `?4`, and its order.
fn condition(range: &Range) -> (&'static str, i64, Arc<str>) {
    match &range.from {
        Bound::Unbounded => (">=", i64::MIN, "".into()),
        Bound::Included((order, name)) => (">=", *order, name.clone()),
        Bound::Excluded((order, name)) => (">", *order, name.clone()),
    }
}

fn found<R: Record>(bytes: &[u8]) -> Found<R> {
    match R::decode(bytes) {
        Ok(record) => Found::Good(Arc::new(record)),
        Err(message) => Found::Broken {
            text: String::from_utf8_lossy(bytes)
                .chars()
                .take(TEXT_MAX)
                .collect(),
            message,
        },
    }
}

impl Tx for SqliteTx<'_> {
    fn now(&self) -> Timestamp {
        self.now
    }

    fn get<R: Record>(&mut self, key: &Key) -> Result<Option<Arc<R>>> {
        if !self.has::<R>()? {
            return Ok(None);
        }
        let sql = format!(
            "SELECT value FROM \"{}\" WHERE scope = ?1 AND at = ?2 AND name = ?3",
            R::TABLE
        );
        // Decoded where it lies: a checkpoint may be large.
        let answer = self
            .place
            .first(&sql, (&*key.scope, key.order, &*key.name), |row| {
                Ok(R::decode(
                    row.get_ref(0)?.as_bytes_or_null()?.unwrap_or_default(),
                ))
            });
        match answer.map_err(|trouble| self.error(&trouble))? {
            None => Ok(None),
            Some(Ok(record)) => Ok(Some(Arc::new(record))),
            Some(Err(message)) => Err(self.corrupt::<R>(key, message)),
        }
    }

    fn contains<R: Record>(&mut self, key: &Key) -> Result<bool> {
        if !self.has::<R>()? {
            return Ok(false);
        }
        let sql = format!(
            "SELECT 1 FROM \"{}\" WHERE scope = ?1 AND at = ?2 AND name = ?3",
            R::TABLE
        );
        let answer = self
            .place
            .first(&sql, (&*key.scope, key.order, &*key.name), |_| Ok(()));
        Ok(answer.map_err(|trouble| self.error(&trouble))?.is_some())
    }

    fn put<R: Record>(&mut self, key: Key, record: R) -> Result<()> {
        self.must_write()?;
        let value = record.encode().map_err(|message| StoreError::Refused {
            verb: self.verb,
            message: format!("{} {key:?} cannot be written down: {message}", R::TABLE),
        })?;
        let sql = format!(
            "INSERT INTO \"{}\" (scope, at, name, value) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (scope, at, name) DO UPDATE SET value = excluded.value",
            R::TABLE
        );
        let answer = self.place.make_table(R::TABLE).and_then(|()| {
            self.place
                .execute(&sql, (&*key.scope, key.order, &*key.name, value))
        });
        answer.map(drop).map_err(|trouble| self.error(&trouble))
    }

    fn remove<R: Record>(&mut self, key: &Key) -> Result<bool> {
        self.must_write()?;
        if !self.has::<R>()? {
            return Ok(false);
        }
        let sql = format!(
            "DELETE FROM \"{}\" WHERE scope = ?1 AND at = ?2 AND name = ?3",
            R::TABLE
        );
        let answer = self
            .place
            .execute(&sql, (&*key.scope, key.order, &*key.name));
        Ok(answer.map_err(|trouble| self.error(&trouble))? > 0)
    }

    fn scan<R: Record>(&mut self, range: &Range, limit: usize) -> Result<Vec<(Key, Found<R>)>> {
        if !self.has::<R>()? {
            return Ok(Vec::new());
        }
        let (compare, order, name) = condition(range);
        let direction = if range.backwards { "DESC" } else { "ASC" };
        let sql = format!(
            "SELECT at, name, value FROM \"{}\"
             WHERE scope = ?1 AND (at, name) {compare} (?2, ?3) AND at <= ?4
             ORDER BY at {direction}, name {direction} LIMIT ?5",
            R::TABLE
        );
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let answer = self.place.all(
            &sql,
            (&*range.scope, order, &*name, range.to, limit),
            |row| {
                let key = Key {
                    scope: range.scope.clone(),
                    order: row.get(0)?,
                    name: row.get(1)?,
                };
                Ok((key, found(&bytes(row, 2)?)))
            },
        );
        answer.map_err(|trouble| self.error(&trouble))
    }

    fn count<R: Record>(&mut self, range: &Range) -> Result<u64> {
        if !self.has::<R>()? {
            return Ok(0);
        }
        let (compare, order, name) = condition(range);
        let sql = format!(
            "SELECT count(*) FROM \"{}\"
             WHERE scope = ?1 AND (at, name) {compare} (?2, ?3) AND at <= ?4",
            R::TABLE
        );
        let answer = self
            .place
            .first(&sql, (&*range.scope, order, &*name, range.to), |row| {
                row.get::<_, i64>(0)
            });
        let count = answer.map_err(|trouble| self.error(&trouble))?;
        Ok(u64::try_from(count.unwrap_or(0)).unwrap_or(0))
    }

    fn wake(&mut self, wake: Wake) {
        self.signals.push(Signal::Wake(wake));
    }

    fn queued(&mut self, pod: &PodAddress) {
        self.signals.push(Signal::Queued(pod.clone()));
    }
}
