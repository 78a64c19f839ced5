//! The full sync itself, killed in the middle: the target's own data and log are the witnesses.

use std::time::Duration;

use wasmcron_core::run::RunState;
use wasmcron_tests::servers::source::{Config, Source};
use wasmcron_tests::servers::{self, target::Target};

use crate::harness::{Fleet, PATIENCE, Timing, until};

const ROWS: usize = 4_000;

fn job(source: &str, target: &str, more: &str) -> String {
    format!(
        "plugin = \"merchant-full-sync\"\nresumable = true\n{more}\n[params]\nsource = \"{source}/rows\"\n\
         target = \"{target}\"\npage_size = 100\n[allow]\nhttp = [\"{source}\", \"{target}\"]\n"
    )
}

/// SIGKILL of the executing pod: another goes on, and the target equals the source.
#[tokio::test(flavor = "multi_thread")]
async fn killed_in_the_middle_the_target_equals_the_source() {
    let any = "127.0.0.1:0".parse().expect("an address");
    let source = Source::new(Config {
        seed: 3,
        rows: ROWS,
        latency: Duration::from_millis(60),
    });
    let (at_source, target) = (
        servers::start(any, source.router())
            .await
            .expect("a server"),
        Target::default(),
    );
    let at_target = servers::start(any, target.router())
        .await
        .expect("a server");
    let fleet = Fleet::new(Timing::Fast).await;
    fleet.install("merchant-full-sync", "merchant-full-sync");
    fleet.write_job("sync", &job(&at_source.url(), &at_target.url(), ""));
    let mut pods = vec![
        fleet.pod("a").await,
        fleet.pod("b").await,
        fleet.pod("c").await,
    ];
    fleet.live(3).await;
    fleet.opened(&["sync"]).await;
    let run = fleet.trigger("sync", "{}").await;
    let written = || -> usize {
        target
            .data()
            .indexes
            .values()
            .map(|index| index.documents.len())
            .sum()
    };
    until("a third of the rows", PATIENCE, async || {
        (written() >= ROWS / 3).then_some(())
    })
    .await;
    let victim = fleet.attempt(&run, 1).await.attempts[0].pod.to_string();
    let index = pods
        .iter()
        .position(|pod| pod.address() == victim)
        .expect("the pod");
    pods.swap_remove(index).kill().await;

    let record = fleet.ended(&run).await;
    assert_eq!(record.state, RunState::Succeeded, "{record:?}");
    assert_eq!(record.attempts.len(), 2, "{record:?}");
    assert!(record.attempts[1].resumed_from.is_some(), "{record:?}");
    let data = target.data();
    let served = data.aliases.get("merchants").expect("an index in service");
    let index = &data.indexes[served];
    assert_eq!(index.documents.len(), ROWS);
    let log = target.log();
    let rewritten: usize = log.entries.iter().map(|entry| entry.rewritten).sum();
    assert!(
        rewritten <= 100,
        "{rewritten} rows were written twice, more than one page"
    );
    assert_eq!(data.indexes.len(), 1, "old indexes are removed");
    // The plugin compared count and checksum with what it read; the server's own comparison says more.
    assert_eq!(
        at_stats(&at_target, served).await,
        at_version(&at_source).await
    );
}

/// Pages that fail are tried again by the retry policy, from the last checkpoint.
#[tokio::test(flavor = "multi_thread")]
async fn failing_pages_are_retried() {
    let any = "127.0.0.1:0".parse().expect("an address");
    let source = Source::new(Config {
        seed: 4,
        rows: 1_000,
        latency: Duration::ZERO,
    });
    let (at_source, target) = (
        servers::start(any, source.router())
            .await
            .expect("a server"),
        Target::default(),
    );
    let at_target = servers::start(any, target.router())
        .await
        .expect("a server");
    source.set_faults(servers::source::Faults {
        skip: 4,
        fail: 3,
        ..Default::default()
    });
    let fleet = Fleet::new(Timing::Fast).await;
    fleet.install("merchant-full-sync", "merchant-full-sync");
    let retry = "retry = { max_attempts = 3, backoff = \"100ms\", max_backoff = \"1s\" }";
    fleet.write_job("sync", &job(&at_source.url(), &at_target.url(), retry));
    let _pod = fleet.pod("a").await;
    fleet.opened(&["sync"]).await;
    let run = fleet.trigger("sync", "{}").await;
    let record = fleet.ended(&run).await;
    assert_eq!(record.state, RunState::Succeeded, "{record:?}");
    assert_eq!(record.attempts.len(), 2, "{record:?}");
    assert!(
        record.attempts[1].resumed_from.is_some(),
        "the retry goes on where the failure was: {record:?}"
    );
}

/// The other article's job: one report for each period, whatever is repeated.
#[tokio::test(flavor = "multi_thread")]
async fn the_daily_report_is_written_once() {
    let any = "127.0.0.1:0".parse().expect("an address");
    let target = Target::default();
    let server = servers::start(any, target.router())
        .await
        .expect("a server");
    target.set_failures(servers::target::Failures {
        fail: 1,
        path: "/reports".into(),
        after_effect: true,
        ..Default::default()
    });
    let fleet = Fleet::new(Timing::Fast).await;
    fleet.install("daily-report", "daily-report");
    let text = format!(
        "plugin = \"daily-report\"\nretry = {{ max_attempts = 3, backoff = \"50ms\" }}\n[params]\ntarget = \"{0}/reports\"\n\
         [allow]\nhttp = [\"{0}\"]\n",
        server.url()
    );
    fleet.write_job("report", &text);
    let _pod = fleet.pod("a").await;
    fleet.opened(&["report"]).await;
    let run = fleet.trigger("report", "{}").await;
    assert_eq!(fleet.ended(&run).await.state, RunState::Succeeded);
    assert_eq!(target.data().reports.len(), 1);
}

async fn at_stats(target: &servers::Running, index: &str) -> serde_json::Value {
    fetch(format!("{}/indexes/{index}/_stats", target.url())).await["checksum"].clone()
}

async fn at_version(source: &servers::Running) -> serde_json::Value {
    fetch(format!("{}/version", source.url())).await["checksum"].clone()
}

async fn fetch(url: String) -> serde_json::Value {
    let fetched = tokio::task::spawn_blocking(move || {
        ureq::get(&url)
            .call()
            .expect("an answer")
            .body_mut()
            .read_json()
            .expect("JSON")
    });
    fetched.await.expect("the request")
}
