//! What a job's policies do with firings that are missed, overlap, fail or take too long. Every nominal
//! time has one answer: a run, or a gap that says why.

use std::time::Duration;

use wasmcron_core::run::{RunRecord, RunState};
use wasmcron_core::task::Reason;
use wasmcron_core::time::Timestamp;
use wasmcron_core::view::Gap;

use crate::harness::{Fleet, PATIENCE, Signal, Timing, jobs, until};

/// Lines of a job that does one deed of the hostile guest.
fn deed(text: &str, deed: &str) -> String {
    format!("plugin = \"hostile\"\n{text}\n[params]\n{deed}\n")
}

/// The runs of a job by nominal time, and its gaps.
async fn answers(fleet: &Fleet, job: &str) -> (Vec<RunRecord>, Vec<Gap>) {
    let name = job.parse().expect("a name");
    let mut runs = fleet.store().runs(&name, 1000).await.expect("runs");
    runs.sort_by_key(|run| run.nominal);
    let mut gaps = fleet.store().gaps(&name, 1000).await.expect("gaps");
    gaps.sort_by_key(|gap| gap.from);
    (runs, gaps)
}

/// Every whole second after `from` up to `to` has a run or lies in a gap, and not both.
fn each_second_is_answered(runs: &[RunRecord], gaps: &[Gap], from: Timestamp, to: Timestamp) {
    let first = from.as_millis() / 1000 + 1;
    for second in first..=to.as_millis() / 1000 {
        let at = Timestamp::from_millis(second * 1000);
        let fired = runs.iter().filter(|run| run.nominal == at).count();
        let missed = gaps.iter().filter(|gap| gap.from <= at && at <= gap.to);
        let answers = fired + missed.count();
        assert_eq!(answers, 1, "{at} has {answers} answers: {gaps:?}");
    }
}

/// With no pod for some seconds: `skip` runs what is hardly late, `once` the latest, `all` the latest
/// few in order; everything else is a gap with its reason.
#[tokio::test(flavor = "multi_thread")]
async fn missed_firings_follow_the_misfire_policy() {
    let fleet = Fleet::new(Timing::Fast).await;
    fleet.install("hello", "hello");
    let job = |misfire: &str| {
        jobs::hello(&format!(
            "every = \"1s\"\noverlap = \"queue\"\nmisfire = {misfire}"
        ))
    };
    fleet.write_job("skip", &job("{ policy = \"skip\", grace = \"1500ms\" }"));
    fleet.write_job("once", &job("\"once\""));
    fleet.write_job("all", &job("{ policy = \"all\", max = 3 }"));
    let names = ["skip", "once", "all"];
    let pod = fleet.pod("a").await;
    for name in names {
        fleet
            .run_where(name, "succeeded", |run| run.state == RunState::Succeeded)
            .await;
    }
    pod.kill().await;
    let gone = fleet.now().await;
    until("eight seconds", PATIENCE, async || {
        (fleet.now().await.since(gone) >= Duration::from_secs(8)).then_some(())
    })
    .await;
    let _again = fleet.pod("a").await;
    let back = fleet.now().await;
    for name in names {
        fleet
            .run_where(name, "is later", |run| {
                run.nominal > back + Duration::from_secs(1) && run.state == RunState::Succeeded
            })
            .await;
    }
    for name in names {
        let (runs, gaps) = answers(&fleet, name).await;
        let first = runs.first().expect("a run").nominal;
        each_second_is_answered(&runs, &gaps, first, back);
        let why: Vec<&str> = gaps
            .iter()
            .filter(|gap| gap.to > gone)
            .map(|gap| gap.why.as_str())
            .collect();
        let caught_up = runs
            .iter()
            .filter(|run| run.nominal > gone && run.nominal <= back - Duration::from_secs(2))
            .count();
        match name {
            "skip" => assert_eq!((why[0], caught_up), ("misfire", 0), "{gaps:?}"),
            "once" => assert!(why[0] == "coalesced" && caught_up <= 1, "{gaps:?}"),
            _ => assert!(why[0] == "coalesced" && caught_up <= 3, "{gaps:?}"),
        }
    }
}

