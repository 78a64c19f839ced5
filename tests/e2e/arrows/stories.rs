//! How a leader comes to an arrow, and what there is to see afterwards.

use std::collections::BTreeMap;
use std::time::Duration;

use wasmcron_core::time::Timestamp;
use wasmcron_tests::tripwire::Side;

use super::stage::{IDLE, LEADER, STEPS, Stage, WORKER, WORKERS, judge};
use crate::harness::{PATIENCE, Signal, jobs, until};

const JOB: &str = "steps";
/// Steps of a run that shall still go on when the next leader comes.
const LONG: u32 = 150;
/// Milliseconds between firings that are missed.
const PERIOD: usize = 500;

/// What leads to the arrow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Story {
    /// The pod wants to lead.
    Elected,
    /// A firing, executed by a follower.
    Led,
    /// Firings while no pod lived.
    Missed,
    /// A run by hand, executed by a follower.
    Asked,
    /// The executing pod died; its run can go on.
    Recovered,
    /// The executing pod died; its run cannot go on.
    GivenUp,
    /// A firing, executed by the leader itself.
    Executed,
    /// An attempt that fails, on the leader.
    Retried,
    /// The retry of one that failed.
    RetryPromoted,
    /// A firing that comes while the job runs.
    Skipped,
    /// A run by hand that comes while the job runs.
    Parked,
    /// An exclusive run that waits in vain for the pod.
    HandedBack,
    /// The leader is asked to leave while it executes.
    Drained,
}

