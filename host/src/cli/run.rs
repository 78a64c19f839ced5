//! `run list`, `run show`, `run cancel`, `run retry`.

use clap::Subcommand;
use serde_json::json;
use wasmcron_core::ids::{JobName, RunId};
use wasmcron_core::run::RunRecord;
use wasmcron_core::task::{Reason, Task};
use wasmcron_core::time::Timestamp;
use wasmcron_store::runs::Cancelled;
use wasmcron_store::schedule::{Submission, Submitted};

use super::context::{Context, Globals, operator, with_store};
use super::out::{Answer, Failure, Out};
use super::views::{AttemptView, RunDetail, RunLine};
use super::{logs, text, trigger};
use crate::store;

/// Verbs on runs.
#[derive(Debug, Subcommand)]
pub enum RunCommand {
    /// Latest runs, of one job or of all, newest first
    List {
        /// Name of the job
        job: Option<JobName>,
        /// How many, 1 to 1000
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
        limit: u16,
    },
    /// One run with its attempts
    Show {
        /// Id of the run, as `run list` shows it
        run: RunId,
    },
    /// What a run logged
    Logs(logs::Logs),
    /// Ask for the end of a run
    Cancel {
        /// Id of the run
        run: RunId,
    },
    /// Make a new run of an ended one, with the same parameters and nominal time
    Retry {
        /// Id of the run
        run: RunId,
        /// Wait for its end; exit code 1 unless it succeeds
        #[arg(long)]
        wait: bool,
    },
}

/// Runs the verb.
pub fn run(globals: &Globals, command: RunCommand) -> Answer {
    with_store(globals, async |ctx| match command {
        RunCommand::List { job, limit } => list(&ctx, job.as_ref(), limit.into()).await,
        RunCommand::Show { run } => show(&ctx, &run).await,
        RunCommand::Logs(verb) => logs::run(&ctx, &verb).await,
        RunCommand::Cancel { run } => cancel(&ctx, &run).await,
        RunCommand::Retry { run, wait } => retry(&ctx, &run, wait).await,
    })
}

async fn list(ctx: &Context, job: Option<&JobName>, limit: usize) -> Answer {
    let mut records = Vec::new();
    match job {
        Some(job) => records = ctx.store.runs(job, limit).await?,
        None => {
            for view in ctx.jobs().await?.0 {
                records.extend(ctx.store.runs(&view.job, limit).await?);
                // Of many jobs only the newest runs are kept in memory.
                newest(&mut records, limit);
            }
        }
    }
    newest(&mut records, limit);
    let lines: Vec<RunLine> = records.iter().map(RunLine::from).collect();
    if ctx.out.json {
        return ctx.out.value(&json!({ "runs": lines }));
    }
    if lines.is_empty() {
        // A job that does not exist is a mistake, a job without runs is not.
        if let Some(job) = job {
            ctx.job(job).await?;
        }
    }
    table(ctx.out, &lines, ctx.store.now().await?)
}

fn newest(records: &mut Vec<RunRecord>, limit: usize) {
    records.sort_by(|a, b| {
        b.created_at
            .cmp(&a.created_at)
            .then_with(|| b.run.cmp(&a.run))
    });
    records.truncate(limit);
}

/// Runs as a table.
pub fn table(out: Out, lines: &[RunLine], now: Timestamp) -> Answer {
    let rows = lines.iter().map(|line| row(line, now)).collect();
    out.table(
        &["RUN", "STATE", "WHEN", "TOOK", "ATTEMPTS", "POD", "MESSAGE"],
        rows,
        "No runs.",
    )
}

fn row(line: &RunLine, now: Timestamp) -> Vec<String> {
    let at = |text: &str| text.parse::<Timestamp>().ok();
    let age = at(&line.created).map_or_else(String::new, |created| {
        format!("{} ago", text::span(now.since(created)))
    });
    let took = match (at(&line.created), line.ended.as_deref().and_then(at)) {
        (Some(created), Some(ended)) => text::span(ended.since(created)),
        _ => "-".into(),
    };
    vec![
        line.run.clone(),
        line.state.to_owned(),
        age,
        took,
        line.attempts.to_string(),
        line.pod.clone().unwrap_or_else(|| "-".into()),
        line.message
            .as_deref()
            .map(|text| text::brief(text, 60))
            .unwrap_or_default(),
    ]
}