/// A retry that waits behind a long run for its pod's only slot ends when its run is out of time, not when
/// the slot is free.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_out_of_time_does_not_wait_for_a_slot() {
    let (target, server) = jobs::target().await;
    let fleet = Fleet::new(Timing::Fast).await;
    fleet.install("stepper", "stepper");
    fleet.install("hostile", "hostile");
    let limits = "run_timeout = \"1500ms\"\nretry = { max_attempts = 2, backoff = \"100ms\" }";
    fleet.write_job("short", &jobs::stepper(&server.url(), 9, 100, limits));
    let long = deed("timeout = \"1m\"", "do = \"wait-stop\"");
    fleet.write_job("long", &long);
    let _pod = fleet.pod_with("a", "pod.capacity = 1").await;
    fleet.opened(&["short", "long"]).await;
    let short = fleet.trigger("short", "{\"fail_at\": 4}").await;
    until("a step", PATIENCE, async || {
        (!target.effects().is_empty()).then_some(())
    })
    .await;
    // It is in the queue before the retry, and takes the slot.
    let long = fleet.submit("long").await;
    let ended = fleet.ended(&short).await;
    assert_eq!(ended.state, RunState::TimedOut, "{ended:?}");
    assert_eq!(ended.attempts.len(), 1, "{ended:?}");
    let why = ended.why.unwrap_or_default();
    assert!(
        why.contains("run_timeout of 1s 500ms") && why.contains("queue of a"),
        "{why}"
    );
    let running = fleet.store().run(&long).await.expect("the record");
    assert_eq!(running.expect("a record").state, RunState::Running);
}

/// `overlap = "queue"`: one firing waits for the run under way, later ones are skipped with the reason.
#[tokio::test(flavor = "multi_thread")]
async fn one_overlapping_firing_waits_with_queue() {
    let fleet = Fleet::new(Timing::Fast).await;
    fleet.install("hostile", "hostile");
    let schedule = "every = \"1s\"\noverlap = \"queue\"";
    fleet.write_job("slow", &deed(schedule, "do = \"sleep\"\ncount = 3500"));
    let _pod = fleet.pod("a").await;
    let parked = fleet
        .run_where("slow", "is parked", |run| run.state == RunState::Parked)
        .await;
    let skipped = fleet
        .run_where("slow", "is skipped", |run| run.state == RunState::Skipped)
        .await;
    assert!(skipped.nominal > parked.nominal);
    assert!(
        skipped
            .why
            .expect("a reason")
            .contains("overlap with slow@")
    );
    let waited = fleet.ended(&parked.run).await;
    assert_eq!(waited.state, RunState::Succeeded, "{waited:?}");
    let (runs, _) = answers(&fleet, "slow").await;
    let waiting = runs.iter().filter(|run| run.state == RunState::Parked);
    assert!(waiting.count() <= 1);
}

/// The wait before a retry is the policy's, or longer if the guest asks for more.
#[tokio::test(flavor = "multi_thread")]
async fn a_retry_waits_as_long_as_the_guest_asks() {
    let fleet = Fleet::new(Timing::Fast).await;
    fleet.install("hostile", "hostile");
    let retry = "retry = { max_attempts = 2, backoff = \"100ms\" }";
    fleet.write_job(
        "fails",
        &deed(retry, "do = \"retry\"\ncount = 0\ntext = \"no\""),
    );
    fleet.write_job(
        "waits",
        &deed(retry, "do = \"retry\"\ncount = 2000\ntext = \"no\""),
    );
    let _pod = fleet.pod("a").await;
    fleet.opened(&["fails", "waits"]).await;
    for (job, least, most) in [("fails", 80, 1_900), ("waits", 2_000, 20_000)] {
        let run = fleet.trigger(job, "{}").await;
        let record = fleet.ended(&run).await;
        assert_eq!(record.state, RunState::Failed, "{record:?}");
        assert_eq!(record.attempts.len(), 2, "{record:?}");
        let ended = record.attempts[0].ended_at.expect("its end");
        let pause = record.attempts[1].claimed_at.since(ended).as_millis();
        assert!((least..most).contains(&pause), "{job}: {pause} ms");
        assert_eq!(record.attempts[1].reason, Reason::Retry);
    }
}

/// `run_timeout` ends a run while it executes, and one whose next attempt would begin too late.
#[tokio::test(flavor = "multi_thread")]
async fn a_whole_run_is_limited_in_time() {
    let fleet = Fleet::new(Timing::Fast).await;
    fleet.install("hostile", "hostile");
    let retry = "run_timeout = \"2s\"\nretry = { max_attempts = 99, backoff = \"700ms\" }";
    fleet.write_job("long", &deed(retry, "do = \"spin\""));
    fleet.write_job(
        "fails",
        &deed(retry, "do = \"retry\"\ncount = 0\ntext = \"no\""),
    );
    let _pod = fleet.pod("a").await;
    fleet.opened(&["long", "fails"]).await;
    for job in ["long", "fails"] {
        let run = fleet.trigger(job, "{}").await;
        let record = fleet.ended(&run).await;
        assert_eq!(record.state, RunState::TimedOut, "{record:?}");
        let why = record.why.clone().expect("a reason");
        assert!(why.contains("run_timeout of 2s"), "{why}");
        let ended = record.ended_at.expect("its end");
        let lasted = ended.since(record.attempts[0].claimed_at);
        assert!(lasted < Duration::from_secs(4), "{lasted:?}");
        let attempts = record.attempts.len();
        assert_eq!(attempts > 1, job == "fails", "{record:?}");
    }
}

