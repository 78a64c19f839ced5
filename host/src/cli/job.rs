//! `job list`, `job show`, `job pause`, `job resume`; the other verbs have files of their own.

use clap::Subcommand;
use futures::StreamExt as _;
use serde_json::json;
use wasmcron_core::ids::JobName;
use wasmcron_core::run::{RunRecord, RunState};
use wasmcron_core::time::Timestamp;
use wasmcron_core::view::{JobView, Leader, Pod, ScheduledEntry};
use wasmcron_store::schedule::Operated;

use super::context::{Context, Globals, operator, refusals, with_store};
use super::out::{Answer, Failure};
use super::views::{
    DefinitionView, Firing, GapView, HoldView, JobDetail, JobLine, RefusalView, RunLine,
    SuccessesView,
};
use super::why::{Situation, Why, why};
use super::{backfill, text, trigger};

/// Verbs on jobs.
#[derive(Debug, Subcommand)]
pub enum JobCommand {
    /// All jobs with their next and last firing, and why they are not running
    List,
    /// One job: definition, next firing, recent runs, gaps, and why it is not running
    Show {
        /// Name of the job
        name: JobName,
        /// How many recent runs and gaps to show, 1 to 1000
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1000))]
        runs: u16,
    },
    /// Make one run now, whatever the schedule says
    Trigger(trigger::Trigger),
    /// Make the runs of past firings, one after the other: those that have no run yet
    Backfill(backfill::Backfill),
    /// Stop a job's firings until `job resume`; runs under way go on
    Pause {
        /// Name of the job
        name: JobName,
        /// Why, for whoever asks later
        #[arg(long, default_value = "")]
        why: String,
    },
    /// Let a paused or quarantined job fire again, from now on
    Resume {
        /// Name of the job
        name: JobName,
    },
}

/// Runs the verb.
pub fn run(globals: &Globals, command: JobCommand) -> Answer {
    match command {
        JobCommand::List => with_store(globals, list),
        JobCommand::Show { name, runs } => {
            with_store(globals, async |ctx| show(&ctx, &name, runs.into()).await)
        }
        JobCommand::Trigger(verb) => {
            with_store(globals, async |ctx| trigger::run(&ctx, verb).await)
        }
        JobCommand::Backfill(verb) => {
            with_store(globals, async |ctx| backfill::run(&ctx, verb).await)
        }
        JobCommand::Pause { name, why } => {
            with_store(globals, async |ctx| pause(&ctx, &name, &why).await)
        }
        JobCommand::Resume { name } => with_store(globals, async |ctx| resume(&ctx, &name).await),
    }
}

/// Requests for records under way at the same time.
const PARALLEL: usize = 16;
/// Recent runs that are searched for one that is not over.
const LOOK_BACK: usize = 20;

/// What the answer for every job depends on.
struct Surroundings {
    now: Timestamp,
    leader: Option<Leader>,
    pods: Vec<Pod>,
}

async fn surroundings(ctx: &Context) -> Result<Surroundings, Failure> {
    Ok(Surroundings {
        now: ctx.store.now().await?,
        leader: ctx.store.leader().await?,
        pods: ctx.store.pods().await?,
    })
}

async fn explain(
    ctx: &Context,
    job: &JobView,
    runs: &[RunRecord],
    around: &Surroundings,
) -> Result<Why, Failure> {
    let open = open_run(ctx, job, runs).await?;
    let queued = match &open {
        Some(run) if run.state == RunState::Scheduled => queue_entry(ctx, run).await?,
        _ => None,
    };
    let due = match &open {
        Some(run) if run.state == RunState::Delayed => ctx
            .store
            .delayed(&run.run)
            .await?
            .and_then(|entry| entry.due),
        _ => None,
    };
    Ok(why(&Situation {
        job,
        now: around.now,
        leader: around.leader.as_ref(),
        pods: &around.pods,
        window: ctx.settings.active_window(),
        open: open.as_ref(),
        due,
        queued: queued.as_ref(),
    }))
}

/// The job's active run, else the oldest of the recent ones that is not over.
async fn open_run(
    ctx: &Context,
    job: &JobView,
    runs: &[RunRecord],
) -> Result<Option<RunRecord>, Failure> {
    if let Some(active) = &job.active {
        let record = match runs.iter().find(|run| run.run == *active) {
            Some(run) => Some(run.clone()),
            None => ctx.store.run(active).await?,
        };
        if let Some(record) = record.filter(|run| !run.state.is_ended()) {
            return Ok(Some(record));
        }
    }
    Ok(runs.iter().rev().find(|run| !run.state.is_ended()).cloned())
}

