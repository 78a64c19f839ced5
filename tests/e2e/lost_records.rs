//! Stores that forget what was acknowledged, that are not ready yet, and connections that forget themselves.

use std::time::Duration;

use tokio::time::Instant;
use wasmcron_core::ids::{JobName, RunId};
use wasmcron_core::run::RunState;
use wasmcron_core::time::Timestamp;
use wasmcron_tests::fleet::PodProcess as Pod;
use wasmcron_tests::proxy::{Proxy, Way};
use wasmcron_tests::scripted::{Answers, Scripted};

use crate::harness::{Fleet, Midway, PATIENCE, PodProcess, Timing, jobs, until};

/// How many of them say that they lead.
async fn leaders(pods: &[&PodProcess]) -> usize {
    let mut leading = 0;
    for pod in pods {
        leading += usize::from(pod.metric("scheduler_is_leader").await == 1.0);
    }
    leading
}

/// Effects by the fence of their attempt, in the order in which they came.
fn fences(target: &wasmcron_tests::servers::target::Target) -> Vec<u64> {
    let fence = |effect: &serde_json::Value| {
        let fence = &effect["fence"];
        let number = fence.as_u64().or_else(|| fence.as_str()?.parse().ok());
        number.expect("a fence")
    };
    target.effects().iter().map(fence).collect()
}

/// The primary is lost and a copy takes its place that has neither the lease nor the lock nor the run: the pod
/// that had them hears so, its guest is ended, and the firing runs again under a higher fence, which is what
/// tells the two apart. (C36)
#[tokio::test(flavor = "multi_thread")]
async fn c36_a_copy_without_lease_and_lock_takes_over() {
    let (target, server) = jobs::target().await;
    let mut fleet = Fleet::new(Timing::Fast).await;
    fleet.install("stepper", "stepper");
    let pods = [fleet.pod("a").await, fleet.pod("b").await];
    fleet.live(2).await;
    let due = fleet.now().await + Duration::from_secs(4);
    fleet.write_job(
        "steps",
        &jobs::stepper(&server.url(), 60, 60, &jobs::daily_at(due)),
    );
    fleet.opened(&["steps"]).await;
    let due = Timestamp::from_millis(due.as_millis() / 1000 * 1000);
    until("the moment of the copy", PATIENCE, async || {
        (fleet.now().await + Duration::from_millis(300) >= due).then_some(())
    })
    .await;
    fleet.redis_command::<String>(&["SAVE"]).await;
    until("some steps", PATIENCE, async || {
        (target.effects().len() >= 20).then_some(())
    })
    .await;
    let run = RunId::nominal(&"steps".parse::<JobName>().expect("a name"), due);
    let old = fleet.attempt(&run, 1).await.attempts[0].fence;
    // Without persistence the server comes back with what it saved.
    fleet.store_mut().restart().await;
    let record = fleet.ended(&run).await;
    assert_eq!(record.state, RunState::Succeeded, "{record:?}");
    let new = record.attempts.last().expect("an attempt").fence;
    assert!(new > old, "{new} after {old}");
    let fences = fences(&target);
    let first = fences.iter().position(|fence| *fence == new.0);
    let after = &fences[first.expect("steps of the new attempt")..];
    let late = after.iter().filter(|fence| **fence == old.0).count();
    // The old attempt may go on until its next extension is answered: 300 ms and an answer.
    assert!(late <= 10, "{late} steps of the old attempt: {fences:?}");
    assert_eq!(after.iter().filter(|fence| **fence == new.0).count(), 60);
    assert_eq!(leaders(&[&pods[0], &pods[1]]).await, 1);
}

/// Everything is deleted under two pods, of which one executes a run: within a loop there is one leader again,
/// both are known, jobs are in force anew, nothing counts as missed, and the guest without a lock is
/// ended. (C67)
#[tokio::test(flavor = "multi_thread")]
async fn c67_everything_is_deleted_under_running_pods() {
    let fleet = Fleet::new(Timing::Fast).await;
    fleet.install("hello", "hello");
    fleet.write_job("tick", &jobs::hello("every = \"300ms\"\nmisfire = \"all\""));
    let midway = Midway::on(fleet, &["a", "b"], 2_000, 30, "").await;
    let fleet = &midway.fleet;
    fleet.ticks_again("tick").await;
    let deleted = fleet.now().await;
    fleet.redis_command::<String>(&["FLUSHALL"]).await;
    fleet.live(2).await;
    fleet.ticks_again("tick").await;
    let pods: Vec<&PodProcess> = midway.pods.iter().collect();
    until("one leader", PATIENCE, async || {
        (leaders(&pods).await == 1).then_some(())
    })
    .await;
    until("the guest to be ended", PATIENCE, async || {
        let mut executing = 0.0;
        for pod in &pods {
            executing += pod.metric("wasmcron_attempts_running").await;
        }
        (executing == 0.0).then_some(())
    })
    .await;
    let steps = midway.steps().len();
    for pod in &pods {
        assert_eq!(pod.metric("missed_total").await, 0.0, "{}", pod.address());
    }
    let name = "tick".parse().expect("a name");
    let gaps = fleet.store().gaps(&name, 100).await.expect("gaps");
    // What came due until somebody led again may be one; what lies before has no mark and is no business.
    let before = gaps.iter().find(|gap| gap.from < deleted);
    assert!(before.is_none(), "{before:?}");
    let runs = fleet.store().runs(&name, 1_000).await.expect("runs");
    let again = runs.iter().find(|run| run.nominal < deleted);
    assert!(again.is_none(), "it has run before: {again:?}");
    let next = fleet.trigger(crate::harness::JOB, "{\"steps\": 1}").await;
    assert_eq!(fleet.ended(&next).await.state, RunState::Succeeded);
    let after = midway.steps().len();
    assert!(
        after <= steps + 2,
        "the old guest went on: {steps}, then {after}"
    );
}

