//! Attempts that lose their right to write, and the stragglers they become.

use wasmcron_core::ids::{RunId, RunKey};
use wasmcron_core::run::{Outcome, RunState};

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