async fn queue_entry(ctx: &Context, run: &RunRecord) -> Result<Option<ScheduledEntry>, Failure> {
    let mut cursor = None;
    loop {
        let page = ctx.store.scheduled(cursor).await?;
        let found = page
            .entries
            .into_iter()
            .find(|entry| entry.task.run == run.run);
        cursor = page.next;
        if found.is_some() || cursor.is_none() {
            return Ok(found);
        }
    }
}

async fn list(ctx: Context) -> Answer {
    let (jobs, corrupt) = ctx.jobs().await?;
    let around = surroundings(&ctx).await?;
    let lines: Vec<Result<JobLine, Failure>> = futures::stream::iter(&jobs)
        .map(async |job| {
            let runs = ctx.store.runs(&job.job, LOOK_BACK).await?;
            let why = explain(&ctx, job, &runs, &around).await?;
            Ok(JobLine::new(job, runs.first(), why))
        })
        .buffered(PARALLEL)
        .collect()
        .await;
    let lines = lines.into_iter().collect::<Result<Vec<_>, _>>()?;
    for (pod, job, reason) in refusals(&around.pods, around.now, ctx.settings.active_window()) {
        super::out::note(format!(
            "warning: pod {pod} refused the file of job {job}: {}",
            text::plain(reason)
        ));
    }
    for entry in &corrupt {
        super::out::note(format!(
            "warning: the store holds an entry that cannot be read: {}",
            text::plain(entry)
        ));
    }
    if ctx.out.json {
        return ctx.out.value(&json!({ "jobs": lines }));
    }
    let rows = lines
        .into_iter()
        .map(|line| row(line, around.now))
        .collect();
    ctx.out.table(
        &["JOB", "SCHEDULE", "NEXT", "LAST", "STATE"],
        rows,
        "No job is in force: no pod has reported a job file.",
    )
}

fn row(line: JobLine, now: Timestamp) -> Vec<String> {
    let in_how_long = |firing: &Firing| {
        let due: Option<Timestamp> = firing.due.parse().ok();
        due.map_or_else(String::new, |due| {
            if due > now {
                format!("in {}", text::span(due.since(now)))
            } else {
                "now".into()
            }
        })
    };
    let last = line.last.map_or_else(
        || "-".to_owned(),
        |run| format!("{} {}", run.state, run.nominal),
    );
    vec![
        line.name,
        line.schedule,
        line.next.as_ref().map_or_else(|| "-".into(), in_how_long),
        last,
        line.why.code.to_owned(),
    ]
}

async fn show(ctx: &Context, name: &JobName, recent: usize) -> Answer {
    let job = ctx.job(name).await?;
    let around = surroundings(ctx).await?;
    let runs = ctx.store.runs(name, recent.max(LOOK_BACK)).await?;
    let gaps = ctx.store.gaps(name, recent).await?;
    let why = explain(ctx, &job, &runs, &around).await?;
    let detail = JobDetail {
        line: JobLine::new(&job, runs.first(), why),
        definition: DefinitionView::from(&job),
        decided_until: job.cursor.to_string(),
        pause: job.paused.as_ref().map(HoldView::from),
        quarantine: job.quarantined.as_ref().map(HoldView::from),
        successes: SuccessesView {
            count: job.successes.count,
            average_ms: wasmcron_core::time::millis(job.successes.average),
        },
        runs: runs.iter().take(recent).map(RunLine::from).collect(),
        // A change that answered no nominal time is no news.
        gaps: gaps
            .iter()
            .filter(|gap| gap.count > 0)
            .map(GapView::from)
            .collect(),
        refused: refusals(&around.pods, around.now, ctx.settings.active_window())
            .filter(|(_, job, _)| *job == name)
            .map(|(pod, _, reason)| RefusalView {
                pod: pod.to_string(),
                reason: reason.to_owned(),
            })
            .collect(),
    };
    if ctx.out.json {
        return ctx.out.value(&detail);
    }
    print(ctx, &job, &detail, around.now)
}

fn print(ctx: &Context, job: &JobView, detail: &JobDetail, now: Timestamp) -> Answer {
    let line = &detail.line;
    ctx.out.line(format!(
        "{}: {}",
        line.name,
        text::plain(&line.why.sentence)
    ))?;
    for refusal in &detail.refused {
        ctx.out.line(format!(
            "Pod {} refused its latest file, so what follows is the last good version: {}",
            refusal.pod,
            text::plain(&refusal.reason)
        ))?;
    }
    ctx.out.line("")?;
    ctx.out.pairs(&facts(job, detail, now))?;
    if !detail.runs.is_empty() {
        ctx.out.line("")?;
        super::run::table(ctx.out, &detail.runs, now)?;
    }
    for gap in &detail.gaps {
        let (count, why) = (text::count(gap.count, "firing"), text::plain(&gap.why));
        ctx.out.line(format!(
            "gap  {} to {}: {count} without a run ({why})",
            gap.from, gap.to
        ))?;
    }
    Ok(())
}

