//! A transaction in memory.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use wasmcron_core::ids::PodAddress;
use wasmcron_core::time::Timestamp;
use wasmcron_store::control::Wake;
use wasmcron_store::embedded::engine::{Found, Key, Range, Record, Tx};
use wasmcron_store::{Result, StoreError};

use super::table::{AnyTable, Slot, Table, broken_message};

/// Type ids are hashes already.
#[derive(Default)]
pub(super) struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

/// All tables, by the type of their records.
pub(super) type Tables = HashMap<TypeId, Box<dyn AnyTable>, BuildHasherDefault<AsItIs>>;

/// What a kept transaction has to tell.
#[derive(Default)]
pub(super) struct News {
    pub(super) wakes: Vec<Wake>,
    pub(super) queued: Vec<PodAddress>,
}

/// A transaction: alone with all tables until it is kept, or dropped and taken back.
pub struct MemoryTx<'a> {
    tables: &'a mut Tables,
    now: Timestamp,
    /// The verb that may write; none for one that only reads.
    writes: bool,
    verb: &'static str,
    touched: Vec<TypeId>,
    news: News,
}

impl<'a> MemoryTx<'a> {
    pub(super) fn new(
        tables: &'a mut Tables,
        now: Timestamp,
        verb: &'static str,
        writes: bool,
    ) -> MemoryTx<'a> {
        MemoryTx {
            tables,
            now,
            writes,
            verb,
            touched: Vec::new(),
            news: News::default(),
        }
    }

    /// Keeps what was written.
    pub(super) fn keep(mut self) -> News {
        for id in std::mem::take(&mut self.touched) {
            if let Some(table) = self.tables.get_mut(&id) {
                table.commit();
            }
        }
        std::mem::take(&mut self.news)
    }

    fn table<R: Record>(&self) -> Option<&Table<R>> {
        let table: &dyn Any = &**self.tables.get(&TypeId::of::<R>())?;
        table.downcast_ref()
    }

    fn write<R: Record>(&mut self, key: Key, slot: Option<Slot<R>>) -> Result<bool> {
        let refused = |message: &str| StoreError::Refused {
            verb: self.verb,
            message: message.to_owned(),
        };
        if !self.writes {
            return Err(refused("a verb that only reads writes"));
        }
        let id = TypeId::of::<R>();
        let make = || -> Box<dyn AnyTable> { Box::new(Table::<R>::default()) };
        let any: &mut dyn Any = &mut **self.tables.entry(id).or_insert_with(make);
        let Some(table) = any.downcast_mut::<Table<R>>() else {
            return Err(refused("a table holds other records"));
        };
        if table.is_clean() {
            self.touched.push(id);
        }
        Ok(table.write(key, slot))
    }

    /// Puts a text into a record's place that is no such record.
    ///
    /// # Errors
    /// In a transaction that only reads.
    pub fn spoil<R: Record>(&mut self, key: Key, text: &str) -> Result<()> {
        self.write::<R>(key, Some(Slot::Broken(text.into())))
            .map(drop)
    }

    /// Every record of a table, by scope, then in order.
    #[must_use]
    pub fn every<R: Record>(&self) -> Vec<(Key, Found<R>)> {
        let Some(table) = self.table::<R>() else {
            return Vec::new();
        };
        let scopes = table.scopes();
        let all = scopes
            .iter()
            .map(|scope| table.scan(&Range::all(scope), usize::MAX));
        all.flatten().collect()
    }
}

impl Drop for MemoryTx<'_> {
    /// What was not kept is taken back, also when a verb panics.
    fn drop(&mut self) {
        for id in &self.touched {
            if let Some(table) = self.tables.get_mut(id) {
                table.roll_back();
            }
        }
    }
}

impl Tx for MemoryTx<'_> {
    fn now(&self) -> Timestamp {
        self.now
    }

    fn get<R: Record>(&mut self, key: &Key) -> Result<Option<Arc<R>>> {
        match self.table::<R>().and_then(|table| table.get(key)) {
            None => Ok(None),
            Some(Slot::Good(record)) => Ok(Some(record.clone())),
            Some(Slot::Broken(text)) => Err(StoreError::Corrupt {
                key: format!("{} {key:?}", R::TABLE),
                what: R::WHAT,
                message: broken_message::<R>(text),
            }),
        }
    }

    fn contains<R: Record>(&mut self, key: &Key) -> Result<bool> {
        let table = self.table::<R>();
        Ok(table.is_some_and(|table| table.get(key).is_some()))
    }

    fn put<R: Record>(&mut self, key: Key, record: R) -> Result<()> {
        self.write(key, Some(Slot::Good(Arc::new(record))))
            .map(drop)
    }

    fn remove<R: Record>(&mut self, key: &Key) -> Result<bool> {
        if !self.contains::<R>(key)? {
            return Ok(false);
        }
        self.write::<R>(key.clone(), None)
    }

    fn scan<R: Record>(&mut self, range: &Range, limit: usize) -> Result<Vec<(Key, Found<R>)>> {
        let table = self.table::<R>();
        Ok(table.map_or_else(Vec::new, |table| table.scan(range, limit)))
    }

    fn count<R: Record>(&mut self, range: &Range) -> Result<u64> {
        let count = self.table::<R>().map_or(0, |table| table.count(range));
        Ok(u64::try_from(count).unwrap_or(u64::MAX))
    }

    fn wake(&mut self, wake: Wake) {
        self.news.wakes.push(wake);
    }

    fn queued(&mut self, pod: &PodAddress) {
        self.news.queued.push(pod.clone());
    }
}