/// `run_timeout` ends a run that waits for a pod after it lost its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_without_a_pod_times_out() {
    let fleet = Fleet::new(Timing::Fast).await;
    fleet.install("hostile", "hostile");
    let picky = "run_timeout = \"4s\"\nresumable = true\npods = { zone = \"eu\" }";
    fleet.write_job("dies", &deed(picky, "do = \"ignore-stop\""));
    fleet.write_job(
        "yields",
        &deed(picky, "do = \"save-until-stop\"\nthen = \"yield\""),
    );
    let eu = "pod.labels = { zone = \"eu\" }\n";
    for job in ["dies", "yields"] {
        let a = fleet.pod_with("a", eu).await;
        let _b = fleet.pod("b").await;
        fleet.opened(&[job]).await;
        let run = fleet.trigger(job, "{}").await;
        fleet.attempt(&run, 1).await;
        if job == "dies" {
            a.kill().await;
        } else {
            a.signal(Signal::Terminate);
            assert_eq!(a.ended().await, Some(0));
        }
        let record = fleet.ended(&run).await;
        assert_eq!(record.state, RunState::TimedOut, "{record:?}");
        let why = record.why.expect("a reason");
        assert!(why.contains("run_timeout of 4s"), "{why}");
        assert_eq!(record.attempts.len(), 1);
    }
}

/// A firing that its pod gave back, or that lies in a dead pod's queue, and that no other pod can take,
/// waits up to its misfire grace and is then answered as missed.
#[tokio::test(flavor = "multi_thread")]
async fn a_firing_waits_for_a_pod_up_to_its_grace() {
    for signal in [Signal::Terminate, Signal::Kill] {
        let fleet = Fleet::new(Timing::Fast).await;
        fleet.install("hostile", "hostile");
        fleet.install("hello", "hello");
        fleet.write_job("holds", &deed("", "do = \"wait-stop\""));
        let due = fleet.now().await + Duration::from_secs(5);
        let picky = format!(
            "{}misfire = {{ policy = \"once\", grace = \"4s\" }}\npods = {{ zone = \"eu\" }}\n",
            jobs::hello(&jobs::daily_at(due))
        );
        fleet.write_job("picky", &picky);
        let a = fleet
            .pod_with("a", "pod.labels = { zone = \"eu\" }\npod.capacity = 1\n")
            .await;
        fleet.opened(&["holds", "picky"]).await;
        let holds = fleet.trigger("holds", "{}").await;
        fleet.attempt(&holds, 1).await;
        let waits = fleet
            .run_where("picky", "is in the queue", |run| {
                run.state == RunState::Scheduled
            })
            .await;
        let b = fleet.pod("b").await;
        a.signal(signal);
        a.ended().await;
        let record = fleet.ended(&waits.run).await;
        assert_eq!(record.state, RunState::Skipped, "{record:?}");
        let why = record.why.expect("a reason");
        assert!(why.contains("misfire") && why.contains("labels"), "{why}");
        assert!(record.attempts.is_empty());
        let waited = record.ended_at.expect("its end").since(waits.nominal);
        assert!(waited >= Duration::from_secs(4), "{waited:?}");
        b.counts("missed_total", 1.0).await;
    }
}

/// A paused job fires nothing and catches nothing up; the pause is one gap.
#[tokio::test(flavor = "multi_thread")]
async fn a_pause_ends_without_a_burst() {
    let fleet = Fleet::new(Timing::Fast).await;
    fleet.install("hello", "hello");
    fleet.write_job(
        "tick",
        &jobs::hello("every = \"1s\"\nmisfire = { policy = \"all\", max = 100 }"),
    );
    let _pod = fleet.pod("a").await;
    fleet
        .run_where("tick", "succeeded", |run| run.state == RunState::Succeeded)
        .await;
    let (_, err, code) = fleet
        .cli(&["job", "pause", "tick", "--why", "a test"])
        .await;
    assert_eq!(code, 0, "{err}");
    let paused = fleet.now().await;
    until("five seconds", PATIENCE, async || {
        (fleet.now().await.since(paused) >= Duration::from_secs(5)).then_some(())
    })
    .await;
    let (_, err, code) = fleet.cli(&["job", "resume", "tick"]).await;
    assert_eq!(code, 0, "{err}");
    let resumed = fleet.now().await;
    fleet
        .run_where("tick", "is later", |run| run.nominal > resumed)
        .await;
    let (runs, gaps) = answers(&fleet, "tick").await;
    let first = runs.first().expect("a run").nominal;
    each_second_is_answered(&runs, &gaps, first, resumed);
    let within = runs
        .iter()
        .filter(|run| run.nominal > paused && run.nominal <= resumed - Duration::from_secs(1));
    assert_eq!(within.count(), 0);
    let gap = gaps.iter().find(|gap| gap.why == "paused").expect("a gap");
    assert!(gap.count >= 4, "{gap:?}");
}
