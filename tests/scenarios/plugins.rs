//! The plugins as components in the sandbox, against the source and target servers over real HTTP:
//! what their native tests cannot show.

#![allow(clippy::expect_used, clippy::panic, reason = "tests")]

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::Notify;
use wasmcron_runtime::{
    AttemptControl, AttemptEnd, AttemptHost, AttemptSpec, Call, CallReason, Grants, Limits,
    LogLine, Plugin, Progress, Runtime, RuntimeConfig, SavedCheckpoint, WriteRefused,
};
use wasmcron_tests::guests;
use wasmcron_tests::servers::source::{Config, Faults, Source};
use wasmcron_tests::servers::target::{Failures, Target};
use wasmcron_tests::servers::{Running, start};

/// A host that keeps the checkpoint in memory.
#[derive(Default)]
struct Memory {
    checkpoint: Mutex<Option<Bytes>>,
    saves: Mutex<u32>,
    saved: Notify,
}

#[async_trait]
impl AttemptHost for Memory {
    async fn save_checkpoint(&self, data: Bytes) -> Result<(), WriteRefused> {
        *self
            .checkpoint
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(data);
        *self.saves.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.saved.notify_one();
        Ok(())
    }

    async fn state_get(&self, _: &str) -> Result<Option<Bytes>, WriteRefused> {
        Ok(None)
    }

    async fn state_set(&self, _: &str, _: Bytes) -> Result<(), WriteRefused> {
        Ok(())
    }

    async fn state_delete(&self, _: &str) -> Result<(), WriteRefused> {
        Ok(())
    }

    fn log(&self, _: LogLine) {}

    fn progress(&self, _: Progress) {}

    async fn secret(&self, _: &str) -> Result<String, String> {
        Err("there is none".to_owned())
    }
}

/// One run of a plugin beside its servers.
struct Stage {
    runtime: Arc<Runtime>,
    plugin: Arc<Plugin>,
    host: Arc<Memory>,
    source: Source,
    target: Target,
    source_server: Running,
    target_server: Running,
    attempt: u32,
}

impl Stage {
    async fn new(plugin: &str, rows: usize, latency: Duration) -> Self {
        let runtime = Runtime::new(RuntimeConfig::default()).expect("a runtime");
        let bytes = guests::bytes(plugin).expect("the plugin's component");
        let plugin = runtime
            .load(plugin, bytes.into())
            .await
            .expect("a plugin that loads");
        let source = Source::new(Config {
            seed: 7,
            rows,
            latency,
        });
        let target = Target::default();
        let anywhere = ([127, 0, 0, 1], 0).into();
        Self {
            runtime,
            plugin,
            host: Arc::default(),
            source_server: start(anywhere, source.router()).await.expect("a free port"),
            target_server: start(anywhere, target.router()).await.expect("a free port"),
            source,
            target,
            attempt: 0,
        }
    }

    fn spec(&mut self, parameters: &Value, granted: &[String]) -> AttemptSpec {
        self.attempt += 1;
        let now = "2026-01-01T00:00:00Z".to_owned();
        let data = self
            .host
            .checkpoint
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        AttemptSpec {
            call: Call {
                job: "job".to_owned(),
                run_id: format!("job@{now}"),
                attempt: self.attempt,
                nominal_time: now.clone(),
                actual_time: now,
                previous_success: None,
                deadline: None,
                reason: CallReason::Scheduled,
                parameters: parameters.to_string(),
                fence: u64::from(self.attempt),
            },
            limits: Limits::default(),
            grants: Arc::new(Grants {
                http: granted
                    .iter()
                    .map(|url| url.parse().expect("an origin"))
                    .collect(),
                env: Vec::new(),
                secrets: BTreeSet::new(),
            }),
            checkpoint: data.map(|data| SavedCheckpoint {
                schema: self.plugin.metadata().checkpoint_schema,
                data,
                attempt: self.attempt - 1,
            }),
            control: AttemptControl::new(),
        }
    }

    fn sync(&mut self) -> AttemptSpec {
        let (source, target) = (self.source_server.url(), self.target_server.url());
        let parameters =
            json!({ "source": format!("{source}/rows"), "target": target, "page_size": 100 });
        self.spec(&parameters, &[source, target])
    }

    async fn execute(&self, spec: AttemptSpec) -> AttemptEnd {
        self.runtime
            .execute(&self.plugin, spec, self.host.clone())
            .await
            .end
    }

    /// Executes and drops the attempt right after its `saves`th checkpoint, as a kill would.
    async fn kill_after_saves(&self, spec: AttemptSpec, saves: u32) {
        let attempt = self.execute(spec);
        tokio::pin!(attempt);
        loop {
            tokio::select! {
                end = &mut attempt => panic!("it ended before it was killed: {end:?}"),
                () = self.host.saved.notified() => {}
            }
            if *self
                .host
                .saves
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                >= saves
            {
                return;
            }
        }
    }

    /// The documents behind the alias, in the source's order, and how often each was written.
    fn in_service(&self) -> (Vec<Value>, Vec<u32>) {
        let data = self.target.data();
        let index = &data.indexes[&data.aliases["merchants"]];
        assert_eq!(
            data.indexes.len(),
            1,
            "left over: {:?}",
            data.indexes.keys()
        );
        self.source
            .rows()
            .iter()
            .map(|row| {
                let id = row["id"].as_str().expect("an id");
                let kept = index
                    .documents
                    .get(id)
                    .unwrap_or_else(|| panic!("{id} is missing"));
                (kept.document.clone(), kept.writes)
            })
            .unzip()
    }
}

