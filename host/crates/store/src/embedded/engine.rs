//! What the verbs of the embedded store need of the place that keeps its records: transactions over
//! ordered tables.
//!
//! A verb is one function over a [`Tx`]; who runs it decides where the records live. It reads and
//! writes as if it were alone, and an error leaves nothing of what it wrote.

use std::fmt;
use std::ops::Bound;
use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use wasmcron_core::ids::PodAddress;
use wasmcron_core::time::Timestamp;

use crate::control::Wake;
use crate::error::Result;

/// The place of a record in its table. Records of one scope stand in the order of `order`, then `name`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// What the record belongs to, such as a job; empty in tables that are one list.
    pub scope: Arc<str>,
    /// Where it stands there: a time in milliseconds, a sequence, or 0.
    pub order: i64,
    /// Its name; empty where the order alone tells records apart.
    pub name: Arc<str>,
}

/// The empty text, which most keys have somewhere.
static EMPTY: LazyLock<Arc<str>> = LazyLock::new(|| "".into());

fn shared(text: &str) -> Arc<str> {
    if text.is_empty() {
        EMPTY.clone()
    } else {
        text.into()
    }
}

impl Key {
    /// Of a record that has a name and no order, in a table that is one list.
    #[must_use]
    pub fn named(name: &str) -> Key {
        Key::new("", 0, name)
    }

    /// Of any record.
    #[must_use]
    pub fn new(scope: &str, order: i64, name: &str) -> Key {
        Key {
            scope: shared(scope),
            order,
            name: shared(name),
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.scope, self.order, self.name)
    }
}

/// Keys of one scope, in order.
#[derive(Clone, Debug)]
pub struct Range {
    /// The scope.
    pub scope: Arc<str>,
    /// After this place, or from it on.
    pub from: Bound<(i64, Arc<str>)>,
    /// Up to this order, inclusive.
    pub to: i64,
    /// From the end to the beginning.
    pub backwards: bool,
}

impl Range {
    /// Everything in a scope.
    #[must_use]
    pub fn all(scope: &str) -> Range {
        Range {
            scope: shared(scope),
            from: Bound::Unbounded,
            to: i64::MAX,
            backwards: false,
        }
    }

    /// Up to this order, inclusive.
    #[must_use]
    pub fn up_to(self, to: i64) -> Range {
        Range { to, ..self }
    }

    /// What stands after this place.
    #[must_use]
    pub fn after(self, order: i64, name: &str) -> Range {
        Range {
            from: Bound::Excluded((order, shared(name))),
            ..self
        }
    }

    /// From the end to the beginning.
    #[must_use]
    pub fn backwards(self) -> Range {
        Range {
            backwards: true,
            ..self
        }
    }
}

/// A kind of record, kept in a table of its own.
pub trait Record: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// The table, in small letters and underscores.
    const TABLE: &'static str;
    /// What one record is, for people.
    const WHAT: &'static str;

    /// The record as bytes; JSON unless the record is bytes itself.
    ///
    /// # Errors
    /// When a value has no JSON.
    fn encode(&self) -> std::result::Result<Vec<u8>, String> {
        serde_json::to_vec(self).map_err(|error| error.to_string())
    }

    /// The record these bytes are.
    ///
    /// # Errors
    /// What is wrong with them, for people.
    fn decode(bytes: &[u8]) -> std::result::Result<Self, String> {
        serde_json::from_slice(bytes).map_err(|error| error.to_string())
    }
}

/// A record as a scan finds it.
#[derive(Clone, Debug)]
pub enum Found<R> {
    /// It decodes.
    Good(Arc<R>),
    /// It does not: its text, cut where it is long, and what is wrong with it.
    Broken {
        /// The text.
        text: String,
        /// What is wrong with it.
        message: String,
    },
}

/// One verb's view of the records.
pub trait Tx {
    /// The store's clock; the same throughout the transaction.
    fn now(&self) -> Timestamp;

    /// A record.
    ///
    /// # Errors
    /// `Corrupt` when it does not decode; else when the place cannot be read.
    fn get<R: Record>(&mut self, key: &Key) -> Result<Option<Arc<R>>>;

    /// Whether there is a record, be it broken.
    ///
    /// # Errors
    /// When the place cannot be read.
    fn contains<R: Record>(&mut self, key: &Key) -> Result<bool>;

    /// Writes a record over the one that may be there.
    ///
    /// # Errors
    /// When the place cannot be written, such as a full one.
    fn put<R: Record>(&mut self, key: Key, record: R) -> Result<()>;

    /// Removes a record; whether there was one.
    ///
    /// # Errors
    /// When the place cannot be written.
    fn remove<R: Record>(&mut self, key: &Key) -> Result<bool>;

    /// Records of a range, `limit` at most.
    ///
    /// # Errors
    /// When the place cannot be read; a broken record is no error here.
    fn scan<R: Record>(&mut self, range: &Range, limit: usize) -> Result<Vec<(Key, Found<R>)>>;

    /// How many records a range has.
    ///
    /// # Errors
    /// When the place cannot be read.
    fn count<R: Record>(&mut self, range: &Range) -> Result<u64>;

    /// Wakes everybody, once the transaction is kept.
    fn wake(&mut self, wake: Wake);

    /// Wakes whoever waits for tasks of this pod, once the transaction is kept.
    fn queued(&mut self, pod: &PodAddress);
}

/// Where records live, and who runs verbs over them one after another.
#[async_trait]
pub trait Engine: Send + Sync + 'static {
    /// Its transactions.
    type Tx<'a>: Tx;

    /// Runs a verb that may write. When this returns `Ok`, what it wrote is kept, whatever happens.
    ///
    /// # Errors
    /// The verb's own, or why its writes could not be kept; then none of them was.
    async fn write<T, F>(&self, verb: &'static str, body: F) -> Result<T>
    where
        T: Send + 'static,
        F: for<'a, 'b> FnOnce(&'a mut Self::Tx<'b>) -> Result<T> + Send + 'static;

    /// Runs a verb that only reads; writing in it is an error of the verb.
    ///
    /// # Errors
    /// The verb's own, or why the place cannot be read.
    async fn read<T, F>(&self, verb: &'static str, body: F) -> Result<T>
    where
        T: Send + 'static,
        F: for<'a, 'b> FnOnce(&'a mut Self::Tx<'b>) -> Result<T> + Send + 'static;

    /// Grows whenever a task may have come into this pod's queue, from this process or another.
    fn queue_changes(&self, pod: &PodAddress) -> watch::Receiver<u64>;

    /// Wake-ups from now on, from this process and others.
    fn wakes(&self) -> tokio::sync::broadcast::Receiver<Wake>;

    /// What about the place endangers what the store promises, in one sentence each.
    ///
    /// # Errors
    /// When the place cannot be read.
    async fn warnings(&self) -> Result<Vec<String>>;
}
