//! A host that records, and short ways to run the hostile guest.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use serde_json::Value;
use tokio::sync::{OnceCell, watch};
use wasmcron_runtime::{
    AttemptControl, AttemptEnd, AttemptHost, AttemptReport, AttemptSpec, Call, CallReason, Grants,
    Limits, LogLine, Plugin, PoolConfig, Progress, Runtime, RuntimeConfig, SavedCheckpoint,
    WriteRefused,
};

/// Longer than anything here takes, however loaded the machine is.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The bytes of the hostile guest.
pub fn hostile_bytes() -> Bytes {
    static BYTES: OnceLock<Bytes> = OnceLock::new();
    BYTES
        .get_or_init(|| wasmcron_tests::guests::bytes("hostile").unwrap().into())
        .clone()
}

/// A folder for compiled guests that lives as long as the tests.
pub fn cache_dir() -> std::path::PathBuf {
    static DIR: OnceLock<tempfile::TempDir> = OnceLock::new();
    DIR.get_or_init(|| tempfile::tempdir().unwrap())
        .path()
        .join("cache")
}

pub fn config() -> RuntimeConfig {
    RuntimeConfig {
        guest_threads: 2,
        pool: Some(PoolConfig::for_attempts(64, 4 << 30)),
        cache_dir: Some(cache_dir()),
        describe_time: PATIENCE,
        ..RuntimeConfig::default()
    }
}

/// The runtime that tests share unless they need their own.
pub fn runtime() -> Arc<Runtime> {
    static RUNTIME: OnceLock<Arc<Runtime>> = OnceLock::new();
    RUNTIME
        .get_or_init(|| Runtime::new(config()).unwrap())
        .clone()
}

pub async fn hostile() -> Arc<Plugin> {
    static PLUGIN: OnceCell<Arc<Plugin>> = OnceCell::const_new();
    PLUGIN
        .get_or_init(|| async { runtime().load("hostile", hostile_bytes()).await.unwrap() })
        .await
        .clone()
}

/// What a guest did to its host.
#[derive(Default)]
pub struct Recorder {
    pub seen: Mutex<Seen>,
    /// Writes are answered with this, if it is set.
    pub refuse: Mutex<Option<WriteRefused>>,
    /// Saves wait for ever.
    pub stall: std::sync::atomic::AtomicBool,
    changed: watch::Sender<()>,
}

#[derive(Clone, Default)]
pub struct Seen {
    pub saves: Vec<Bytes>,
    pub stalled: u32,
    pub state: BTreeMap<String, Bytes>,
    pub log: Vec<LogLine>,
    pub progress: Vec<Progress>,
}

impl Recorder {
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    pub fn seen(&self) -> Seen {
        self.seen.lock().unwrap().clone()
    }

    /// Waits until what was seen fulfils a condition.
    pub async fn until(&self, condition: impl Fn(&Seen) -> bool) {
        let mut changed = self.changed.subscribe();
        let wait = async {
            while !condition(&self.seen.lock().unwrap()) {
                changed.changed().await.unwrap();
            }
        };
        tokio::time::timeout(PATIENCE, wait)
            .await
            .expect("the guest to do as expected");
    }

    fn note(&self, note: impl FnOnce(&mut Seen)) {
        note(&mut self.seen.lock().unwrap());
        self.changed.send_replace(());
    }

    fn refused(&self) -> Result<(), WriteRefused> {
        self.refuse.lock().unwrap().clone().map_or(Ok(()), Err)
    }
}

#[async_trait]
impl AttemptHost for Recorder {
    async fn save_checkpoint(&self, data: Bytes) -> Result<(), WriteRefused> {
        if self.stall.load(std::sync::atomic::Ordering::SeqCst) {
            self.note(|seen| seen.stalled += 1);
            std::future::pending::<()>().await;
        }
        self.refused()?;
        self.note(|seen| seen.saves.push(data));
        Ok(())
    }

    async fn state_get(&self, key: &str) -> Result<Option<Bytes>, WriteRefused> {
        Ok(self.seen.lock().unwrap().state.get(key).cloned())
    }

    async fn state_set(&self, key: &str, value: Bytes) -> Result<(), WriteRefused> {
        self.refused()?;
        self.note(|seen| drop(seen.state.insert(key.to_owned(), value)));
        Ok(())
    }

    async fn state_delete(&self, key: &str) -> Result<(), WriteRefused> {
        self.refused()?;
        self.note(|seen| drop(seen.state.remove(key)));
        Ok(())
    }

    fn log(&self, line: LogLine) {
        self.note(|seen| seen.log.push(line));
    }

    fn progress(&self, progress: Progress) {
        self.note(|seen| seen.progress.push(progress));
    }

    async fn secret(&self, name: &str) -> Result<String, String> {
        match name {
            "token" => Ok("s3cret".to_owned()),
            _ => Err("this pod has no value for it".to_owned()),
        }
    }
}

/// One attempt of the hostile guest, to be changed before it runs.
pub struct Attempt {
    pub runtime: Arc<Runtime>,
    pub plugin: Arc<Plugin>,
    pub host: Arc<Recorder>,
    pub spec: AttemptSpec,
}

impl Attempt {
    pub async fn new(parameters: Value) -> Self {
        Self::of(runtime(), hostile().await, &parameters)
    }

    pub fn of(runtime: Arc<Runtime>, plugin: Arc<Plugin>, parameters: &Value) -> Self {
        Self {
            runtime,
            plugin,
            host: Recorder::new(),
            spec: AttemptSpec {
                call: call(parameters),
                limits: Limits {
                    time: Some(PATIENCE),
                    ..Limits::default()
                },
                grants: Arc::default(),
                checkpoint: None,
                control: AttemptControl::new(),
            },
        }
    }

    pub fn limits(mut self, change: impl FnOnce(&mut Limits)) -> Self {
        change(&mut self.spec.limits);
        self
    }

    pub fn grants(mut self, change: impl FnOnce(&mut Grants)) -> Self {
        change(Arc::make_mut(&mut self.spec.grants));
        self
    }

    pub fn checkpoint(mut self, data: &'static [u8]) -> Self {
        self.spec.checkpoint = Some(SavedCheckpoint {
            schema: 3,
            data: Bytes::from_static(data),
            attempt: 1,
        });
        self
    }

    pub fn control(&self) -> AttemptControl {
        self.spec.control.clone()
    }

    pub async fn run(self) -> AttemptReport {
        let attempt = self.runtime.execute(&self.plugin, self.spec, self.host);
        tokio::time::timeout(PATIENCE * 2, attempt)
            .await
            .expect("the attempt to end")
    }

    /// Runs it beside the test.
    pub fn start(self) -> tokio::task::JoinHandle<AttemptReport> {
        tokio::spawn(self.run())
    }
}

pub fn call(parameters: &Value) -> Call {
    Call {
        job: "hostile".to_owned(),
        run_id: "hostile@2026-01-01T00:00:00Z".to_owned(),
        attempt: 2,
        nominal_time: "2026-01-01T00:00:00Z".to_owned(),
        actual_time: "2026-01-01T00:00:01Z".to_owned(),
        previous_success: None,
        deadline: None,
        reason: CallReason::Resume,
        parameters: parameters.to_string(),
        fence: 42,
    }
}

/// Runs a deed with default limits and no grants.
pub async fn run(parameters: Value) -> AttemptEnd {
    Attempt::new(parameters).await.run().await.end
}

/// The summary of a deed that ends well.
pub fn summary(end: &AttemptEnd) -> &str {
    match end {
        AttemptEnd::Done { summary } => summary,
        other => panic!("not done: {other:?}"),
    }
}
