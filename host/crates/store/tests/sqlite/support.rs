//! Records of no meaning, and engines over them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use wasmcron_core::time::Timestamp;
use wasmcron_store::embedded::engine::{Engine as _, Found, Key, Range, Record, Tx as _};
use wasmcron_store::sqlite::{SqliteEngine, SqliteOptions, WallClock};
use wasmcron_store::{Result, StoreError};

/// A record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    pub text: String,
}

impl Record for Note {
    const TABLE: &'static str = "notes";
    const WHAT: &'static str = "a note";
}

/// Another, whose table has a name that SQL has a use for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group(pub u64);

impl Record for Group {
    const TABLE: &'static str = "group";
    const WHAT: &'static str = "a number";
}

pub fn note(text: &str) -> Note {
    Note {
        text: text.to_owned(),
    }
}

/// A folder for one test, and the path of a store in it.
pub fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store.db");
    (folder, path)
}

/// Patient, as machines that run tests are slow.
pub fn options(path: &Path) -> SqliteOptions {
    SqliteOptions {
        response_timeout: Duration::from_secs(10),
        ..SqliteOptions::new(path)
    }
}

pub async fn open(path: &Path) -> SqliteEngine {
    SqliteEngine::open(options(path)).await.expect("an engine")
}

/// Impatient, for tests of what happens when there is no answer.
pub async fn open_impatient(path: &Path, limit: Duration) -> SqliteEngine {
    let options = SqliteOptions {
        response_timeout: limit,
        ..SqliteOptions::new(path)
    };
    SqliteEngine::open(options).await.expect("an engine")
}

pub async fn memory() -> SqliteEngine {
    let options = SqliteOptions {
        response_timeout: Duration::from_secs(10),
        ..SqliteOptions::in_memory()
    };
    SqliteEngine::open(options).await.expect("an engine")
}

/// A clock that a test sets.
pub fn set_clock(millis: i64) -> (WallClock, Arc<AtomicI64>) {
    let now = Arc::new(AtomicI64::new(millis));
    let read = now.clone();
    let clock = move || Timestamp::from_millis(read.load(Ordering::SeqCst));
    (Arc::new(clock), now)
}

pub async fn put(engine: &SqliteEngine, key: Key, text: &str) -> Result<()> {
    let record = note(text);
    engine.write("put", move |tx| tx.put(key, record)).await
}

pub async fn get(engine: &SqliteEngine, key: Key) -> Result<Option<String>> {
    let found = engine.read("get", move |tx| tx.get::<Note>(&key)).await?;
    Ok(found.map(|note| note.text.clone()))
}

pub async fn count(engine: &SqliteEngine) -> u64 {
    let counted = engine.read("count", |tx| tx.count::<Note>(&Range::all("")));
    counted.await.expect("a count")
}

pub async fn scan(engine: &SqliteEngine, range: Range, limit: usize) -> Vec<String> {
    let rows = engine.read("scan", move |tx| tx.scan::<Note>(&range, limit));
    let shown = |(key, found): (Key, Found<Note>)| match found {
        Found::Good(note) => format!("{key:?}={}", note.text),
        Found::Broken { text, .. } => format!("{key:?} broken {text}"),
    };
    rows.await.expect("a scan").into_iter().map(shown).collect()
}

pub fn bad(verb: &'static str) -> StoreError {
    StoreError::Refused {
        verb,
        message: "the test says no".to_owned(),
    }
}

/// Runs a test that waits.
pub fn on_runtime(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(test);
}