/// Pods that start before a server that still reads its data: they wait, say so once, and serve as soon as it
/// does. (C61)
#[tokio::test(flavor = "multi_thread")]
async fn c61_pods_wait_for_a_server_that_loads() {
    const LOADING: Answers = &[("*", "-LOADING Redis is loading the dataset in memory\r\n")];
    let mut fleet = Fleet::new(Timing::Fast).await;
    fleet.install("hello", "hello");
    fleet.write_job("tick", &jobs::hello("every = \"300ms\""));
    fleet.store_mut().kill();
    let port = fleet.store_mut().port();
    let loading = Scripted::start(port, LOADING).await.expect("its port");
    let mut waiting = Vec::new();
    for address in ["a", "b"] {
        let config = fleet.config(address, "");
        waiting.push(Pod::spawn(address, &config).expect("start a pod"));
    }
    until("pods that ask again and again", PATIENCE, async || {
        (loading.answered() >= 20).then_some(())
    })
    .await;
    loading.end().await;
    fleet.store_mut().restart().await;
    for pod in &mut waiting {
        assert!(
            pod.serves(PATIENCE).await.expect("its status"),
            "{}",
            pod.words()
        );
        let said = pod.words().matches("waiting for the store").count();
        assert_eq!(said, 1, "{}", pod.words());
    }
    fleet.live(2).await;
    fleet.ticks_again("tick").await;
}

/// A pod behind a proxy, which waits for a task of the job `once`.
async fn waits_behind_a_proxy() -> (Fleet, Proxy, PodProcess) {
    let mut fleet = Fleet::new(Timing::Fast).await;
    let way = fleet.way_of("a").await;
    fleet.install("hello", "hello");
    fleet.write_job("once", &jobs::hello(""));
    let pod = fleet.pod("a").await;
    fleet.opened(&["once"]).await;
    (fleet, way, pod)
}

/// Every connection of a pod stands still without being closed, while it waits for a task; for a while new ones
/// go nowhere either. Its readiness says so, and once new connections pass it takes the task that was
/// queued meanwhile, within ten seconds. (C62, C103)
#[tokio::test(flavor = "multi_thread")]
async fn c62_connections_that_stand_still_are_given_up() {
    let (fleet, way, pod) = waits_behind_a_proxy().await;
    way.set(Way::Swallowed, Way::Swallowed);
    way.strand();
    let run = fleet.submit("once").await;
    until("a pod that says it is not ready", PATIENCE, async || {
        let (status, body) = pod.get("/readyz").await;
        (status == 503 && body.contains("heartbeat") && body.contains("task")).then_some(())
    })
    .await;
    until("a pod that does not lead any more", PATIENCE, async || {
        (pod.metric("scheduler_is_leader").await == 0.0).then_some(())
    })
    .await;
    let record = fleet.store().run(&run).await.expect("it").expect("it");
    assert!(!record.state.is_ended(), "{record:?}");
    way.heal();
    let healed = Instant::now();
    let record = fleet.ended(&run).await;
    assert_eq!(record.state, RunState::Succeeded, "{record:?}");
    let late = healed.elapsed();
    assert!(late < Duration::from_secs(10), "{late:?}");
    until("a ready pod", PATIENCE, async || {
        (pod.get("/readyz").await.0 == 200).then_some(())
    })
    .await;
}

/// The same while everything else is healthy: only the connections that there are stand still, and the task of
/// the moment is taken over new ones. (C62)
#[tokio::test(flavor = "multi_thread")]
async fn c62_a_task_is_taken_over_new_connections() {
    let (fleet, way, pod) = waits_behind_a_proxy().await;
    for _ in 0..3 {
        way.strand();
        let stranded = Instant::now();
        let run = fleet.submit("once").await;
        let record = fleet.ended(&run).await;
        assert_eq!(record.state, RunState::Succeeded, "{record:?}");
        let late = stranded.elapsed();
        assert!(late < Duration::from_secs(10), "{late:?}");
    }
    drop(pod);
}
