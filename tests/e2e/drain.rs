//! Pods that leave in good order: nothing is lost, late, failed or done twice for it.

use std::collections::BTreeSet;
use std::time::Duration;

use wasmcron_core::ids::JobName;
use wasmcron_core::run::{Outcome, RunRecord, RunState};
use wasmcron_core::time::Timestamp;

use crate::harness::{Fleet, PATIENCE, Signal, Timing, jobs, until};

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
/// run goes on elsewhere without a failure, a retry or a recovery.
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
