//! The conformance suite over the embedded store's verbs in memory, on tokio's paused clock.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use wasmcron_core::ids::RunId;
use wasmcron_core::time::Timestamp;
use wasmcron_store::Store;
use wasmcron_store::embedded::engine::{Key, Range, Record, Tx as _};
use wasmcron_store::embedded::records::{
    Active, Claiming, Delayed, Due, Lock, Queued, Running, Scheduled,
};
use wasmcron_store::embedded::{EmbeddedOptions, EmbeddedStore};
use wasmcron_store::recovery::Register;
use wasmcron_tests::conformance::{Damage, Harness, Settings, World};
use wasmcron_tests::memory_store::{MemoryEngine, MemoryTx};

/// An entry of a register that damage put aside.
#[derive(Clone)]
enum Remembered {
    Scheduled(Arc<Scheduled>),
    Running(Arc<Running>),
    Delayed(Arc<Delayed>),
}

pub struct MemoryHarness {
    pub engine: Arc<MemoryEngine>,
    remembered: Mutex<HashMap<RunId, Remembered>>,
}

impl MemoryHarness {
    pub fn start() -> MemoryHarness {
        let start = Timestamp::from_millis(1_795_000_000_000);
        MemoryHarness::over(Arc::new(MemoryEngine::on_tokio(start)))
    }

    /// Over records on a clock of one's own choice.
    pub fn over(engine: Arc<MemoryEngine>) -> MemoryHarness {
        MemoryHarness {
            engine,
            remembered: Mutex::default(),
        }
    }

    fn edit(&self, damage: impl FnOnce(&mut MemoryTx<'_>) -> wasmcron_store::Result<()>) {
        self.engine.edit(damage).expect("damage");
    }

    fn remember(&self, register: Register, run: &RunId) -> Remembered {
        let key = named(run);
        self.engine
            .edit(|tx| {
                Ok(match register {
                    Register::Scheduled => tx.get(&key)?.map(Remembered::Scheduled),
                    Register::Running => tx.get(&key)?.map(Remembered::Running),
                    Register::Delayed => tx.get(&key)?.map(Remembered::Delayed),
                })
            })
            .expect("an entry that decodes")
            .expect("an entry")
    }
}

fn named(run: &RunId) -> Key {
    Key::named(run.as_str())
}

fn cut<R: Record>(tx: &mut MemoryTx<'_>, key: Key) -> wasmcron_store::Result<()> {
    let record = tx.get::<R>(&key)?.expect("an entry");
    let text = String::from_utf8(record.encode().expect("JSON")).expect("text");
    let cut: String = text.chars().take(text.len() * 2 / 3).collect();
    tx.spoil::<R>(key, &cut)
}

fn remove_all<R: Record>(tx: &mut MemoryTx<'_>, scope: &str) -> wasmcron_store::Result<()> {
    for (key, _) in tx.scan::<R>(&Range::all(scope), usize::MAX)? {
        tx.remove::<R>(&key)?;
    }
    Ok(())
}

#[async_trait]
impl Harness for MemoryHarness {
    async fn store(&self, settings: Settings) -> Arc<dyn Store> {
        let options = EmbeddedOptions {
            retention: settings.retention,
            recovery_window: settings.recovery_window,
            ..EmbeddedOptions::default()
        };
        Arc::new(EmbeddedStore::new(self.engine.clone(), options))
    }

    async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    async fn damage(&self, damage: Damage) {
        match damage {
            Damage::QueueLost(pod) => self.edit(|tx| {
                remove_all::<Queued>(tx, pod.address.as_str())?;
                remove_all::<Claiming>(tx, pod.address.as_str())
            }),
            Damage::QueueEntry(pod, text) => self.edit(|tx| {
                let key = Key::new(pod.address.as_str(), i64::MAX, &text);
                tx.spoil::<Queued>(key, &text)
            }),
            Damage::LockLost(job) => {
                self.edit(|tx| tx.remove::<Lock>(&Key::named(job.as_str())).map(drop));
            }
            Damage::PlaceLost(job) => {
                self.edit(|tx| tx.remove::<Active>(&Key::named(job.as_str())).map(drop));
            }
            Damage::EntryLost(register, run) => self.edit(|tx| {
                match register {
                    Register::Scheduled => tx.remove::<Scheduled>(&named(&run))?,
                    Register::Running => tx.remove::<Running>(&named(&run))?,
                    Register::Delayed => tx.remove::<Delayed>(&named(&run))?,
                };
                Ok(())
            }),
            Damage::EntryCut(register, run) => self.edit(|tx| match register {
                Register::Scheduled => cut::<Scheduled>(tx, named(&run)),
                Register::Running => cut::<Running>(tx, named(&run)),
                Register::Delayed => cut::<Delayed>(tx, named(&run)),
            }),
            Damage::Remember(register, run) => {
                let entry = self.remember(register, &run);
                let mut remembered = self.remembered.lock().expect("no case panics with it");
                remembered.insert(run, entry);
            }
            Damage::Restore(_, run) => {
                let entry = self.remembered.lock().expect("no case panics with it")[&run].clone();
                self.edit(|tx| match entry {
                    Remembered::Scheduled(entry) => tx.put(named(&run), Scheduled::clone(&entry)),
                    Remembered::Running(entry) => tx.put(named(&run), Running::clone(&entry)),
                    Remembered::Delayed(entry) => {
                        // A run has one due time in every store.
                        for (key, _) in tx.scan::<Due>(&Range::all(""), usize::MAX)? {
                            if &*key.name == run.as_str() {
                                tx.remove::<Due>(&key)?;
                            }
                        }
                        if let Some(due) = entry.due {
                            tx.put(Key::new("", due.as_millis(), run.as_str()), Due {})?;
                        }
                        tx.put(named(&run), Delayed::clone(&entry))
                    }
                });
            }
            Damage::AllLost => self.engine.clear(),
        }
    }
}

/// Runs a test on a clock that moves only when everybody waits.
pub fn on_paused_time(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(test);
}

fn run<F: Future<Output = ()>>(case: impl FnOnce(World) -> F) {
    on_paused_time(async {
        case(World::new(Arc::new(MemoryHarness::start())).await).await;
    });
}

macro_rules! tests {
    ($($group:ident: [$($case:ident),* $(,)?]),* $(,)?) => {
        $(mod $group {
            $(
                #[test]
                fn $case() {
                    crate::memory::run(wasmcron_tests::conformance::$group::$case);
                }
            )*
        })*
    };
}

wasmcron_tests::conformance_cases!(tests);