fn facts(job: &JobView, detail: &JobDetail, now: Timestamp) -> Vec<(&'static str, String)> {
    let d = &job.stored.definition;
    let average = match job.successes.count {
        0 => String::new(),
        _ => format!(", {} on average", text::span(job.successes.average)),
    };
    let plugin = match &d.digest {
        Some(digest) => format!("{} at {}", d.plugin, digest.short()),
        None => d.plugin.to_string(),
    };
    let hash = detail.definition.hash.get(..12).unwrap_or_default();
    vec![
        ("schedule", detail.line.schedule.clone()),
        (
            "next",
            detail
                .line
                .next
                .as_ref()
                .map_or_else(|| "none".to_owned(), |firing| next(firing, now)),
        ),
        (
            "last",
            detail
                .line
                .last
                .as_ref()
                .map_or_else(|| "none".to_owned(), last),
        ),
        ("plugin", plugin),
        ("policies", policies(&detail.definition)),
        ("params", text::plain(&d.params)),
        ("successes", format!("{}{average}", job.successes.count)),
        (
            "definition",
            format!("{hash}, in force since {}", detail.definition.since),
        ),
    ]
}

fn next(firing: &Firing, now: Timestamp) -> String {
    let due = firing
        .due
        .parse()
        .map_or_else(|_| firing.due.clone(), |due| text::when(due, now));
    if firing.due == firing.nominal {
        due
    } else {
        format!("{}, due {due}", firing.nominal)
    }
}

fn last(run: &RunLine) -> String {
    let message = run
        .message
        .as_deref()
        .map(|text| format!(": {}", text::brief(text, 120)));
    format!("{} {}{}", run.run, run.state, message.unwrap_or_default())
}

fn policies(definition: &DefinitionView) -> String {
    let flags = [
        ("resumable", definition.resumable),
        ("auto_rerun", definition.auto_rerun),
        ("exclusive", definition.exclusive),
    ];
    let word = |value: &serde_json::Value| value.as_str().unwrap_or("?").to_owned();
    let span = |ms: i64| {
        text::span(std::time::Duration::from_millis(
            u64::try_from(ms).unwrap_or(0),
        ))
    };
    let misfire = definition
        .misfire
        .get("policy")
        .map(word)
        .unwrap_or_default();
    let grace = definition
        .misfire
        .get("grace_ms")
        .and_then(serde_json::Value::as_i64)
        .map(span)
        .unwrap_or_default();
    let attempts = text::count(definition.max_attempts.into(), "attempt");
    let mut parts = vec![
        format!("timeout {}", span(definition.timeout_ms)),
        format!("overlap {}", word(&definition.overlap)),
        format!("misfire {misfire} within {grace}"),
        attempts,
    ];
    parts.extend(
        definition
            .run_timeout_ms
            .map(|limit| format!("run_timeout {}", span(limit))),
    );
    parts.extend(
        flags
            .iter()
            .filter(|(_, set)| *set)
            .map(|(name, _)| (*name).to_owned()),
    );
    parts.extend(
        definition
            .pods
            .iter()
            .map(|(label, value)| format!("pods {label}={value}")),
    );
    parts.join(", ")
}

async fn pause(ctx: &Context, name: &JobName, why: &str) -> Answer {
    let done = ctx.store.pause(name, &operator(), why).await?;
    operated(ctx, name, done, "paused", "It was paused already.").await
}

async fn resume(ctx: &Context, name: &JobName) -> Answer {
    let job = ctx.job(name).await?;
    let by = operator();
    let mut done = ctx.store.resume(name, &by).await?;
    if job.quarantined.is_some() && ctx.store.release(name, &by).await? == Operated::Done {
        done = Operated::Done;
    }
    operated(
        ctx,
        name,
        done,
        "resumed",
        "It was neither paused nor in quarantine.",
    )
    .await
}

async fn operated(
    ctx: &Context,
    name: &JobName,
    done: Operated,
    verb: &str,
    unchanged: &str,
) -> Answer {
    match done {
        Operated::UnknownJob => Err(ctx.unknown_job(name).await),
        Operated::Done | Operated::Unchanged if ctx.out.json => {
            ctx.out.value(&json!({ "job": name.as_str(), "result": if done == Operated::Done { verb } else { "unchanged" } }))
        }
        Operated::Done => ctx.out.line(format!("Job {name} is {verb}.")),
        Operated::Unchanged => ctx.out.line(unchanged),
    }
}
