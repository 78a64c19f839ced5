//! The etcd scheduler for settlement jobs: its sections as tests.

use std::collections::BTreeSet;
use std::time::Duration;

use wasmcron_core::run::RunState;

use crate::harness::{Fleet, PATIENCE, Timing, jobs, until};

/// Six-field cron, seconds first; the run stands for its nominal second.
#[tokio::test(flavor = "multi_thread")]
async fn six_fields_fire_on_the_second() {
    let fleet = Fleet::new(Timing::Defaults).await;
    fleet.install("hello", "hello");
    fleet.write_job("tick", &jobs::hello("cron = \"*/2 * * * * *\""));
    let pods = [
        fleet.pod("a").await,
        fleet.pod("b").await,
        fleet.pod("c").await,
    ];
    let name = "tick".parse().expect("a name");
    let runs = until("four runs", PATIENCE, async || {
        let runs = fleet.store().runs(&name, 10).await.expect("runs");
        let done: Vec<_> = runs
            .into_iter()
            .filter(|run| run.state == RunState::Succeeded)
            .collect();
        (done.len() >= 4).then_some(done)
    })
    .await;
    for run in &runs {
        assert_eq!(run.nominal.as_millis() % 2_000, 0, "{run:?}");
        let late = run.attempts[0].claimed_at.since(run.nominal);
        assert!(
            late < Duration::from_secs(2),
            "claimed {late:?} after its time: {run:?}"
        );
    }
    let mut fired = 0.0;
    for pod in &pods {
        fired += pod
            .metric("scheduler_job_trigger_total{job_id=\"tick\",status=\"fired\"}")
            .await;
    }
    assert!(fired >= 4.0, "{fired} counted");
    let text = pods[0].metrics().await + &pods[1].metrics().await + &pods[2].metrics().await;
    assert!(
        text.contains("scheduler_job_latency_seconds_count{job_id=\"tick\"}"),
        "{text}"
    );
}

/// A job's time limit: past it the run has timed out, whatever the handler does.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_limited_in_time() {
    let fleet = Fleet::new(Timing::Fast).await;
    fleet.install("hostile", "hostile");
    fleet.write_job(
        "long",
        "plugin = \"hostile\"\ntimeout = \"400ms\"\n[params]\ndo = \"spin\"\n",
    );
    let _pod = fleet.pod("a").await;
    fleet.opened(&["long"]).await;
    let run = fleet.trigger("long", "{}").await;
    let record = fleet.ended(&run).await;
    assert_eq!(record.state, RunState::TimedOut, "{record:?}");
}

/// Triggering never blocks, and a pod executes no more at once than its capacity.
#[tokio::test(flavor = "multi_thread")]
async fn concurrency_is_bounded() {
    let (_target, server) = jobs::target().await;
    let fleet = Fleet::new(Timing::Fast).await;
    fleet.install("stepper", "stepper");
    let names: Vec<_> = (0..6).map(|n| format!("job-{n}")).collect();
    for name in &names {
        fleet.write_job(name, &jobs::stepper(&server.url(), 4, 50, ""));
    }
    let _pod = fleet.pod_with("a", "pod.capacity = 2").await;
    fleet
        .opened(&names.iter().map(String::as_str).collect::<Vec<_>>())
        .await;
    let mut records = Vec::new();
    let mut runs = Vec::new();
    for name in &names {
        runs.push(fleet.trigger(name, "{}").await);
    }
    for run in &runs {
        records.push(fleet.ended(run).await);
    }
    assert!(
        records
            .iter()
            .all(|record| record.state == RunState::Succeeded),
        "{records:?}"
    );
    for one in &records {
        let at = one.attempts[0].claimed_at;
        let running = |other: &&wasmcron_core::run::RunRecord| {
            let attempt = &other.attempts[0];
            attempt.claimed_at <= at && attempt.ended_at.expect("an end") > at
        };
        let at_once = records.iter().filter(running).count();
        assert!(at_once <= 2, "{at_once} at once");
    }
}

/// One firing for each period although the leader dies: nothing missed, nothing doubled.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_leader_costs_no_firing() {
    let fleet = Fleet::new(Timing::Fast).await;
    fleet.install("hello", "hello");
    fleet.write_job(
        "tick",
        &jobs::hello(
            "every = \"500ms\"\nmisfire = { policy = \"all\", max = 100 }\noverlap = \"queue\"",
        ),
    );
    let mut pods = vec![
        fleet.pod("a").await,
        fleet.pod("b").await,
        fleet.pod("c").await,
    ];
    fleet.live(3).await;
    fleet
        .run_where("tick", "succeeded", |run| run.state == RunState::Succeeded)
        .await;
    let leader = fleet.leader().await;
    let index = pods
        .iter()
        .position(|pod| pod.address() == leader)
        .expect("the leader");
    pods.swap_remove(index).kill().await;
    let killed = tokio::time::Instant::now();
    let at = fleet.now().await;
    fleet
        .run_where("tick", "is later", |run| {
            run.nominal > at + Duration::from_secs(2) && run.state.is_ended()
        })
        .await;
    assert!(
        killed.elapsed() < Duration::from_secs(15),
        "the article allows 15 s, this took {:?}",
        killed.elapsed()
    );
    let runs = fleet
        .store()
        .runs(&"tick".parse().expect("a name"), 200)
        .await
        .expect("runs");
    let times: BTreeSet<_> = runs.iter().map(|run| run.nominal.as_millis()).collect();
    let (first, last) = (
        *times.first().expect("a time"),
        *times.last().expect("a time"),
    );
    let expected: BTreeSet<_> = (0..=(last - first) / 500)
        .map(|n| first + n * 500)
        .collect();
    assert_eq!(times, expected, "every period has its run");
    assert_eq!(times.len(), runs.len(), "and one only");
}

/// A job keeps so many runs; what is left of older ones goes with them.
#[tokio::test(flavor = "multi_thread")]
async fn old_runs_are_dropped() {
    let fleet = Fleet::new(Timing::Fast).await;
    fleet.install("hello", "hello");
    fleet.write_job("tick", &jobs::hello("every = \"200ms\""));
    let _pod = fleet.pod_with("a", "retention.runs = 3").await;
    let first = fleet
        .run_where("tick", "succeeded", |run| run.state == RunState::Succeeded)
        .await;
    until("the first run to be dropped", PATIENCE, async || {
        fleet
            .store()
            .run(&first.run)
            .await
            .expect("it")
            .is_none()
            .then_some(())
    })
    .await;
    let records: Vec<String> = fleet.redis_command(&["KEYS", "*:run:tick@*"]).await;
    assert!(records.len() <= 6, "{records:?}");
}