fn assert_done(end: &AttemptEnd, part: &str) {
    assert!(
        matches!(end, AttemptEnd::Done { summary } if summary.contains(part)),
        "{end:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn hello_says_hello() {
    let mut stage = Stage::new("hello", 0, Duration::ZERO).await;
    let spec = stage.spec(&json!({}), &[]);
    assert_done(&stage.execute(spec).await, "hello from job, attempt 1");
    let spec = stage.spec(&json!({ "nmae": "x" }), &[]);
    let end = stage.execute(spec).await;
    assert!(
        matches!(&end, AttemptEnd::Fatal { message } if message.contains("`nmae`")),
        "{end:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sync_copies_every_row() {
    let mut stage = Stage::new("merchant-full-sync", 1050, Duration::ZERO).await;
    let spec = stage.sync();
    assert_done(&stage.execute(spec).await, "1050 rows");
    let (documents, writes) = stage.in_service();
    assert_eq!(documents, stage.source.rows());
    assert!(writes.iter().all(|writes| *writes == 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_sync_goes_on_from_its_checkpoint() {
    let mut stage = Stage::new("merchant-full-sync", 1050, Duration::from_millis(5)).await;
    let spec = stage.sync();
    stage.kill_after_saves(spec, 5).await;
    let spec = stage.sync();
    assert_done(&stage.execute(spec).await, "1050 rows");
    let (documents, writes) = stage.in_service();
    assert_eq!(documents, stage.source.rows());
    let again: usize = writes.iter().filter(|writes| **writes > 1).count();
    assert!(
        again <= 100,
        "at most the page in flight is written twice, found {again} rows"
    );
    let log = stage.target.log();
    let attempts: BTreeSet<_> = log
        .entries
        .iter()
        .filter_map(|entry| entry.caller.attempt)
        .collect();
    assert_eq!(attempts, BTreeSet::from([1, 2]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sync_survives_failing_pages_repeats_and_changes() {
    let mut stage = Stage::new("merchant-full-sync", 600, Duration::ZERO).await;
    stage.source.set_faults(Faults {
        skip: 2,
        fail: 2,
        repeat: 2,
        ..Faults::default()
    });
    let lost = Failures {
        skip: 1,
        fail: 1,
        path: "_bulk".to_owned(),
        ..Failures::default()
    };
    stage.target.set_failures(Failures {
        after_effect: true,
        ..lost
    });
    let spec = stage.sync();
    assert_done(&stage.execute(spec).await, "600 rows");
    assert_eq!(stage.in_service().0, stage.source.rows());

    let mut stage = Stage::new("merchant-full-sync", 600, Duration::ZERO).await;
    let faults = Faults {
        skip: 3,
        fail: 3,
        retry_after: Some(7),
        ..Faults::default()
    };
    stage.source.set_faults(faults);
    let spec = stage.sync();
    let end = stage.execute(spec).await;
    let wait = Some(Duration::from_secs(7));
    assert!(
        matches!(&end, AttemptEnd::Retry { after, .. } if *after == wait),
        "{end:?}"
    );
    stage.source.set_faults(Faults::default());
    stage.source.change(20);
    let spec = stage.sync();
    assert_done(&stage.execute(spec).await, "scan 2");
    assert_eq!(stage.in_service().0, stage.source.rows());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_granted_or_not_there_is_said_in_words() {
    let mut stage = Stage::new("merchant-full-sync", 10, Duration::ZERO).await;
    let mut spec = stage.sync();
    spec.grants = Arc::default();
    let end = stage.execute(spec).await;
    assert!(
        matches!(&end, AttemptEnd::Fatal { message } if message.contains(": denied")),
        "{end:?}"
    );
    // Nothing listens on a port that was free a moment ago.
    let gone = start(([127, 0, 0, 1], 0).into(), stage.source.router())
        .await
        .expect("a port");
    let url = gone.url();
    drop(gone);
    let parameters = json!({ "source": url, "target": stage.target_server.url() });
    let granted = [url, stage.target_server.url()];
    let spec = stage.spec(&parameters, &granted);
    let end = stage.execute(spec).await;
    assert!(
        matches!(&end, AttemptEnd::Retry { message, .. } if message.contains("connection refused")),
        "{end:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_is_posted_once_a_run() {
    let mut stage = Stage::new("daily-report", 0, Duration::ZERO).await;
    let target = stage.target_server.url();
    let parameters = json!({ "target": format!("{target}/reports"), "period": "month" });
    let spec = stage.spec(&parameters, std::slice::from_ref(&target));
    assert_done(&stage.execute(spec).await, "report 2026-01 posted");
    let spec = stage.spec(&parameters, std::slice::from_ref(&target));
    assert_done(&stage.execute(spec).await, "had been posted before");
    let reports = stage.target.data().reports;
    assert_eq!(
        reports["job@2026-01-01T00:00:00Z"].report["period"],
        "2026-01"
    );
    let wrong = json!({ "target": target, "period": "week" });
    assert!(
        stage.plugin.check_parameters(&wrong).is_err(),
        "the schema refuses it already"
    );
}
