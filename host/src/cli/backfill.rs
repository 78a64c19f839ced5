//! `job backfill`: runs for nominal times of the past, one after the other.

use clap::Args;
use futures::StreamExt as _;
use serde_json::{Value, json};
use wasmcron_core::decide::backfill::{self, Stretch};
use wasmcron_core::ids::{JobName, RunId};
use wasmcron_core::run::RunState;
use wasmcron_core::task::{Reason, Task};
use wasmcron_core::time::Timestamp;
use wasmcron_core::view::JobView;
use wasmcron_store::schedule::{Submission, Submitted};

use super::context::Context;
use super::out::{Answer, Failure, note};
use super::text;
use crate::config::params;

/// Requests for records under way at the same time.
const PARALLEL: usize = 16;

/// Runs of past nominal times.
#[derive(Debug, Args)]
pub struct Backfill {
    /// Name of the job
    pub name: JobName,
    /// The first nominal time, RFC 3339
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub from: Timestamp,
    /// The last nominal time, RFC 3339 [default: now]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub to: Option<Timestamp>,
    /// How many runs at most, 1 to 1000; a longer stretch is refused
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub max: u16,
    /// Parameters as a JSON object; each key takes the place of the job's own
    #[arg(long, value_name = "JSON")]
    pub params: Option<String>,
    /// Say what would be done, and do nothing
    #[arg(long)]
    pub dry_run: bool,
}

fn time(text: &str) -> Result<Timestamp, String> {
    text.parse()
        .map_err(|_| "accepted is an RFC 3339 time such as 2026-01-31T01:00:00Z".to_owned())
}

/// What became of a nominal time.
struct Line {
    run: RunId,
    nominal: Timestamp,
    result: &'static str,
    state: Option<RunState>,
}

/// Plans and submits.
pub async fn run(ctx: &Context, verb: Backfill) -> Answer {
    let given = verb.params.as_deref().unwrap_or("{}");
    params::overlay("{}", given)
        .map_err(|error| Failure::bad_input(format!("--params: {error}")))?;
    let job = ctx.job(&verb.name).await?;
    if let Some(hold) = job.quarantined.as_ref().filter(|_| !verb.dry_run) {
        return Err(Failure::failed(format!(
            "{} is in quarantine: {}; `quarantine release {}` ends it",
            verb.name,
            text::plain(&hold.why),
            verb.name
        )));
    }
    let now = ctx.store.now().await?;
    let stretch = Stretch {
        from: verb.from,
        to: verb.to.unwrap_or(now),
        max: verb.max.into(),
    };
    let schedule = &job.stored.definition.schedule;
    let times = backfill::plan(schedule, stretch, job.cursor, now)
        .map_err(|refusal| Failure::bad_input(refusal.to_string()))?;
    let params = params::overlay(&job.stored.definition.params, given)
        .map_err(|error| Failure::bad_input(format!("--params: {error}")))?;
    let lines = if verb.dry_run {
        look(ctx, &job, &times).await?
    } else {
        submit(ctx, &job, &times, &params).await?
    };
    show(ctx, &verb, stretch, &lines)
}

/// What would be done.
async fn look(ctx: &Context, job: &JobView, times: &[Timestamp]) -> Result<Vec<Line>, Failure> {
    let lines: Vec<Result<Line, Failure>> = futures::stream::iter(times)
        .map(async |nominal| {
            let run = RunId::nominal(&job.job, *nominal);
            let record = ctx.store.run(&run).await?;
            Ok(Line {
                run,
                nominal: *nominal,
                result: if record.is_some() {
                    "exists"
                } else {
                    "planned"
                },
                state: record.map(|record| record.state),
            })
        })
        .buffered(PARALLEL)
        .collect()
        .await;
    lines.into_iter().collect()
}

/// Asks for the runs in the order of their times; the store lets them begin one by one.
async fn submit(
    ctx: &Context,
    job: &JobView,
    times: &[Timestamp],
    params: &str,
) -> Result<Vec<Line>, Failure> {
    let mut lines = Vec::with_capacity(times.len());
    for nominal in times {
        let run = RunId::nominal(&job.job, *nominal);
        let mut task = Task::first(run.clone(), *nominal, Reason::Backfill, params.to_owned());
        task.digest.clone_from(&job.stored.definition.digest);
        let submission = Submission {
            task,
            idempotency: None,
        };
        let (result, state) = match ctx.store.submit(&submission).await? {
            Submitted::Accepted { .. } | Submitted::Same { .. } => ("accepted", None),
            Submitted::Exists | Submitted::Conflict { .. } => {
                let record = ctx.store.run(&run).await?;
                ("exists", record.map(|record| record.state))
            }
            Submitted::NotYet { .. } => ("not-yet", None),
            Submitted::UnknownJob => return Err(ctx.unknown_job(&job.job).await),
        };
        lines.push(Line {
            run,
            nominal: *nominal,
            result,
            state,
        });
    }
    Ok(lines)
}

fn show(ctx: &Context, verb: &Backfill, stretch: Stretch, lines: &[Line]) -> Answer {
    if ctx.out.json {
        let runs: Vec<Value> = lines
            .iter()
            .map(|line| {
                json!({
                    "run": line.run.as_str(),
                    "nominal": line.nominal.to_string(),
                    "result": line.result,
                    "state": line.state.map(RunState::as_str),
                })
            })
            .collect();
        return ctx.out.value(&json!({
            "job": verb.name.as_str(),
            "from": stretch.from.to_string(),
            "to": stretch.to.to_string(),
            "dry_run": verb.dry_run,
            "runs": runs,
        }));
    }
    let rows = lines.iter().map(|line| {
        let state = line
            .state
            .map_or_else(String::new, |state| format!(" ({})", state.as_str()));
        vec![line.run.to_string(), format!("{}{state}", line.result)]
    });
    ctx.out.table(
        &["RUN", "RESULT"],
        rows.collect(),
        "The schedule has no decided firing in that time.",
    )?;
    let made = lines
        .iter()
        .filter(|line| matches!(line.result, "accepted" | "planned"))
        .count() as u64;
    if made > 0 {
        let begin = if verb.dry_run { "would begin" } else { "begin" };
        note(format!(
            "{} {begin} one after the other; `run retry` makes an ended one again",
            text::count(made, "run")
        ));
    }
    Ok(())
}
