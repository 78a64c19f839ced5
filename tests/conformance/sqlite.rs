//! The conformance suite over the embedded store's verbs in a SQLite file, whose clock a case moves.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use rusqlite::Connection;
use wasmcron_core::ids::RunId;
use wasmcron_store::Store;
use wasmcron_store::embedded::engine::{Engine as _, Key, Record, Tx as _};
use wasmcron_store::embedded::records::{
    Active, Claiming, Delayed, Due, Lock, Queued, Running, Scheduled,
};
use wasmcron_store::embedded::{EmbeddedOptions, EmbeddedStore};
use wasmcron_store::recovery::Register;
use wasmcron_store::sqlite::{SqliteEngine, SqliteOptions, wall_clock};
use wasmcron_tests::conformance::{Damage, Harness, Settings, World};

use crate::harness::on_runtime;

/// A file in a folder of its own, and how far its clock was moved.
pub struct SqliteHarness {
    _folder: tempfile::TempDir,
    pub path: PathBuf,
    passed: Arc<AtomicU64>,
    remembered: Mutex<HashMap<RunId, Vec<u8>>>,
}

impl SqliteHarness {
    pub fn start() -> SqliteHarness {
        let folder = tempfile::tempdir().expect("a folder");
        SqliteHarness {
            path: folder.path().join("store.db"),
            _folder: folder,
            passed: Arc::default(),
            remembered: Mutex::default(),
        }
    }

    /// What another process would open.
    pub async fn engine(&self) -> SqliteEngine {
        let (wall, passed) = (wall_clock(), self.passed.clone());
        let options = SqliteOptions {
            // Machines that run tests are slower than those that run pods.
            response_timeout: Duration::from_secs(10),
            clock: Arc::new(move || wall() + Duration::from_millis(passed.load(Ordering::SeqCst))),
            ..SqliteOptions::new(&self.path)
        };
        SqliteEngine::open(options).await.expect("the engine")
    }

    /// A connection that does what no verb does.
    pub fn hand(&self) -> Connection {
        let hand = Connection::open(&self.path).expect("a connection");
        hand.busy_timeout(Duration::from_secs(10))
            .expect("patience");
        hand
    }

    fn order(&self, sql: &str, scope_or_name: &str) {
        let done = self.hand().execute(sql, [scope_or_name]);
        done.expect("damage");
    }

    fn remove<R: Record>(&self, name: &str) {
        let sql = format!("DELETE FROM \"{}\" WHERE name = ?1", R::TABLE);
        self.order(&sql, name);
    }

    fn remove_scope<R: Record>(&self, scope: &str) {
        let sql = format!("DELETE FROM \"{}\" WHERE scope = ?1", R::TABLE);
        self.order(&sql, scope);
    }

    fn bytes(&self, register: Register, run: &RunId) -> Vec<u8> {
        let sql = format!("SELECT value FROM {} WHERE name = ?1", table(register));
        let hand = self.hand();
        let bytes = hand.query_row(&sql, [run.as_str()], |row| row.get(0));
        bytes.expect("an entry")
    }

    fn forget_all(&self) {
        let hand = self.hand();
        let mut names = hand
            .prepare(
                "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'wasmcron%'",
            )
            .expect("a question");
        let names = names
            .query_map([], |row| row.get::<_, String>(0))
            .expect("tables");
        for name in names {
            let sql = format!("DELETE FROM \"{}\"", name.expect("a name"));
            hand.execute(&sql, []).expect("an empty table");
        }
    }

    /// Writes as no verb does, in one transaction.
    async fn restore(&self, register: Register, run: &RunId, bytes: &[u8]) {
        let key = Key::named(run.as_str());
        let bytes = bytes.to_vec();
        if register == Register::Delayed {
            // A run has one due time in every store.
            self.remove::<Due>(run.as_str());
        }
        let engine = self.engine().await;
        let written = engine.write("restore", move |tx| match register {
            Register::Scheduled => tx.put(key, Scheduled::decode(&bytes).expect("an entry")),
            Register::Running => tx.put(key, Running::decode(&bytes).expect("an entry")),
            Register::Delayed => {
                let entry = Delayed::decode(&bytes).expect("an entry");
                if let Some(due) = entry.due {
                    tx.put(Key::new("", due.as_millis(), &key.name), Due {})?;
                }
                tx.put(key, entry)
            }
        });
        written.await.expect("an entry");
    }
}

fn table(register: Register) -> &'static str {
    match register {
        Register::Scheduled => Scheduled::TABLE,
        Register::Running => Running::TABLE,
        Register::Delayed => Delayed::TABLE,
    }
}

#[async_trait]
impl Harness for SqliteHarness {
    /// Each store is what another process would have: nothing but the file is shared.
    async fn store(&self, settings: Settings) -> Arc<dyn Store> {
        let options = EmbeddedOptions {
            retention: settings.retention,
            recovery_window: settings.recovery_window,
            ..EmbeddedOptions::default()
        };
        Arc::new(EmbeddedStore::new(Arc::new(self.engine().await), options))
    }

    async fn pass(&self, time: Duration) {
        let millis = u64::try_from(time.as_millis()).expect("a short time");
        self.passed.fetch_add(millis.max(1), Ordering::SeqCst);
        tokio::task::yield_now().await;
    }

    async fn damage(&self, damage: Damage) {
        match damage {
            Damage::QueueLost(pod) => {
                self.remove_scope::<Queued>(pod.address.as_str());
                self.remove_scope::<Claiming>(pod.address.as_str());
            }
            Damage::QueueEntry(pod, text) => {
                let hand = self.hand();
                let sql = "INSERT INTO tasks VALUES (?1, ?2, ?3, ?3)";
                let row = (pod.address.as_str(), i64::MAX, &text);
                hand.execute(sql, row).expect("an entry");
            }
            Damage::LockLost(job) => self.remove::<Lock>(job.as_str()),
            Damage::PlaceLost(job) => self.remove::<Active>(job.as_str()),
            Damage::EntryLost(Register::Scheduled, run) => self.remove::<Scheduled>(run.as_str()),
            Damage::EntryLost(Register::Running, run) => self.remove::<Running>(run.as_str()),
            Damage::EntryLost(Register::Delayed, run) => self.remove::<Delayed>(run.as_str()),
            Damage::EntryCut(register, run) => {
                let bytes = self.bytes(register, &run);
                let sql = format!("UPDATE {} SET value = ?1 WHERE name = ?2", table(register));
                let cut = &bytes[..bytes.len() * 2 / 3];
                let done = self.hand().execute(&sql, (cut, run.as_str()));
                assert_eq!(done.expect("damage"), 1);
            }
            Damage::Remember(register, run) => {
                let bytes = self.bytes(register, &run);
                let mut remembered = self.remembered.lock().expect("no case panics with it");
                remembered.insert(run, bytes);
            }
            Damage::Restore(register, run) => {
                let bytes = self.remembered.lock().expect("no case panics with it")[&run].clone();
                self.restore(register, &run, &bytes).await;
            }
            Damage::AllLost => self.forget_all(),
        }
    }
}

fn run<F: Future<Output = ()>>(case: impl FnOnce(World) -> F) {
    on_runtime(async {
        case(World::new(Arc::new(SqliteHarness::start())).await).await;
    });
}

macro_rules! tests {
    ($($group:ident: [$($case:ident),* $(,)?]),* $(,)?) => {
        $(mod $group {
            $(
                #[test]
                fn $case() {
                    crate::sqlite::run(wasmcron_tests::conformance::$group::$case);
                }
            )*
        })*
    };
}

wasmcron_tests::conformance_cases!(tests);
