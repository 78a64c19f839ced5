//! Pods that leave in good order: nothing is lost, late, failed or done twice for it.

use std::collections::BTreeSet;
use std::time::Duration;

use wasmcron_core::ids::JobName;
use wasmcron_core::run::{Outcome, RunRecord, RunState};
use wasmcron_core::time::Timestamp;

use crate::harness::{Fleet, Midway, PATIENCE, Signal, Timing, jobs, until};

const JOBS: usize = 30;
const PERIOD_MS: i64 = 2_000;

fn name(number: usize) -> JobName {
    format!("load-{number:02}").parse().expect("a name")
}

/// Every run of the load with a nominal time in a stretch.
async fn runs(fleet: &Fleet, from: Timestamp, to: Timestamp) -> Vec<RunRecord> {
    let mut all = Vec::new();
    for number in 0..JOBS {
        let runs = fleet.store().runs(&name(number), 1000).await.expect("runs");
        let within = |run: &RunRecord| run.nominal > from && run.nominal <= to;
        all.extend(runs.into_iter().filter(within));
    }
    all
}

/// How late the latest of them began.
fn lateness(runs: &[RunRecord]) -> Duration {
    let late = |run: &RunRecord| Some(run.attempts.first()?.claimed_at.since(run.nominal));
    runs.iter().filter_map(late).max().unwrap_or_default()
}

async fn pass(fleet: &Fleet, time: Duration) -> Timestamp {
    let begin = fleet.now().await;
    until("time to pass", PATIENCE, async || {
        let now = fleet.now().await;
        (now.since(begin) >= time).then_some(now)
    })
    .await
}

/// Three pods are restarted one after the other while thirty jobs fire every two seconds: every firing
/// has its run, none begins more than a second later than without the restarts, and none takes a
/// second attempt for a failure.
#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_restart_under_load_costs_nothing() {
    let fleet = Fleet::new(Timing::Defaults).await;
    fleet.install("hello", "hello");
    for number in 0..JOBS {
        fleet.write_job(name(number).as_str(), &jobs::hello("every = \"2s\""));
    }
    let addresses = ["a", "b", "c"];
    let mut pods = Vec::new();
    for address in addresses {
        pods.push(fleet.pod(address).await);
    }
    fleet.live(3).await;
    let opened: Vec<String> = (0..JOBS).map(|number| name(number).to_string()).collect();
    fleet
        .opened(&opened.iter().map(String::as_str).collect::<Vec<_>>())
        .await;
    let begin = pass(&fleet, Duration::from_secs(3)).await;
    let calm = pass(&fleet, Duration::from_secs(5)).await;
    let usual = lateness(&runs(&fleet, begin, calm).await);
    for address in addresses {
        let at = pods.iter().position(|pod| pod.address() == address);
        let pod = pods.swap_remove(at.expect("the pod"));
        pod.signal(Signal::Terminate);
        assert_eq!(pod.ended().await, Some(0));
        pods.push(fleet.pod(address).await);
        fleet.live(3).await;
    }
    let end = pass(&fleet, Duration::from_secs(2)).await;
    pass(&fleet, Duration::from_secs(3)).await;

    let all = runs(&fleet, begin, end).await;
    let limit = usual + Duration::from_secs(1);
    assert!(
        lateness(&all) <= limit,
        "{:?}, usually {usual:?}",
        lateness(&all)
    );
    for number in 0..JOBS {
        let job = name(number);
        let mine: Vec<&RunRecord> = all.iter().filter(|run| run.job == job).collect();
        let times: BTreeSet<i64> = mine.iter().map(|run| run.nominal.as_millis()).collect();
        let first = begin.as_millis() / PERIOD_MS + 1;
        let expected: BTreeSet<i64> = (first..=end.as_millis() / PERIOD_MS)
            .map(|period| period * PERIOD_MS)
            .collect();
        assert_eq!(times, expected, "{job}");
        assert_eq!(mine.len(), expected.len(), "{job}");
        for run in mine {
            assert_eq!(run.state, RunState::Succeeded, "{run:?}");
            assert_eq!(run.recoveries, 0, "{run:?}");
        }
        let gaps = fleet.store().gaps(&job, 100).await.expect("gaps");
        let missed: u64 = gaps
            .iter()
            .filter(|gap| gap.to > begin)
            .map(|gap| gap.count)
            .sum();
        assert_eq!(missed, 0, "{gaps:?}");
    }
}

