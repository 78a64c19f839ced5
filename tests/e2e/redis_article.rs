//! The Redis leader scheduler for full syncs: its sections and scenarios as tests.

use std::collections::BTreeSet;
use std::time::Duration;

use wasmcron_core::ids::{PodRef, RunId};
use wasmcron_core::run::RunState;
use wasmcron_core::task::{Reason, Task};
use wasmcron_core::time::Timestamp;
use wasmcron_store::leadership::{Campaign, TermRef};
use wasmcron_store::schedule::{Decision, PublishAnswer, Published};

use crate::harness::{Fleet, PATIENCE, Timing, jobs, until};

/// The leader knows every job, and so does whoever leads after it: what it knows comes from the store.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_leads_knows_every_job() {
    let fleet = Fleet::new(Timing::Fast).await;
    fleet.install("hello", "hello");
    for n in 0..5 {
        fleet.write_job(&format!("job-{n}"), &jobs::hello("cron = \"@daily\""));
    }
    let mut pods = vec![
        fleet.pod("a").await,
        fleet.pod("b").await,
        fleet.pod("c").await,
    ];
    while !pods.is_empty() {
        let mut leading = None;
        let of_all = format!("the jobs of the leader of {} pods", pods.len());
        until(&of_all, PATIENCE, async || {
            for (at, pod) in pods.iter().enumerate() {
                let leads = pod.metric("scheduler_is_leader").await == 1.0;
                if leads && pod.metric("wasmcron_jobs").await == 5.0 {
                    leading = Some(at);
                    return Some(());
                }
            }
            None
        })
        .await;
        let leader = pods.swap_remove(leading.expect("one leads"));
        for follower in &pods {
            let jobs = follower.metric("wasmcron_jobs").await;
            assert_eq!(jobs, 0.0, "{} follows", follower.address());
        }
        leader.kill().await;
    }
}

/// Round robin: 1 to A, 2 to B, 3 to C, 4 to A.
#[tokio::test(flavor = "multi_thread")]
async fn round_robin() {
    let fleet = Fleet::new(Timing::Fast).await;
    fleet.install("hello", "hello");
    let _pods = [
        fleet.pod("a").await,
        fleet.pod("b").await,
        fleet.pod("c").await,
    ];
    fleet.live(3).await;
    fleet.write_job("tick", &jobs::hello("every = \"1s\""));
    let name = "tick".parse().expect("a name");
    let mut runs = until("four runs", PATIENCE, async || {
        let runs = fleet.store().runs(&name, 10).await.expect("runs");
        (runs
            .iter()
            .filter(|run| run.state == RunState::Succeeded)
            .count()
            >= 4)
            .then_some(runs)
    })
    .await;
    runs.sort_by_key(|run| run.nominal);
    let order: Vec<_> = runs
        .iter()
        .take(4)
        .map(|run| run.attempts[0].pod.to_string())
        .collect();
    assert_eq!(order, ["a", "b", "c", "a"]);
}

/// With no subscriber nothing is queued, the job says why, an error is counted, and the firing is not lost.
/// (C27)
#[tokio::test(flavor = "multi_thread")]
async fn no_subscriber_queues_nothing() {
    let fleet = Fleet::new(Timing::Fast).await;
    fleet.install("hello", "hello");
    fleet.write_job(
        "picky",
        &format!(
            "{}pods = {{ zone = \"eu\" }}\n",
            jobs::hello("every = \"1s\"")
        ),
    );
    let here = fleet.pod("a").await;
    let name = "picky".parse().expect("a name");
    let why = until("the reason", PATIENCE, async || {
        let view = fleet.store().job(&name).await.expect("the job")?;
        view.waiting.map(|waiting| waiting.why)
    })
    .await;
    assert!(why.contains("labels"), "{why}");
    assert!(here.metric("publish_failed_total{reason=\"labels\"}").await >= 1.0);
    let counts = fleet.store().counts().await.expect("counts");
    assert_eq!(
        (counts.scheduled, counts.running, counts.delayed),
        (0, 0, 0)
    );
    assert!(
        fleet
            .store()
            .runs(&name, 10)
            .await
            .expect("runs")
            .is_empty()
    );
    let (out, _, code) = fleet.cli(&["job", "show", "picky"]).await;
    assert_eq!(code, 0);
    assert!(out.contains("labels"), "{out}");
    let _there = fleet.pod_with("b", "[pod.labels]\nzone = \"eu\"").await;
    let run = fleet
        .run_where("picky", "succeeded", |run| run.state == RunState::Succeeded)
        .await;
    assert_eq!(run.attempts[0].pod.as_str(), "b");
}

