//! The Redis article's scenarios: pods that die at each point of a task's life.

use std::collections::BTreeSet;

use wasmcron_core::run::{Outcome, RunState};
use wasmcron_core::task::Reason;

use crate::harness::{Fleet, Midway, PATIENCE, Signal, Timing, jobs, until};

/// Scenario A: a pod that is dead before publishing is not picked.
#[tokio::test(flavor = "multi_thread")]
async fn scenario_a_dead_before_publishing() {
    let fleet = Fleet::new(Timing::Fast).await;
    fleet.install("hello", "hello");
    let (_a, _b, c) = (
        fleet.pod("a").await,
        fleet.pod("b").await,
        fleet.pod("c").await,
    );
    fleet.live(3).await;
    c.kill().await;
    fleet.live(2).await;
    fleet.write_job("tick", &jobs::hello("every = \"500ms\""));
    let name = "tick".parse().expect("a name");
    let runs = until("six runs", PATIENCE, async || {
        let runs = fleet.store().runs(&name, 20).await.expect("runs");
        (runs
            .iter()
            .filter(|run| run.state == RunState::Succeeded)
            .count()
            >= 6)
            .then_some(runs)
    })
    .await;
    let pods: BTreeSet<_> = runs
        .iter()
        .flat_map(|run| &run.attempts)
        .map(|one| one.pod.to_string())
        .collect();
    assert_eq!(pods, BTreeSet::from(["a".into(), "b".into()]));
}

/// Scenario B: a pod dies after a task was published to it and before it claimed it. (C38, C47)
#[tokio::test(flavor = "multi_thread")]
async fn scenario_b_dead_before_the_claim() {
    let fleet = Fleet::new(Timing::Fast).await;
    fleet.install("hello", "hello");
    for job in ["one", "two"] {
        fleet.write_job(job, &jobs::hello(""));
    }
    let a = fleet.pod("a").await;
    assert_eq!(fleet.leader().await, "a");
    let b = fleet.pod("b").await;
    fleet.opened(&["one", "two"]).await;
    until("the leader to know both", PATIENCE, async || {
        (a.metric("wasmcron_live_pods").await == 2.0).then_some(())
    })
    .await;
    b.signal(Signal::Stop);
    let runs = [fleet.submit("one").await, fleet.submit("two").await];
    let stuck = until("a task in the frozen pod's queue", PATIENCE, async || {
        let page = fleet.store().scheduled(None).await.expect("the register");
        page.entries
            .into_iter()
            .find(|entry| entry.pod.as_str() == "b")
    })
    .await;
    b.kill().await;
    for run in &runs {
        let record = fleet.ended(run).await;
        assert_eq!(record.state, RunState::Succeeded, "{record:?}");
        assert_eq!(record.attempts.len(), 1, "{record:?}");
        assert_eq!(record.attempts[0].pod.as_str(), "a");
    }
    assert!(
        fleet
            .events(&stuck.task.run)
            .await
            .contains(&"run.recovered".to_owned())
    );
    drop(a);
}

/// Scenario C: a pod dies while it executes. Resumable: from the last acknowledged checkpoint. (C38, C40)
#[tokio::test(flavor = "multi_thread")]
async fn scenario_c_dead_while_running_resumes() {
    let mut midway = Midway::start(Timing::Fast, &["a", "b"], 40, 40, "").await;
    midway.victim().await.kill().await;
    let record = midway.fleet.ended(&midway.run).await;
    assert_eq!(record.state, RunState::Succeeded, "{record:?}");
    let [first, second] = &record.attempts[..] else {
        panic!("{record:?}")
    };
    assert!(
        matches!(first.outcome, Some(Outcome::Lost { .. })),
        "{first:?}"
    );
    assert_ne!(first.pod, second.pod);
    assert_eq!(second.reason, Reason::Resume);
    let steps = midway.steps();
    let acknowledged = second.resumed_from.expect("a checkpoint");
    let resumed_at = steps
        .iter()
        .find(|(attempt, _)| *attempt == 2)
        .expect("a step")
        .1;
    assert_eq!(
        resumed_at, acknowledged,
        "checkpoint n is saved after step n - 1"
    );
    assert_eq!(midway.distinct_steps(), (0..40).collect());
    assert!(
        steps.len() <= 41,
        "only the step under way may be repeated: {steps:?}"
    );
}

/// Scenario C, not resumable: run again only if asked for and short on average, else lost with why.
#[tokio::test(flavor = "multi_thread")]
async fn scenario_c_not_resumable() {
    let (target, server) = jobs::target().await;
    let fleet = Fleet::new(Timing::Fast).await;
    fleet.install("stepper", "stepper");
    let plain =
        jobs::stepper(&server.url(), 30, 50, "").replace("resumable = true", "resumable = false");
    fleet.write_job("plain", &plain);
    fleet.write_job(
        "rerun",
        &plain.replace("resumable = false", "resumable = false\nauto_rerun = true"),
    );
    let a = fleet.pod("a").await;
    fleet.opened(&["plain", "rerun"]).await;
    // One success, so that its usual length is known.
    let short = fleet.trigger("rerun", "{\"steps\": 1}").await;
    assert_eq!(fleet.ended(&short).await.state, RunState::Succeeded);
    let (plain, rerun) = (
        fleet.trigger("plain", "{}").await,
        fleet.trigger("rerun", "{}").await,
    );
    until("both to run", PATIENCE, async || {
        (target.effects().len() >= 6).then_some(())
    })
    .await;
    fleet.attempt(&plain, 1).await;
    fleet.attempt(&rerun, 1).await;
    a.kill().await;
    let _b = fleet.pod("b").await;
    let lost = fleet.ended(&plain).await;
    assert_eq!(lost.state, RunState::Lost, "{lost:?}");
    assert!(
        lost.why
            .expect("a reason")
            .contains("neither resumable nor auto_rerun")
    );
    let again = fleet.ended(&rerun).await;
    assert_eq!(again.state, RunState::Succeeded, "{again:?}");
    assert_eq!(again.attempts.len(), 2);
}