/// A second signal does not wait for a guest that takes no notice: its pod ends well and soon, and the
/// run goes on elsewhere without a failure, a retry or a recovery. (C56)
#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_cuts_a_drain_short() {
    let fleet = Fleet::new(Timing::Fast).await;
    fleet.install("hostile", "hostile");
    let deaf = "plugin = \"hostile\"\nresumable = true\npods = { zone = \"eu\" }\n[params]\ndo = \"ignore-stop\"\n";
    fleet.write_job("deaf", deaf);
    let eu = "pod.labels = { zone = \"eu\" }\n";
    let pod = fleet.pod_with("a", eu).await;
    fleet.opened(&["deaf"]).await;
    let run = fleet.trigger("deaf", "{}").await;
    fleet.attempt(&run, 1).await;
    let began = tokio::time::Instant::now();
    pod.signal(Signal::Terminate);
    tokio::time::sleep(Duration::from_secs(1)).await;
    pod.signal(Signal::Terminate);
    assert_eq!(pod.ended().await, Some(0));
    assert!(
        began.elapsed() < Duration::from_secs(15),
        "{:?}",
        began.elapsed()
    );
    let _b = fleet.pod_with("b", eu).await;
    let record = fleet.attempt(&run, 2).await;
    let first = record.attempts[0].outcome.clone();
    assert!(matches!(first, Some(Outcome::Lost { .. })), "{record:?}");
    assert_eq!(record.recoveries, 0, "{record:?}");
    assert_eq!(
        record.attempts[1].reason,
        wasmcron_core::task::Reason::Resume
    );
}

/// A leader gets SIGTERM while it executes what cannot be resumed: at once another pod leads and takes every
/// new task, while the run goes on to its end within the grace, and the exit code is 0. (C56)
#[tokio::test(flavor = "multi_thread")]
async fn c56_a_leaving_pod_gives_everything_up_but_what_it_executes() {
    let fleet = Fleet::new(Timing::Fast).await;
    fleet.install("hello", "hello");
    fleet.install("hostile", "hostile");
    let long =
        "plugin = \"hostile\"\npods = { zone = \"eu\" }\n[params]\ndo = \"sleep\"\ncount = 6000\n";
    fleet.write_job("long", long);
    fleet.write_job("tick", &jobs::hello("every = \"300ms\""));
    let a = fleet
        .pod_with("a", "pod.labels = { zone = \"eu\" }\n")
        .await;
    assert_eq!(fleet.leader().await, "a");
    let _b = fleet.pod("b").await;
    fleet.live(2).await;
    fleet.opened(&["long"]).await;
    let run = fleet.trigger("long", "{}").await;
    fleet.attempt(&run, 1).await;
    a.signal(Signal::Terminate);
    until("another leader", PATIENCE, async || {
        (fleet.leader().await == "b").then_some(())
    })
    .await;
    let resigned = fleet.now().await;
    fleet.live(1).await;
    let later = fleet
        .run_where("tick", "is later", |run| {
            run.nominal > resigned && run.state.is_ended()
        })
        .await;
    assert_eq!(later.attempts[0].pod.as_str(), "b");
    let (status, body) = a.get("/readyz").await;
    assert!(
        status == 503 && body.contains("draining"),
        "{status} {body}"
    );
    let now = fleet.store().run(&run).await.expect("it").expect("it");
    assert_eq!(
        now.state,
        RunState::Running,
        "all of this was at once: {now:?}"
    );
    let record = fleet.ended(&run).await;
    assert_eq!(record.state, RunState::Succeeded, "{record:?}");
    assert_eq!(record.attempts.len(), 1, "{record:?}");
    assert_eq!(a.ended().await, Some(0));
}

