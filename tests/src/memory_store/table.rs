//! Rows of one kind in memory, with what a transaction needs to take its writes back.

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use wasmcron_store::embedded::engine::{Found, Key, Range, Record};

/// A row: a record, or a text that is none.
pub(super) enum Slot<R> {
    Good(Arc<R>),
    Broken(Arc<str>),
}

impl<R> Clone for Slot<R> {
    fn clone(&self) -> Slot<R> {
        match self {
            Slot::Good(record) => Slot::Good(record.clone()),
            Slot::Broken(text) => Slot::Broken(text.clone()),
        }
    }
}

impl<R: Record> Slot<R> {
    pub(super) fn found(&self) -> Found<R> {
        match self {
            Slot::Good(record) => Found::Good(record.clone()),
            Slot::Broken(text) => Found::Broken {
                message: broken_message::<R>(text),
                text: text.to_string(),
            },
        }
    }
}

/// What is wrong with a text.
pub(super) fn broken_message<R: Record>(text: &str) -> String {
    match R::decode(text.as_bytes()) {
        Ok(_) => "it was put there as broken".to_owned(),
        Err(message) => message,
    }
}

/// Where a row stands in its scope.
type Place = (i64, Arc<str>);
/// The rows of a scope, in order; copied by who writes while a snapshot shares them.
type Rows<R> = Arc<BTreeMap<Place, Slot<R>>>;

/// A table of records of one kind.
pub(super) struct Table<R> {
    /// The scope without a name, where most tables have all their rows.
    flat: Rows<R>,
    scopes: HashMap<Arc<str>, Rows<R>>,
    /// What the transaction under way wrote over.
    undo: Vec<(Key, Option<Slot<R>>)>,
}

impl<R> Default for Table<R> {
    fn default() -> Table<R> {
        Table {
            flat: Arc::default(),
            scopes: HashMap::new(),
            undo: Vec::new(),
        }
    }
}

impl<R: Record> Table<R> {
    fn rows(&self, scope: &str) -> Option<&Rows<R>> {
        if scope.is_empty() {
            Some(&self.flat)
        } else {
            self.scopes.get(scope)
        }
    }

    pub(super) fn get(&self, key: &Key) -> Option<&Slot<R>> {
        self.rows(&key.scope)?.get(&(key.order, key.name.clone()))
    }

    fn set(&mut self, key: &Key, slot: Option<Slot<R>>) -> Option<Slot<R>> {
        let place = (key.order, key.name.clone());
        let flat = key.scope.is_empty();
        let rows = if flat {
            Arc::make_mut(&mut self.flat)
        } else if slot.is_none() {
            Arc::make_mut(self.scopes.get_mut(&key.scope)?)
        } else {
            Arc::make_mut(self.scopes.entry(key.scope.clone()).or_default())
        };
        let before = match slot {
            Some(slot) => rows.insert(place, slot),
            None => rows.remove(&place),
        };
        if !flat && rows.is_empty() {
            self.scopes.remove(&key.scope);
        }
        before
    }

    /// Writes or removes a row; whether there was one.
    pub(super) fn write(&mut self, key: Key, slot: Option<Slot<R>>) -> bool {
        let before = self.set(&key, slot);
        let was = before.is_some();
        self.undo.push((key, before));
        was
    }

    /// Whether the transaction under way wrote nothing yet.
    pub(super) fn is_clean(&self) -> bool {
        self.undo.is_empty()
    }

    fn within<'r>(
        &'r self,
        range: &Range,
    ) -> Option<impl DoubleEndedIterator<Item = (&'r Place, &'r Slot<R>)>> {
        let to = match range.to.checked_add(1) {
            Some(end) => Bound::Excluded((end, Arc::from(""))),
            None => Bound::Unbounded,
        };
        // A range that ends before it begins is empty, and no panic.
        if let Bound::Included((from, _)) | Bound::Excluded((from, _)) = &range.from
            && *from > range.to
        {
            return None;
        }
        Some(self.rows(&range.scope)?.range((range.from.clone(), to)))
    }

    pub(super) fn scan(&self, range: &Range, limit: usize) -> Vec<(Key, Found<R>)> {
        let Some(rows) = self.within(range) else {
            return Vec::new();
        };
        let one = |((order, name), slot): (&Place, &Slot<R>)| {
            let key = Key {
                scope: range.scope.clone(),
                order: *order,
                name: name.clone(),
            };
            (key, slot.found())
        };
        if range.backwards {
            rows.rev().take(limit).map(one).collect()
        } else {
            rows.take(limit).map(one).collect()
        }
    }

    pub(super) fn count(&self, range: &Range) -> usize {
        if range.to == i64::MAX && range.from == Bound::Unbounded {
            return self.rows(&range.scope).map_or(0, |rows| rows.len());
        }
        self.within(range).map_or(0, Iterator::count)
    }

    /// The names of all scopes that have rows, in order.
    pub(super) fn scopes(&self) -> Vec<Arc<str>> {
        let mut scopes: Vec<Arc<str>> = self.scopes.keys().cloned().collect();
        scopes.push("".into());
        scopes.sort();
        scopes
    }
}

/// A table, whatever its records are.
pub(super) trait AnyTable: Any + Send {
    /// The same rows, shared.
    fn snapshot(&self) -> Box<dyn AnyTable>;
    /// Keeps what the transaction wrote.
    fn commit(&mut self);
    /// Takes back what the transaction wrote.
    fn roll_back(&mut self);
}

impl<R: Record> AnyTable for Table<R> {
    fn snapshot(&self) -> Box<dyn AnyTable> {
        Box::new(Table {
            flat: self.flat.clone(),
            scopes: self.scopes.clone(),
            undo: Vec::new(),
        })
    }

    fn commit(&mut self) {
        self.undo.clear();
    }

    fn roll_back(&mut self) {
        while let Some((key, before)) = self.undo.pop() {
            self.set(&key, before);
        }
    }
}
