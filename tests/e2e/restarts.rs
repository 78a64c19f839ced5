//! Pods and leaders that die and come back.

use std::collections::BTreeSet;
use std::time::Duration;

use wasmcron_core::run::RunState;

use crate::harness::{Fleet, JOB, Midway, PATIENCE, Signal, Timing, jobs, until};

/// SIGKILL of the leader just before a due time: fired once, by the next one. (C25)
#[tokio::test(flavor = "multi_thread")]
async fn c25_the_leader_dies_just_before_a_due_time() {
    let fleet = Fleet::new(Timing::Fast).await;
    fleet.install("hello", "hello");
    let mut pods = vec![
        fleet.pod("a").await,
        fleet.pod("b").await,
        fleet.pod("c").await,
    ];
    fleet.live(3).await;
    let due = fleet.now().await + Duration::from_secs(4);
    fleet.write_job("once", &jobs::hello(&jobs::daily_at(due)));
    fleet.opened(&["once"]).await;
    let nominal = wasmcron_core::time::Timestamp::from_millis(due.as_millis() / 1000 * 1000);
    until("the moment before", PATIENCE, async || {
        (fleet.now().await + Duration::from_millis(250) >= nominal).then_some(())
    })
    .await;
    let leader = fleet.leader().await;
    let index = pods
        .iter()
        .position(|pod| pod.address() == leader)
        .expect("the leader");
    pods.swap_remove(index).kill().await;
    let run = fleet
        .run_where("once", "ended", |run| run.state.is_ended())
        .await;
    assert_eq!((run.state, run.nominal), (RunState::Succeeded, nominal));
    assert_ne!(fleet.leader().await, leader);
    let all = fleet
        .store()
        .runs(&"once".parse().expect("a name"), 10)
        .await
        .expect("runs");
    assert_eq!(all.len(), 1, "{all:?}");
}

/// A restart inside the due minute does not fire again. (C23)
#[tokio::test(flavor = "multi_thread")]
async fn c23_a_restart_inside_the_due_minute() {
    let fleet = Fleet::new(Timing::Fast).await;
    fleet.install("hello", "hello");
    let pod = fleet.pod("a").await;
    fleet.live(1).await;
    let due = fleet.now().await + Duration::from_secs(3);
    fleet.write_job("once", &jobs::hello(&jobs::daily_at(due)));
    fleet.write_job("clock", &jobs::hello("every = \"500ms\""));
    fleet
        .run_where("once", "succeeded", |run| run.state == RunState::Succeeded)
        .await;
    pod.kill().await;
    let _again = fleet.pod("a").await;
    let now = fleet.now().await;
    fleet
        .run_where("clock", "is later", |run| {
            run.nominal > now + Duration::from_secs(1) && run.state.is_ended()
        })
        .await;
    assert_eq!(
        fleet
            .store()
            .runs(&"once".parse().expect("a name"), 10)
            .await
            .expect("runs")
            .len(),
        1
    );
}

/// The only pod is killed during a run and started again under its name: the run goes on and is never
/// shown as running for ever. (C37, C92)
#[tokio::test(flavor = "multi_thread")]
async fn c37_c92_a_restarted_pod_is_not_its_dead_self() {
    let mut midway = Midway::start(Timing::Defaults, &["a"], 20, 100, "").await;
    midway.victim().await.kill().await;
    let (fleet, run) = (&midway.fleet, &midway.run);
    let killed = tokio::time::Instant::now();
    let _again = fleet.pod("a").await;
    let record = fleet.attempt(run, 2).await;
    // Well within the lock's ten seconds: the new session gives its dead self's attempt back.
    assert!(
        killed.elapsed() < Duration::from_secs(9),
        "{:?}",
        killed.elapsed()
    );
    assert_eq!(record.attempts[1].pod.as_str(), "a");
    assert_eq!(fleet.ended(run).await.state, RunState::Succeeded);
    assert_eq!(midway.distinct_steps(), (0..20).collect());
    let next = fleet.trigger(JOB, "{\"steps\": 1}").await;
    assert_eq!(
        fleet.ended(&next).await.state,
        RunState::Succeeded,
        "a manual trigger is not refused for ever"
    );
}