/// The grace is over and the guest goes on: it is interrupted, its last checkpoint stands, its lock is free at
/// once and not when it would have run out, and the run goes on elsewhere from there. (C56)
#[tokio::test(flavor = "multi_thread")]
async fn c56_a_grace_that_is_over_hands_the_run_over() {
    let fleet = Fleet::new(Timing::Defaults).await;
    fleet.install("hostile", "hostile");
    let deaf = "plugin = \"hostile\"\nresumable = true\n[params]\ndo = \"offer\"\ncount = 7\nthen = \"spin\"\n";
    fleet.write_job("deaf", deaf);
    let a = fleet.pod_with("a", "pod.drain_timeout = \"1s\"\n").await;
    fleet.opened(&["deaf"]).await;
    let run = fleet.trigger("deaf", "{}").await;
    let kept = until("a checkpoint", PATIENCE, async || {
        fleet.store().checkpoint(&run).await.expect("it")
    })
    .await;
    let _b = fleet.pod("b").await;
    fleet.live(2).await;
    let began = tokio::time::Instant::now();
    a.signal(Signal::Terminate);
    assert_eq!(a.ended().await, Some(0));
    let took = began.elapsed();
    // The grace, and some for a machine that does other things as well.
    assert!(took < Duration::from_secs(4), "{took:?}");
    let record = fleet.attempt(&run, 2).await;
    // Well within the lock's ten seconds.
    assert!(
        began.elapsed() < Duration::from_secs(8),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(record.attempts[1].pod.as_str(), "b");
    assert!(
        record.attempts[1].resumed_from >= Some(kept.seq),
        "{record:?}"
    );
    assert_eq!(record.recoveries, 0, "{record:?}");
}

/// Two deploys hit the same run: each hands it over with its checkpoint, neither counts as a recovery, and no
/// step is done twice. (C56)
#[tokio::test(flavor = "multi_thread")]
async fn c56_two_deploys_hand_one_run_over_twice() {
    let mut midway = Midway::start(Timing::Defaults, &["a", "b", "c"], 60, 60, "").await;
    for attempt in [1, 2] {
        let record = midway.fleet.attempt(&midway.run, attempt).await;
        let executing = record.attempts.last().expect("an attempt").pod.to_string();
        let done = midway.steps().len();
        until("further steps", PATIENCE, async || {
            (midway.steps().len() > done + 5).then_some(())
        })
        .await;
        let at = midway
            .pods
            .iter()
            .position(|pod| pod.address() == executing);
        let pod = midway.pods.swap_remove(at.expect("the executing pod"));
        pod.signal(Signal::Terminate);
        assert_eq!(pod.ended().await, Some(0));
    }
    let record = midway.fleet.ended(&midway.run).await;
    assert_eq!(record.state, RunState::Succeeded, "{record:?}");
    assert_eq!(
        (record.attempts.len(), record.recoveries),
        (3, 0),
        "{record:?}"
    );
    let steps: Vec<u64> = midway.steps().into_iter().map(|(_, step)| step).collect();
    assert_eq!(steps, (0..60).collect::<Vec<_>>());
}

/// A terminal that is closed ends a pod as SIGTERM does: what it executes goes on to its end first.
#[tokio::test(flavor = "multi_thread")]
async fn a_hangup_drains() {
    let fleet = Fleet::new(Timing::Fast).await;
    fleet.install("hostile", "hostile");
    let long = "plugin = \"hostile\"\n[params]\ndo = \"sleep\"\ncount = 2000\n";
    fleet.write_job("long", long);
    let pod = fleet.pod("a").await;
    fleet.opened(&["long"]).await;
    let run = fleet.trigger("long", "{}").await;
    fleet.attempt(&run, 1).await;
    pod.signal(Signal::Hangup);
    assert_eq!(pod.ended().await, Some(0));
    let record = fleet.store().run(&run).await.expect("it").expect("it");
    assert_eq!(record.state, RunState::Succeeded, "{record:?}");
    assert_eq!(record.attempts.len(), 1, "{record:?}");
}