/// `enabled` is read anew in every loop: switched off it fires no more, switched on it catches up nothing.
#[tokio::test(flavor = "multi_thread")]
async fn enabled_switched_between_two_loops() {
    let fleet = Fleet::new(Timing::Fast).await;
    fleet.install("hello", "hello");
    fleet.write_job("tick", &jobs::hello("every = \"500ms\""));
    fleet.write_job("clock", &jobs::hello("every = \"500ms\""));
    let _pod = fleet.pod("a").await;
    fleet
        .run_where("tick", "succeeded", |run| run.state == RunState::Succeeded)
        .await;

    fleet.write_job("tick", &jobs::hello("every = \"500ms\"\nenabled = false"));
    let off = seen_in_force(&fleet, "tick", false).await;
    let later = off + Duration::from_secs(2);
    fleet
        .run_where("clock", "is later", |run| {
            run.nominal > later && run.state.is_ended()
        })
        .await;
    let name = "tick".parse().expect("a name");
    let runs = fleet.store().runs(&name, 100).await.expect("runs");
    assert!(
        runs.iter().all(|run| run.nominal <= off),
        "fired while off: {runs:?}"
    );

    fleet.write_job("tick", &jobs::hello("every = \"500ms\""));
    let on = seen_in_force(&fleet, "tick", true).await;
    fleet
        .run_where("tick", "is new", |run| {
            run.nominal > on && run.state.is_ended()
        })
        .await;
    let runs = fleet.store().runs(&name, 100).await.expect("runs");
    assert!(
        runs.iter()
            .all(|run| run.nominal <= off || run.nominal > on),
        "caught up: {runs:?}"
    );
    let gaps = fleet.store().gaps(&name, 10).await.expect("gaps");
    assert!(!gaps.is_empty(), "the change leaves a trace");
}

/// Two leaders that both publish the same firing make one run, and the deposed one is refused. (C30, C53)
#[tokio::test(flavor = "multi_thread")]
async fn two_leaders_publish_one_firing() {
    let fleet = Fleet::new(Timing::Fast).await;
    fleet.install("hello", "hello");
    fleet.write_job("tick", &jobs::hello("every = \"700ms\""));
    let pod = fleet.pod("a").await;
    let job = "tick".parse().expect("a name");
    fleet
        .run_where("tick", "succeeded", |run| run.state == RunState::Succeeded)
        .await;
    // A second leader takes over while the first still believes in its lease.
    let term = rival(&fleet).await;
    // It publishes the next firing, and its past ones once more.
    let view = fleet
        .store()
        .job(&job)
        .await
        .expect("the job")
        .expect("the job");
    let old = view.cursor;
    let next = view
        .stored
        .definition
        .schedule
        .next_after(old)
        .expect("a next time");
    let fire = |nominal: Timestamp| Decision::Fire {
        task: Task::first(
            RunId::nominal(&job, nominal),
            nominal,
            Reason::Scheduled,
            "{}".into(),
        ),
        to: "a".parse().expect("an address"),
        after: old,
    };
    let answer = fleet
        .store()
        .publish(&term, &[fire(old), fire(next)])
        .await
        .expect("publish");
    let PublishAnswer::Answers(answers) = answer else {
        panic!("{answer:?}")
    };
    assert!(
        matches!(answers[0], Published::Deduped { .. }),
        "{answers:?}"
    );
    assert!(
        matches!(answers[1], Published::Published | Published::Deduped { .. }),
        "{answers:?}"
    );
    // Whoever leads afterwards goes on: every nominal time has one run.
    fleet
        .run_where("tick", "is later", |run| {
            run.nominal > next && run.state.is_ended()
        })
        .await;
    let runs = fleet.store().runs(&job, 100).await.expect("runs");
    let times: BTreeSet<_> = runs.iter().map(|run| run.nominal).collect();
    assert_eq!(times.len(), runs.len());
    assert!(runs.iter().all(|run| run.attempts.len() <= 1), "{runs:?}");
    drop(pod);
}