/// Scripts vanish while pods run: they are loaded again, and no task is lost. (C59)
#[tokio::test(flavor = "multi_thread")]
async fn c59_scripts_vanish() {
    let fleet = Fleet::new(Timing::Fast).await;
    fleet.install("hello", "hello");
    fleet.write_job("tick", &jobs::hello("every = \"300ms\""));
    let pod = fleet.pod("a").await;
    for _ in 0..5 {
        fleet.redis_command::<String>(&["SCRIPT", "FLUSH"]).await;
        fleet.ticks_again("tick").await;
    }
    let (status, body) = pod.get("/readyz").await;
    assert_eq!(status, 200, "{body}");
}

/// A pod whose last pod died long ago finds every answer: no live worker writes nothing. (C27)
#[tokio::test(flavor = "multi_thread")]
async fn c27_no_live_worker_writes_nothing() {
    let fleet = Fleet::new(Timing::Fast).await;
    fleet.install("hello", "hello");
    fleet.write_job(
        "picky",
        &format!(
            "{}pods = {{ zone = \"eu\" }}\n",
            jobs::hello("every = \"200ms\"")
        ),
    );
    let pod = fleet.pod("a").await;
    until("a few looks", PATIENCE, async || {
        (pod.metric("publish_failed_total{reason=\"labels\"}").await >= 3.0).then_some(())
    })
    .await;
    let keys = async || {
        fleet
            .redis_command::<Vec<String>>(&["KEYS", "*"])
            .await
            .into_iter()
            .collect::<BTreeSet<_>>()
    };
    let before = keys().await;
    let looks = pod.metric("publish_failed_total{reason=\"labels\"}").await;
    until("more looks", PATIENCE, async || {
        (pod.metric("publish_failed_total{reason=\"labels\"}").await >= looks + 3.0).then_some(())
    })
    .await;
    assert_eq!(keys().await, before, "no key appears");
    assert_eq!(
        fleet
            .execution_log()
            .await
            .iter()
            .filter(|event| event.event.starts_with("run."))
            .count(),
        0
    );
}

/// A pod that starts while the store takes no writes waits for it, as a running one does. (C61)
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_starts_during_a_failover() {
    let fleet = Fleet::new(Timing::Fast).await;
    fleet
        .redis_command::<()>(&["REPLICAOF", "127.0.0.1", "1"])
        .await;
    let take_writes = async {
        until("a refused write", PATIENCE, async || {
            let errors: String = fleet.redis_command(&["INFO", "errorstats"]).await;
            errors.contains("errorstat_READONLY").then_some(())
        })
        .await;
        fleet.redis_command::<()>(&["REPLICAOF", "NO", "ONE"]).await;
    };
    let (_pod, ()) = tokio::join!(fleet.pod("a"), take_writes);
    fleet.live(1).await;
}

/// SIGTERM: the run yields with its checkpoint and goes on elsewhere at once; the exit code is 0. (C56)
#[tokio::test(flavor = "multi_thread")]
async fn sigterm_hands_over() {
    let mut midway = Midway::start(Timing::Defaults, &["a", "b"], 40, 50, "").await;
    let pod = midway.victim().await;
    pod.signal(Signal::Terminate);
    assert_eq!(pod.ended().await, Some(0));
    let record = midway.fleet.ended(&midway.run).await;
    assert_eq!(record.state, RunState::Succeeded, "{record:?}");
    assert_eq!(record.attempts.len(), 2, "{record:?}");
    assert_eq!(record.recoveries, 0, "a drain is no recovery: {record:?}");
    let steps = midway.steps();
    assert_eq!(
        steps.len(),
        40,
        "nothing is done twice after an orderly hand-over: {steps:?}"
    );
}

/// The end of a run is asked for while its pod is dead: the restarted pod does not take it up again.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_run_does_not_come_back_with_its_pod() {
    let mut midway = Midway::start(Timing::Defaults, &["a"], 500, 50, "").await;
    midway.victim().await.kill().await;
    let (out, err, code) = midway
        .fleet
        .cli(&["run", "cancel", midway.run.as_str()])
        .await;
    assert_eq!(code, 0, "{out}{err}");
    let _again = midway.fleet.pod("a").await;
    let record = midway.fleet.ended(&midway.run).await;
    assert_eq!(record.state, RunState::Cancelled, "{record:?}");
    assert_eq!(record.attempts.len(), 1, "{record:?}");
}