async fn show(ctx: &Context, run: &RunId) -> Answer {
    let record = ctx
        .store
        .run(run)
        .await?
        .ok_or_else(|| Context::unknown_run(run))?;
    let detail = RunDetail::from(&record);
    if ctx.out.json {
        return ctx.out.value(&detail);
    }
    let now = ctx.store.now().await?;
    let line = &detail.line;
    let message = line
        .message
        .as_deref()
        .map(|text| format!(": {}", text::plain(text)))
        .unwrap_or_default();
    let reason = line.reason.as_str().unwrap_or("?");
    let mut pairs = vec![
        ("state", format!("{}{message}", line.state)),
        (
            "reason",
            detail
                .of
                .as_ref()
                .map_or_else(|| reason.to_owned(), |of| format!("{reason}, made of {of}")),
        ),
        ("nominal", line.nominal.clone()),
        ("created", text::when(record.created_at, now)),
        ("params", text::plain(&record.params)),
    ];
    if let Some(ended) = record.ended_at {
        pairs.push(("ended", text::when(ended, now)));
    }
    if let Some(progress) = &detail.progress {
        pairs.push((
            "progress",
            progress_text(progress.done, progress.total, &progress.message),
        ));
    }
    if detail.recoveries > 0 {
        pairs.push(("recoveries", detail.recoveries.to_string()));
    }
    ctx.out.line(&line.run)?;
    ctx.out.pairs(&pairs)?;
    if detail.attempt_list.is_empty() {
        return Ok(());
    }
    ctx.out.line("")?;
    let rows = record
        .attempts
        .iter()
        .zip(&detail.attempt_list)
        .map(|(record, view)| {
            attempt_row(
                record.ended_at.unwrap_or(now).since(record.claimed_at),
                view,
            )
        });
    ctx.out.table(
        &[
            "ATTEMPT", "POD", "BEGAN", "TOOK", "FROM", "PLUGIN", "OUTCOME",
        ],
        rows.collect(),
        "",
    )
}

fn attempt_row(took: std::time::Duration, view: &AttemptView) -> Vec<String> {
    let reason = view.reason.as_str().unwrap_or("?");
    let message = view
        .message
        .as_deref()
        .map(|text| format!(": {}", text::brief(text, 100)))
        .unwrap_or_default();
    vec![
        format!("{} ({reason})", view.attempt),
        view.pod.clone(),
        view.claimed.clone(),
        text::span(took),
        view.resumed_from
            .map_or_else(|| "start".into(), |seq| format!("checkpoint {seq}")),
        view.digest
            .as_deref()
            .and_then(|digest| digest.get(..12))
            .unwrap_or("-")
            .to_owned(),
        format!("{}{message}", view.outcome.unwrap_or("executing")),
    ]
}

fn progress_text(done: f64, total: Option<f64>, message: &str) -> String {
    let message = text::brief(message, 120);
    match total {
        Some(total) if total > 0.0 => format!(
            "{done} of {total} ({:.0} %) {message}",
            done / total * 100.0
        ),
        _ => format!("{done} {message}"),
    }
}

async fn cancel(ctx: &Context, run: &RunId) -> Answer {
    let (result, sentence) = match ctx
        .store
        .cancel(run, &operator(), store::retention(&ctx.settings))
        .await?
    {
        Cancelled::Requested => ("requested", "Its pod was asked to end it."),
        Cancelled::Ended => ("ended", "It was not executing and is cancelled."),
        Cancelled::AlreadyEnded => ("already-ended", "It had ended before."),
        Cancelled::Unknown => return Err(Context::unknown_run(run)),
    };
    if ctx.out.json {
        ctx.out
            .value(&json!({ "run": run.as_str(), "result": result }))
    } else {
        ctx.out.line(sentence)
    }
}

/// Runs made of the same ended run that are looked at for a free number.
const AGAIN_MAX: u32 = 1_000;

async fn retry(ctx: &Context, run: &RunId, wait: bool) -> Answer {
    let record = ctx
        .store
        .run(run)
        .await?
        .ok_or_else(|| Context::unknown_run(run))?;
    if !record.state.is_ended() {
        return Err(Failure::failed(format!(
            "{run} is {}: only an ended run can be made again",
            record.state.as_str()
        )));
    }
    let made = again(ctx, &record).await?;
    if wait {
        super::out::note(format!("{made} accepted"));
        return trigger::wait(ctx, &made).await;
    }
    if ctx.out.json {
        ctx.out
            .value(&json!({ "run": made.as_str(), "result": "accepted" }))
    } else {
        ctx.out.line(format!("{made} accepted"))
    }
}

/// Submits the run under the first free number behind its id.
async fn again(ctx: &Context, record: &RunRecord) -> Result<RunId, Failure> {
    for number in 2..=AGAIN_MAX {
        let run = record.run.again(number);
        if ctx.store.run(&run).await?.is_some() {
            continue;
        }
        let mut task = Task::first(run, record.nominal, Reason::Manual, record.params.clone());
        task.of = Some(record.run.clone());
        let submission = Submission {
            task,
            idempotency: None,
        };
        match ctx.store.submit(&submission).await? {
            Submitted::Accepted { run } => return Ok(run),
            Submitted::Exists | Submitted::Same { .. } => {}
            Submitted::UnknownJob => return Err(ctx.unknown_job(&record.job).await),
            other => {
                return Err(Failure::failed(format!(
                    "the store refused to make {} again: {other:?}",
                    record.run
                )));
            }
        }
    }
    Err(Failure::failed(format!(
        "{} was made again {AGAIN_MAX} times, which is the limit",
        record.run
    )))
}