/// Takes the leadership away from whoever has it.
async fn rival(fleet: &Fleet) -> TermRef {
    let pod = PodRef {
        address: "rival".parse().expect("an address"),
        session: "01JDX00000000000000000000Z".parse().expect("a session"),
    };
    until("the rival to lead", PATIENCE, async || {
        fleet
            .redis_command::<i64>(&["DEL", "{distributed_scheduler}:leader"])
            .await;
        let campaign = fleet.store().campaign(&pod, Duration::from_secs(1)).await;
        match campaign.expect("campaign") {
            Campaign::Won(term) => Some(TermRef {
                pod: pod.clone(),
                term,
            }),
            Campaign::Held { .. } => None,
        }
    })
    .await
}

/// An exclusive job has the pod to itself: it waits for the other attempts.
#[tokio::test(flavor = "multi_thread")]
async fn exclusive_runs_alone() {
    let (target, server) = jobs::target().await;
    let fleet = Fleet::new(Timing::Fast).await;
    fleet.install("stepper", "stepper");
    fleet.write_job("long", &jobs::stepper(&server.url(), 20, 50, ""));
    fleet.write_job(
        "alone",
        &jobs::stepper(&server.url(), 1, 0, "exclusive = true"),
    );
    let _pod = fleet.pod("a").await;
    fleet.opened(&["long", "alone"]).await;
    let long = fleet.trigger("long", "{}").await;
    until("the long run to run", PATIENCE, async || {
        (!target.effects().is_empty()).then_some(())
    })
    .await;
    let alone = fleet.trigger("alone", "{}").await;
    let (long, alone) = (fleet.ended(&long).await, fleet.ended(&alone).await);
    assert_eq!(
        (long.state, alone.state),
        (RunState::Succeeded, RunState::Succeeded)
    );
    let began = alone.attempts.last().expect("an attempt").claimed_at;
    assert!(
        began >= long.ended_at.expect("an end"),
        "claimed at {began} before the other ended"
    );
}

/// The article's 01:00 story, in the order in which the execution log tells it.
#[tokio::test(flavor = "multi_thread")]
async fn the_story_of_one_oclock() {
    let (target, server) = jobs::target().await;
    let fleet = Fleet::new(Timing::Fast).await;
    fleet.install("stepper", "stepper");
    let mut pods = vec![
        fleet.pod("a").await,
        fleet.pod("b").await,
        fleet.pod("c").await,
    ];
    fleet.live(3).await;
    let at = fleet.now().await + Duration::from_secs(4);
    let cron = jobs::daily_at(at);
    fleet.write_job("sync", &jobs::stepper(&server.url(), 40, 40, &cron));
    until("some steps", PATIENCE, async || {
        (jobs::steps(&target).len() >= 8).then_some(())
    })
    .await;
    let run = fleet
        .run_where("sync", "runs", |run| run.state == RunState::Running)
        .await;
    let victim = run.attempts[0].pod.to_string();
    let index = pods
        .iter()
        .position(|pod| pod.address() == victim)
        .expect("the pod");
    pods.swap_remove(index).kill().await;
    let ended = fleet.ended(&run.run).await;
    assert_eq!(ended.state, RunState::Succeeded, "{ended:?}");
    let late = run.attempts[0].claimed_at.since(run.nominal);
    assert!(
        late < Duration::from_secs(5),
        "claimed {late:?} after its time"
    );
    let story = fleet.events(&run.run).await;
    let told: Vec<_> = story
        .iter()
        .map(String::as_str)
        .filter(|event| *event != "checkpoint.saved")
        .collect();
    assert_eq!(
        told,
        [
            "run.published",
            "run.claimed",
            "run.recovered",
            "run.claimed",
            "run.finished"
        ]
    );
    assert_eq!(
        jobs::steps(&target)
            .iter()
            .map(|(_, step)| *step)
            .collect::<BTreeSet<_>>(),
        (0..40).collect()
    );
}

/// The store's time when the definition with this `enabled` was seen in force.
async fn seen_in_force(fleet: &Fleet, job: &str, enabled: bool) -> Timestamp {
    let name = job.parse().expect("a name");
    until(
        &format!("{job} with enabled = {enabled}"),
        PATIENCE,
        async || {
            let view = fleet.store().job(&name).await.expect("the job")?;
            (view.stored.definition.enabled == enabled).then_some(())
        },
    )
    .await;
    fleet.now().await
}
