//! Attempts that lose their right to write, and the stragglers they become.

use std::time::Duration;

use wasmcron_core::ids::{RunId, RunKey};
use wasmcron_core::run::{Outcome, RunState};
use wasmcron_tests::proxy::Way;

use crate::harness::{Fleet, Midway, PATIENCE, Signal, Timing, jobs, until};

/// A pod frozen beyond its lock: its run goes on elsewhere; when it wakes, its guest makes no further
/// effect, its save and its report are refused. (C44, C91)
#[tokio::test(flavor = "multi_thread")]
async fn c44_c91_a_frozen_pod_wakes_as_a_straggler() {
    let mut midway = Midway::start(Timing::Fast, &["a", "b"], 60, 60, "").await;
    let frozen = midway.victim().await;
    frozen.signal(Signal::Stop);
    until("steps of the second attempt", PATIENCE, async || {
        midway
            .steps()
            .iter()
            .any(|(attempt, _)| *attempt == 2)
            .then_some(())
    })
    .await;
    let before = midway
        .steps()
        .iter()
        .filter(|(attempt, _)| *attempt == 1)
        .count();
    frozen.signal(Signal::Continue);
    let record = midway.fleet.ended(&midway.run).await;
    assert_eq!(record.state, RunState::Succeeded, "{record:?}");
    assert!(
        matches!(record.attempts[0].outcome, Some(Outcome::Lost { .. })),
        "{record:?}"
    );
    assert!(
        matches!(record.attempts[1].outcome, Some(Outcome::Succeeded { .. })),
        "{record:?}"
    );
    let after = midway
        .steps()
        .iter()
        .filter(|(attempt, _)| *attempt == 1)
        .count();
    // One request may have been in the kernel's hands when the process froze.
    assert!(
        after <= before + 1,
        "{before} effects before the thaw, {after} after"
    );
    until("the straggler to know", PATIENCE, async || {
        (frozen.metric("wasmcron_attempts_running").await == 0.0).then_some(())
    })
    .await;
    let checkpoint = midway
        .fleet
        .store()
        .checkpoint(&midway.run)
        .await
        .expect("it");
    assert!(
        checkpoint.is_none(),
        "a straggler's save does not bring a checkpoint back"
    );
}

/// The lock vanishes while the job runs: the guest is interrupted within a renewal. (C49)
#[tokio::test(flavor = "multi_thread")]
async fn c49_the_lock_is_deleted_by_hand() {
    let midway = Midway::start(Timing::Fast, &["a", "b"], 50, 60, "").await;
    let (fleet, run) = (&midway.fleet, &midway.run);
    fleet
        .redis_command::<i64>(&["DEL", "{distributed_scheduler}:lock:steps"])
        .await;
    let record = fleet.ended(run).await;
    assert_eq!(record.state, RunState::Succeeded, "{record:?}");
    // Steps may be repeated once, but the attempts never interleave.
    let steps = midway.steps();
    let attempts: Vec<_> = steps.iter().map(|(attempt, _)| *attempt).collect();
    assert!(attempts.is_sorted(), "{steps:?}");
}

/// The store cannot be reached from the pod that executes, for longer than the lock lasts: its guest stops by
/// the pod's own clock, before another pod may begin, and nothing of it comes later. (C49)
#[tokio::test(flavor = "multi_thread")]
async fn c49_a_pod_that_cannot_extend_stops_by_its_own_clock() {
    let mut fleet = Fleet::new(Timing::Fast).await;
    let ways = [fleet.way_of("a").await, fleet.way_of("b").await];
    let mut midway = Midway::on(fleet, &["a", "b"], 60, 60, "").await;
    let cut_off = midway.victim().await;
    let way = &ways[usize::from(cut_off.address() == "b")];
    way.set(Way::Held, Way::Held);
    let record = midway.fleet.ended(&midway.run).await;
    way.heal();
    assert_eq!(record.state, RunState::Succeeded, "{record:?}");
    assert!(
        matches!(record.attempts[0].outcome, Some(Outcome::Lost { .. })),
        "{record:?}"
    );
    until("the pod to hear what became of it", PATIENCE, async || {
        (cut_off.metric("wasmcron_attempts_running").await == 0.0).then_some(())
    })
    .await;
    let steps = midway.steps();
    let attempts: Vec<_> = steps.iter().map(|(attempt, _)| *attempt).collect();
    assert!(attempts.is_sorted(), "they interleave: {steps:?}");
    assert_eq!(midway.distinct_steps(), (0..60).collect());
}