/// A job that kills its pod each time is set aside, although the pod comes back under its name before
/// the lock runs out. (C45)
#[tokio::test(flavor = "multi_thread")]
async fn c45_a_poison_job_is_caught_across_restarts() {
    let fleet = Fleet::new(Timing::Defaults).await;
    fleet.install("hostile", "hostile");
    let poison = "plugin = \"hostile\"\nresumable = true\n[params]\ndo = \"ignore-stop\"\n";
    fleet.write_job("poison", poison);
    let limit = "recovery.max_recoveries = 1";
    let mut pod = fleet.pod_with("a", limit).await;
    fleet.opened(&["poison"]).await;
    let run = fleet.trigger("poison", "{}").await;
    for attempt in [1, 2] {
        fleet.attempt(&run, attempt).await;
        pod.kill().await;
        pod = fleet.pod_with("a", limit).await;
    }
    let record = fleet.ended(&run).await;
    assert_eq!(record.state, RunState::Lost, "{record:?}");
    assert_eq!(record.attempts.len(), 2, "{record:?}");
    let name = "poison".parse().expect("a name");
    let view = fleet
        .store()
        .job(&name)
        .await
        .expect("the job")
        .expect("the job");
    assert!(view.quarantined.is_some(), "an operator has to release it");
    drop(pod);
}

/// The same with three pods: a job that takes one after the other down is set aside while the last of them
/// lives, which is counted, and that one runs the other jobs. (C45)
#[tokio::test(flavor = "multi_thread")]
async fn c45_a_poison_job_does_not_take_every_pod_down() {
    let fleet = Fleet::new(Timing::Fast).await;
    fleet.install("hostile", "hostile");
    fleet.install("hello", "hello");
    let poison = "plugin = \"hostile\"\nresumable = true\n[params]\ndo = \"ignore-stop\"\n";
    fleet.write_job("poison", poison);
    fleet.write_job("tick", &jobs::hello("every = \"500ms\""));
    let mut pods = Vec::new();
    for address in ["a", "b", "c"] {
        pods.push(fleet.pod_with(address, "recovery.max_recoveries = 1").await);
    }
    fleet.live(3).await;
    fleet.opened(&["poison"]).await;
    let run = fleet.trigger("poison", "{}").await;
    for attempt in [1, 2] {
        let record = fleet.attempt(&run, attempt).await;
        let executing = record.attempts.last().expect("an attempt").pod.to_string();
        let at = pods.iter().position(|pod| pod.address() == executing);
        // What such a guest would do to its pod, if the sandbox let it.
        pods.swap_remove(at.expect("the executing pod"))
            .kill()
            .await;
    }
    let record = fleet.ended(&run).await;
    assert_eq!(
        (record.state, record.attempts.len()),
        (RunState::Lost, 2),
        "{record:?}"
    );
    assert!(record.why.is_some(), "{record:?}");
    let [last] = &pods[..] else {
        panic!("{} pods are left", pods.len())
    };
    last.counts("poisoned_total", 1.0).await;
    let tick = fleet.ticks_again("tick").await;
    assert_eq!(tick.attempts[0].pod.as_str(), last.address());
}

/// A pod that has another address at each start, as in Kubernetes: what its dead self executed goes on in the
/// new one, and nothing of the old name stays behind. (C37)
#[tokio::test(flavor = "multi_thread")]
async fn c37_a_pod_under_a_new_name_inherits_from_the_old_one() {
    let mut midway = Midway::start(Timing::Fast, &["web-7f9c"], 40, 50, "").await;
    midway.victim().await.kill().await;
    let (fleet, run) = (&midway.fleet, &midway.run);
    let _again = fleet.pod("web-b21a").await;
    let record = fleet.attempt(run, 2).await;
    assert_eq!(record.attempts[1].pod.as_str(), "web-b21a");
    assert_eq!(fleet.ended(run).await.state, RunState::Succeeded);
    until(
        "the end of every key of the old name",
        PATIENCE,
        async || {
            let keys: Vec<String> = fleet.redis_command(&["KEYS", "*:web-7f9c*"]).await;
            let known: Option<f64> = fleet
                .redis_command(&["ZSCORE", "{distributed_scheduler}:subscribers", "web-7f9c"])
                .await;
            (keys.is_empty() && known.is_none()).then_some(())
        },
    )
    .await;
}
