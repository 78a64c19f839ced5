//! `job trigger`: one run now, and if asked for, wait for its end.

use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use wasmcron_core::ids::{JobName, RunId};
use wasmcron_core::run::{RunRecord, RunState};
use wasmcron_core::task::{Reason, Task};
use wasmcron_store::schedule::{IdempotencyKey, Submission, Submitted};

use super::context::Context;
use super::out::{Answer, Failure, note};
use super::text;
use super::views::RunDetail;
use crate::config::params;

/// One run of a job by hand.
#[derive(Debug, Args)]
pub struct Trigger {
    /// Name of the job
    pub name: JobName,
    /// Parameters as a JSON object; each key takes the place of the job's own
    #[arg(long, value_name = "JSON")]
    pub params: Option<String>,
    /// Wait for the end of the run; exit code 1 unless it succeeds
    #[arg(long)]
    pub wait: bool,
    /// Makes a repeat of this command the same request for 24 hours
    #[arg(long, value_parser = idempotency_key)]
    pub key: Option<String>,
}

fn idempotency_key(text: &str) -> Result<String, String> {
    let fits = !text.is_empty()
        && text.len() <= 255
        && text.bytes().all(|b| b.is_ascii_graphic() || b == b' ');
    if fits {
        Ok(text.to_owned())
    } else {
        Err("accepted are 1 to 255 printable ASCII characters".into())
    }
}

/// Submits the run.
pub async fn run(ctx: &Context, verb: Trigger) -> Answer {
    let given = verb.params.as_deref().unwrap_or("{}");
    // Bad parameters are the caller's mistake whether or not the job exists.
    params::overlay("{}", given)
        .map_err(|error| Failure::bad_input(format!("--params: {error}")))?;
    let job = ctx.job(&verb.name).await?;
    for (hold, how) in [(&job.paused, "paused"), (&job.quarantined, "quarantined")] {
        if let Some(hold) = hold {
            let why = text::brief(&hold.why, 200);
            note(format!(
                "{} is {how} since {} ({why}); a run that is asked for executes all the same",
                verb.name, hold.at
            ));
        }
    }
    let params = params::overlay(&job.stored.definition.params, given)
        .map_err(|error| Failure::bad_input(format!("--params: {error}")))?;
    let run = RunId::manual(&verb.name, ulid::Ulid::generate());
    let task = Task::first(run, ctx.store.now().await?, Reason::Manual, params);
    let idempotency = verb.key.map(|key| IdempotencyKey {
        key,
        body: digest(&verb.name, given),
    });
    let (run, result) = submit(ctx, &Submission { task, idempotency }).await?;
    if !verb.wait {
        if ctx.out.json {
            return ctx
                .out
                .value(&json!({ "run": run.as_str(), "result": result }));
        }
        return ctx.out.line(format!("{run} {result}"));
    }
    note(format!("{run} {result}"));
    wait(ctx, &run).await
}

/// What the request asked for, so that its key cannot be used for another one.
fn digest(job: &JobName, given: &str) -> String {
    let hash = Sha256::digest(format!("trigger\n{job}\n{given}"));
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Asks for a run; answers its id and whether it is a new one.
pub async fn submit(
    ctx: &Context,
    submission: &Submission,
) -> Result<(RunId, &'static str), Failure> {
    let run = &submission.task.run;
    match ctx.store.submit(submission).await? {
        Submitted::Accepted { run } => Ok((run, "accepted")),
        Submitted::Same { run } => Ok((run, "already accepted")),
        Submitted::Conflict { run } => Err(Failure::failed(format!(
            "the key was used for another request, which made {run}; use a new key"
        ))),
        Submitted::NotYet { cursor } => Err(Failure::failed(format!(
            "{run} lies after {cursor}, up to where the schedule is decided: the schedule itself will fire it"
        ))),
        Submitted::Exists => Err(Failure::failed(format!(
            "{run} exists already; an ended run is never run again"
        ))),
        Submitted::UnknownJob => Err(ctx.unknown_job(&submission.task.job).await),
    }
}

/// How long a store that stops answering is waited for.
const PATIENCE: Duration = Duration::from_secs(30);
/// Pauses between two looks at a run.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A fleet has a leader again sooner than this, unless there is no fleet.
const LEADERLESS: Duration = Duration::from_secs(10);

/// Looks at a run until it is over.
pub async fn wait(ctx: &Context, run: &RunId) -> Answer {
    let mut pause = FIRST_PAUSE;
    let mut led = Some(Instant::now());
    let mut said = String::new();
    let mut answered = Instant::now();
    loop {
        match ctx.store.run(run).await {
            Ok(Some(record)) if record.state.is_ended() => return ended(ctx, &record),
            Ok(Some(record)) => {
                answered = Instant::now();
                let standing = standing(&record);
                if standing != said {
                    note(&standing);
                    said = standing;
                }
                miss_a_leader(ctx, &record, &mut led).await;
            }
            Ok(None) => return Err(Context::unknown_run(run)),
            Err(error) if error.is_transient() && answered.elapsed() < PATIENCE => {}
            Err(error) => return Err(error.into()),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 3 / 2).min(LONGEST_PAUSE);
    }
}

/// Says once that nobody sends the run to a pod. `led` is when that was last known to be otherwise; none
/// once it was said.
async fn miss_a_leader(ctx: &Context, record: &RunRecord, led: &mut Option<Instant>) {
    let Some(since) = *led else { return };
    // What executes waits for no leader.
    if record.state == RunState::Running || !matches!(ctx.store.leader().await, Ok(None)) {
        *led = Some(Instant::now());
    } else if since.elapsed() > LEADERLESS {
        note("no pod leads, so nothing is sent to a pod: is one running? (`wasmcron pod list`)");
        *led = None;
    }
}

fn standing(record: &RunRecord) -> String {
    let place = match record.attempts.last() {
        Some(attempt) if record.state == RunState::Running => {
            format!(" attempt {} on {}", attempt.attempt, attempt.pod)
        }
        _ => String::new(),
    };
    let why = record
        .why
        .as_deref()
        .map(|why| format!(": {}", text::brief(why, 200)))
        .unwrap_or_default();
    format!("{} {}{place}{why}", record.run, record.state.as_str())
}

fn ended(ctx: &Context, record: &RunRecord) -> Answer {
    let detail = RunDetail::from(record);
    if ctx.out.json {
        ctx.out.value(&detail)?;
    } else {
        let message = detail
            .line
            .message
            .as_deref()
            .map(|text| format!(": {}", text::plain(text)))
            .unwrap_or_default();
        ctx.out.line(format!(
            "{} {}{message}",
            detail.line.run, detail.line.state
        ))?;
    }
    if record.state == RunState::Succeeded {
        Ok(())
    } else {
        Err(Failure::Said(1))
    }
}