/// Plays a story up to the arrow, kills the leader there, and judges how it goes on.
pub async fn play(story: Story, verb: &'static str, side: Side, ends: &'static [&'static str]) {
    match story {
        Story::Elected => elected(verb, side, ends).await,
        Story::Led => firing(Stage::new(false).await, verb, side, ends).await,
        Story::Executed => firing(Stage::new(true).await, verb, side, ends).await,
        Story::Missed => missed(verb, side).await,
        Story::Asked => asked(verb, side, ends).await,
        Story::Recovered => recovered(verb, side, ends).await,
        Story::GivenUp => given_up(verb, side, ends).await,
        Story::Retried | Story::RetryPromoted => retried(story, verb, side, ends).await,
        Story::Skipped => skipped(verb, side, ends).await,
        Story::Parked => parked(verb, side, ends).await,
        Story::HandedBack => handed_back(verb, side, ends).await,
        Story::Drained => drained(verb, side, ends).await,
    }
}

/// A schedule that fires once, as soon as pods can be counted on to have read it.
async fn soon(stage: &Stage) -> (String, Timestamp) {
    let due = stage.fleet.now().await + Duration::from_secs(4);
    let nominal = Timestamp::from_millis(due.as_millis() / 1000 * 1000);
    (jobs::daily_at(due), nominal)
}

/// The one run of the job ended as it should, with every step, and a late request changes nothing.
async fn one_run(stage: &Stage, side: Side, ends: &[&str]) {
    one_run_of(stage, STEPS, side, ends).await;
}

async fn one_run_of(stage: &Stage, steps: u32, side: Side, ends: &[&str]) {
    stage.ends_as(JOB, ends).await;
    let run = stage.runs(JOB).await.remove(0);
    stage.judge_steps(&run.run, steps, ends);
    stage.late(side, &[JOB]).await;
}

async fn elected(verb: &'static str, side: Side, ends: &[&str]) {
    let mut stage = Stage::empty().await;
    stage.join("first", WORKER).await;
    let (schedule, nominal) = soon(&stage).await;
    stage.steps_job(JOB, STEPS, &schedule);
    stage.fleet.opened(&[JOB]).await;
    stage.kill_other("first").await;
    until("nobody to lead", PATIENCE, async || {
        let leader = stage.fleet.store().leader().await.expect("the leader");
        leader.is_none().then_some(())
    })
    .await;
    stage.wire.arm(verb, side);
    stage.lead(LEADER, IDLE).await;
    stage.dies().await;
    stage.join("next", WORKER).await;
    one_run(&stage, side, ends).await;
    assert_eq!(stage.runs(JOB).await[0].nominal, nominal);
}

async fn firing(mut stage: Stage, verb: &'static str, side: Side, ends: &[&str]) {
    stage.wire.arm(verb, side);
    let (schedule, nominal) = soon(&stage).await;
    stage.steps_job(JOB, STEPS, &schedule);
    stage.dies().await;
    stage.join("next", WORKER).await;
    one_run(&stage, side, ends).await;
    assert_eq!(stage.runs(JOB).await[0].nominal, nominal);
}

/// Every nominal time from the first run to the last has one answer.
async fn missed(verb: &'static str, side: Side) {
    let mut stage = Stage::new(true).await;
    let every =
        format!("{WORKERS}\noverlap = \"queue\"\nevery = \"{PERIOD}ms\"\n[params]\ndo = \"ok\"");
    let text = format!("plugin = \"hostile\"\n{every}\n");
    stage.fleet.write_job("often", &text);
    let ended = |run: &wasmcron_core::run::RunRecord| run.state.is_ended();
    stage.fleet.run_where("often", "ended", ended).await;
    stage.kill_leader().await;
    let gone = stage.fleet.now().await;
    until("firings to be missed", PATIENCE, async || {
        (stage.fleet.now().await.since(gone) > Duration::from_millis(1_700)).then_some(())
    })
    .await;
    stage.wire.arm(verb, side);
    stage.lead("second", WORKER).await;
    stage.dies().await;
    stage.join("third", WORKER).await;
    let back = stage.fleet.now().await;
    let later = |run: &wasmcron_core::run::RunRecord| run.nominal > back && run.state.is_ended();
    stage.fleet.run_where("often", "is later", later).await;
    if side == Side::Before {
        let late = tokio::time::timeout(PATIENCE, stage.wire.release()).await;
        late.expect("an answer to the late request");
    }
    let name = "often".parse().expect("a name");
    let gaps = stage.fleet.store().gaps(&name, 1000).await.expect("gaps");
    assert!(gaps.iter().any(|gap| gap.to > gone), "{gaps:?}");
    let mut answers: BTreeMap<i64, u32> = BTreeMap::new();
    let runs = stage.runs("often").await;
    let first = runs.iter().map(|run| run.nominal).min().expect("a run");
    for run in &runs {
        *answers.entry(run.nominal.as_millis()).or_default() += 1;
    }
    for gap in &gaps {
        let times = (gap.from.as_millis()..=gap.to.as_millis()).step_by(PERIOD);
        times.for_each(|at| *answers.entry(at).or_default() += 1);
    }
    for at in (first.as_millis()..=back.as_millis()).step_by(PERIOD) {
        assert_eq!(answers.get(&at), Some(&1), "{at}: {gaps:?} {runs:?}");
    }
}

async fn asked(verb: &'static str, side: Side, ends: &[&str]) {
    let mut stage = Stage::new(false).await;
    stage.steps_job(JOB, STEPS, "");
    stage.fleet.opened(&[JOB]).await;
    stage.wire.arm(verb, side);
    stage.fleet.submit(JOB).await;
    stage.dies().await;
    one_run(&stage, side, ends).await;
}

async fn recovered(verb: &'static str, side: Side, ends: &[&str]) {
    let mut stage = Stage::new(false).await;
    stage.steps_job(JOB, LONG, "");
    stage.fleet.opened(&[JOB]).await;
    stage.fleet.submit(JOB).await;
    stage.under_way().await;
    stage.wire.arm(verb, side);
    stage.kill_other("follower").await;
    stage.join("next", WORKER).await;
    stage.dies().await;
    one_run_of(&stage, LONG, side, ends).await;
    // However often its recovery was begun, it was recovered once.
    let run = stage.runs(JOB).await.remove(0).run;
    let events = stage.fleet.events(&run).await;
    let recovered = events.iter().filter(|event| *event == "run.recovered");
    assert_eq!(recovered.count(), 1, "{events:?}");
}

async fn given_up(verb: &'static str, side: Side, ends: &[&str]) {
    let mut stage = Stage::new(false).await;
    let text =
        format!("plugin = \"hostile\"\n{WORKERS}\n[params]\ndo = \"sleep\"\ncount = 60000\n");
    stage.fleet.write_job(JOB, &text);
    stage.fleet.opened(&[JOB]).await;
    let run = stage.fleet.submit(JOB).await;
    stage.fleet.attempt(&run, 1).await;
    stage.join("next", WORKER).await;
    stage.wire.arm(verb, side);
    stage.kill_other("follower").await;
    stage.dies().await;
    stage.ends_as(JOB, ends).await;
    let why = stage.runs(JOB).await[0].why.clone().unwrap_or_default();
    assert!(why.contains("neither resumable nor auto_rerun"), "{why}");
    stage.late(side, &[JOB]).await;
}

async fn retried(story: Story, verb: &'static str, side: Side, ends: &[&str]) {
    let mut stage = Stage::new(true).await;
    // So long that the wire is set before the retry is due.
    let retry = "retry = { max_attempts = 2, backoff = \"1500ms\" }";
    stage.steps_job(JOB, STEPS, retry);
    stage.fleet.opened(&[JOB]).await;
    if story == Story::Retried {
        stage.wire.arm(verb, side);
    }
    let target = stage.target_url();
    let params = format!(
        "{{\"target\": \"{target}\", \"steps\": {STEPS}, \"step_ms\": 10, \"fail_at\": 5}}"
    );
    let run = stage.fleet.trigger(JOB, &params).await;
    if story == Story::RetryPromoted {
        // The run was promoted before its first attempt; armed now, the wire waits for the next time.
        stage.fleet.attempt(&run, 1).await;
        stage.wire.arm(verb, side);
    }
    stage.dies().await;
    stage.join("next", WORKER).await;
    one_run(&stage, side, ends).await;
}

/// The job's run goes on elsewhere, and the firing that came meanwhile is skipped.
async fn skipped(verb: &'static str, side: Side, ends: &[&str]) {
    let mut stage = Stage::new(true).await;
    let (schedule, nominal) = soon(&stage).await;
    stage.steps_job(JOB, LONG, &format!("{schedule}\noverlap = \"skip\""));
    stage.fleet.opened(&[JOB]).await;
    stage.wire.arm(verb, side);
    let run = stage.fleet.submit(JOB).await;
    stage.dies().await;
    stage.join("next", WORKER).await;
    let skipped = stage
        .fleet
        .run_where(JOB, "is the firing, ended", |run| {
            run.nominal == nominal && run.state.is_ended()
        })
        .await;
    judge(&skipped, ends);
    goes_on(&stage, &run, side).await;
}

/// The long run that the leader executed when it died is done to its end, and there is one other run.
async fn goes_on(stage: &Stage, run: &wasmcron_core::ids::RunId, side: Side) {
    let lost = ["lost", "succeeded"];
    judge(&stage.fleet.ended(run).await, &lost);
    stage.judge_steps(run, LONG, &lost);
    let runs = stage.runs(JOB).await;
    assert_eq!(runs.len(), 2, "{runs:?}");
    let other = runs.iter().find(|other| other.run != *run);
    stage.fleet.ended(&other.expect("another run").run).await;
    stage.late(side, &[JOB]).await;
}

/// The job's run goes on elsewhere, and the one that came meanwhile follows it.
async fn parked(verb: &'static str, side: Side, ends: &[&str]) {
    let mut stage = Stage::new(true).await;
    stage.steps_job(JOB, LONG, "");
    stage.fleet.opened(&[JOB]).await;
    let first = stage.fleet.submit(JOB).await;
    stage.under_way().await;
    stage.wire.arm(verb, side);
    let second = stage.fleet.trigger(JOB, "{\"steps\": 5}").await;
    stage.dies().await;
    stage.join("next", WORKER).await;
    judge(&stage.fleet.ended(&second).await, ends);
    stage.judge_steps(&second, 5, ends);
    goes_on(&stage, &first, side).await;
}

/// An exclusive run finds no room on the leader, and its place on the next pod.
async fn handed_back(verb: &'static str, side: Side, ends: &[&str]) {
    let mut stage = Stage::new(true).await;
    stage.steps_job("long", LONG, "");
    stage.steps_job(JOB, STEPS, "exclusive = true");
    stage.fleet.opened(&["long", JOB]).await;
    let long = stage.fleet.submit("long").await;
    stage.under_way().await;
    stage.wire.arm(verb, side);
    stage.fleet.submit(JOB).await;
    stage.dies().await;
    stage.join("next", WORKER).await;
    judge(&stage.fleet.ended(&long).await, &["lost", "succeeded"]);
    one_run(&stage, side, ends).await;
}

async fn drained(verb: &'static str, side: Side, ends: &[&str]) {
    let mut stage = Stage::new(true).await;
    stage.steps_job(JOB, STEPS, "");
    stage.fleet.opened(&[JOB]).await;
    // A guest that rests so long does not yield before the pod has said what it says first.
    stage.fleet.trigger(JOB, "{\"step_ms\": 200}").await;
    stage.under_way().await;
    stage.wire.arm(verb, side);
    stage.leader().signal(Signal::Terminate);
    stage.dies().await;
    stage.join("next", WORKER).await;
    one_run(&stage, side, ends).await;
}