/// Guests that never rest on every slot of a pod: neither its heartbeat nor the extension of its locks is late
/// by more than an interval or so. (C54)
#[tokio::test(flavor = "multi_thread")]
async fn c54_busy_guests_delay_neither_heartbeat_nor_renewal() {
    let fleet = Fleet::new(Timing::Fast).await;
    fleet.install("hostile", "hostile");
    let names: Vec<String> = (0..4).map(|n| format!("busy-{n}")).collect();
    for name in &names {
        fleet.write_job(
            name,
            "plugin = \"hostile\"\ntimeout = \"5s\"\n[params]\ndo = \"spin\"\n",
        );
    }
    let _pod = fleet.pod_with("a", "pod.capacity = 4").await;
    fleet
        .opened(&names.iter().map(String::as_str).collect::<Vec<_>>())
        .await;
    let mut runs = Vec::new();
    for name in &names {
        runs.push(fleet.submit(name).await);
    }
    for run in &runs {
        fleet.attempt(run, 1).await;
    }
    let jobs: Vec<_> = names
        .iter()
        .map(|name| name.parse().expect("a name"))
        .collect();
    let mut looks = 0;
    until("the end of the first", PATIENCE, async || {
        let now = fleet.now().await;
        let locks = fleet.store().locks(&jobs).await.expect("locks");
        let pods = fleet.store().pods().await.expect("pods");
        let beat = pods[0].heartbeat.expect("a heartbeat");
        let record = fleet.store().run(&runs[0]).await.expect("it").expect("it");
        if record.state.is_ended() {
            return Some(());
        }
        if let [Some(lock), ..] = &locks[..] {
            // Of two seconds, with a renewal every 300 ms.
            assert!(lock.expires_in > Duration::from_millis(900), "{lock:?}");
        }
        assert!(
            now.since(beat) < Timing::Fast.window(),
            "{:?}",
            now.since(beat)
        );
        looks += 1;
        None
    })
    .await;
    assert!(looks > 20, "{looks} looks");
    for run in &runs {
        let record = fleet.ended(run).await;
        let [attempt] = &record.attempts[..] else {
            panic!("{record:?}")
        };
        assert!(
            matches!(attempt.outcome, Some(Outcome::TimedOut { .. })),
            "{record:?}"
        );
        assert_eq!(record.recoveries, 0, "{record:?}");
    }
}

/// Two firings of one job: the second is skipped and leaves no trap behind. (C55)
#[tokio::test(flavor = "multi_thread")]
async fn c55_the_loser_of_the_lock_leaves_no_trap() {
    let (_target, server) = jobs::target().await;
    let fleet = Fleet::new(Timing::Fast).await;
    fleet.install("stepper", "stepper");
    fleet.write_job(
        "steps",
        &jobs::stepper(&server.url(), 30, 60, "every = \"1s\""),
    );
    let _pods = [fleet.pod("a").await, fleet.pod("b").await];
    let skipped = fleet
        .run_where("steps", "is skipped", |run| run.state == RunState::Skipped)
        .await;
    assert!(skipped.why.expect("a reason").contains("overlap"));
    assert!(skipped.attempts.is_empty());
    let ended = fleet
        .run_where("steps", "succeeded", |run| run.state == RunState::Succeeded)
        .await;
    assert_eq!(ended.attempts.len(), 1);
    assert_eq!(fleet.count("steps", RunState::Lost).await, 0);
    assert_eq!(
        fleet.events(&skipped.run).await,
        ["run.published", "run.skipped"]
    );
}

/// A run by hand waits for the active one instead of being skipped, and cancelling ends a run.
#[tokio::test(flavor = "multi_thread")]
async fn a_manual_run_waits_and_a_cancelled_one_ends() {
    let midway = Midway::start(Timing::Fast, &["a"], 500, 50, "").await;
    let (fleet, first) = (&midway.fleet, &midway.run);
    let second = fleet.trigger("steps", "{\"steps\": 1}").await;
    until("the second to wait", PATIENCE, async || {
        let record = fleet.store().run(&second).await.expect("it")?;
        (record.state == RunState::Parked).then_some(())
    })
    .await;
    let (_, err, code) = fleet.cli(&["run", "cancel", first.as_str()]).await;
    assert_eq!(code, 0, "{err}");
    assert_eq!(fleet.ended(first).await.state, RunState::Cancelled);
    assert_eq!(fleet.ended(&second).await.state, RunState::Succeeded);
}

/// With `overlap = "replace"` the latest firing wins: nothing is cancelled for an earlier one.
#[tokio::test(flavor = "multi_thread")]
async fn replace_lets_the_latest_firing_win() {
    let (_target, server) = jobs::target().await;
    let fleet = Fleet::new(Timing::Fast).await;
    fleet.install("stepper", "stepper");
    let schedule = "every = \"400ms\"\noverlap = \"replace\"";
    fleet.write_job("steps", &jobs::stepper(&server.url(), 500, 100, schedule));
    let _pods = [fleet.pod("a").await, fleet.pod("b").await];
    let name = "steps".parse().expect("a name");
    let runs = until("a dozen firings", PATIENCE, async || {
        let runs = fleet.store().runs(&name, 100).await.expect("runs");
        (runs.iter().filter(|run| run.state.is_ended()).count() >= 12).then_some(runs)
    })
    .await;
    let replaced = runs.iter().filter(|run| run.state == RunState::Cancelled);
    let mut seen = 0;
    for run in replaced {
        let why = run.why.as_deref().expect("a reason");
        let by = why.rsplit(' ').next().expect("a run");
        let by: RunId = by.parse().expect("a run id");
        let RunKey::Nominal(newer) = by.key() else {
            panic!("{by}")
        };
        assert!(newer > run.nominal, "{} was {why}", run.run);
        seen += 1;
    }
    assert!(seen >= 3, "{runs:?}");
}
