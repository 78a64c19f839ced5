//! `quarantine list`, `quarantine release`.

use clap::Subcommand;
use serde_json::{Value, json};
use wasmcron_core::ids::JobName;
use wasmcron_store::schedule::Operated;

use super::context::{Context, Globals, operator, with_store};
use super::out::Answer;
use super::text;

/// Verbs on quarantines.
#[derive(Debug, Subcommand)]
pub enum QuarantineCommand {
    /// Jobs that the platform holds back, since when, why, and for which plugin version
    List,
    /// Let a job fire again
    Release {
        /// Name of the job
        job: JobName,
    },
}

/// Runs the verb.
pub fn run(globals: &Globals, command: QuarantineCommand) -> Answer {
    with_store(globals, async |ctx| match command {
        QuarantineCommand::List => list(&ctx).await,
        QuarantineCommand::Release { job } => release(&ctx, &job).await,
    })
}

async fn list(ctx: &Context) -> Answer {
    let held = ctx.store.quarantined().await?;
    if ctx.out.json {
        let lines: Vec<Value> = held
            .iter()
            .map(|(job, hold)| {
                json!({
                    "job": job.as_str(), "by": hold.by, "at": hold.at.to_string(), "why": hold.why,
                    "digest": hold.digest.as_ref().map(ToString::to_string),
                })
            })
            .collect();
        return ctx.out.value(&json!({ "quarantined": lines }));
    }
    let now = ctx.store.now().await?;
    let rows = held.iter().map(|(job, hold)| {
        vec![
            job.to_string(),
            text::when(hold.at, now),
            hold.digest
                .as_ref()
                .map_or("-", |digest| digest.short())
                .to_owned(),
            text::brief(&hold.why, 200),
        ]
    });
    ctx.out.table(
        &["JOB", "SINCE", "PLUGIN VERSION", "WHY"],
        rows.collect(),
        "No job is in quarantine.",
    )
}

async fn release(ctx: &Context, job: &JobName) -> Answer {
    let done = ctx.store.release(job, &operator()).await?;
    let result = match done {
        Operated::UnknownJob => return Err(ctx.unknown_job(job).await),
        Operated::Done => "released",
        Operated::Unchanged => "unchanged",
    };
    if ctx.out.json {
        return ctx
            .out
            .value(&json!({ "job": job.as_str(), "result": result }));
    }
    ctx.out.line(match done {
        Operated::Done => format!("Job {job} is released."),
        _ => "It was not in quarantine.".to_owned(),
    })
}
