//! `checkpoint show`, `list`, `export`, `rewind`, `clear`.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use serde_json::{Value, json};
use wasmcron_core::ids::RunId;
use wasmcron_store::inspect::{Cleared, Rewound};

use super::context::{Context, Globals, operator, with_store};
use super::out::{Answer, Failure};
use super::text;
use super::views::CheckpointView;

/// Verbs on checkpoints.
#[derive(Debug, Subcommand)]
pub enum CheckpointCommand {
    /// The current checkpoint of a run
    Show {
        /// Id of the run
        run: RunId,
        /// Write the bytes alone, as they are
        #[arg(long)]
        raw: bool,
    },
    /// The kept checkpoints of a run, newest first: three at most
    List {
        /// Id of the run
        run: RunId,
    },
    /// Write the bytes of a kept checkpoint to a file
    Export {
        /// Id of the run
        run: RunId,
        /// Its sequence, as `checkpoint list` shows it [default: the current one]
        #[arg(long)]
        seq: Option<u64>,
        /// Where to
        #[arg(long, short, value_name = "FILE")]
        output: PathBuf,
    },
    /// Make an earlier kept checkpoint the current one, so that the next attempt begins there
    Rewind {
        /// Id of the run; it must not be executing
        run: RunId,
        /// Its sequence, as `checkpoint list` shows it
        #[arg(long)]
        seq: u64,
    },
    /// Remove a run's checkpoints, so that its next attempt begins from nothing
    Clear {
        /// Id of the run; it must not be executing
        run: RunId,
    },
}

/// Runs the verb.
pub fn run(globals: &Globals, command: CheckpointCommand) -> Answer {
    with_store(globals, async |ctx| match command {
        CheckpointCommand::Show { run, raw } => show(&ctx, &run, raw).await,
        CheckpointCommand::List { run } => list(&ctx, &run).await,
        CheckpointCommand::Export { run, seq, output } => export(&ctx, &run, seq, &output).await,
        CheckpointCommand::Rewind { run, seq } => rewind(&ctx, &run, seq).await,
        CheckpointCommand::Clear { run } => clear(&ctx, &run).await,
    })
}

/// Characters of a checkpoint that people are shown.
const PREVIEW: usize = 2_000;

async fn show(ctx: &Context, run: &RunId, raw: bool) -> Answer {
    if raw && ctx.out.json {
        let message = "--raw and --json are two forms of the answer; give one of them";
        return Err(Failure::bad_input(message));
    }
    let Some(checkpoint) = ctx.store.checkpoint(run).await? else {
        return Err(none(ctx, run).await?);
    };
    if raw {
        return ctx.out.bytes(&checkpoint.data);
    }
    let view = CheckpointView::new(run.to_string(), &checkpoint);
    if ctx.out.json {
        return ctx.out.value(&view);
    }
    let shown = view.text.as_deref().map_or_else(
        || "not text; `--raw` writes it".to_owned(),
        |data| {
            let cut: String = data.chars().take(PREVIEW).collect();
            text::plain(&cut)
        },
    );
    ctx.out.pairs(&[
        (
            "sequence",
            format!(
                "{} (attempt {}, fence {})",
                view.seq, view.attempt, view.fence
            ),
        ),
        (
            "saved",
            text::when(checkpoint.saved_at, ctx.store.now().await?),
        ),
        ("schema", view.schema.to_string()),
        ("plugin", checkpoint.digest.short().to_owned()),
        ("bytes", view.bytes.to_string()),
        ("data", shown),
    ])
}

async fn list(ctx: &Context, run: &RunId) -> Answer {
    let kept = ctx.store.checkpoints(run).await?;
    if kept.is_empty() {
        return Err(none(ctx, run).await?);
    }
    if ctx.out.json {
        let lines: Vec<Value> = kept
            .iter()
            .map(|one| {
                json!({
                    "seq": one.seq, "schema": one.schema, "digest": one.digest.to_string(),
                    "attempt": one.attempt, "fence": one.fence.to_string(),
                    "saved": one.saved_at.to_string(), "bytes": one.data.len(),
                })
            })
            .collect();
        let value = json!({ "run": run.as_str(), "checkpoints": lines });
        return ctx.out.value(&value);
    }
    let now = ctx.store.now().await?;
    let rows = kept.iter().map(|one| {
        vec![
            one.seq.to_string(),
            text::when(one.saved_at, now),
            one.attempt.to_string(),
            one.schema.to_string(),
            one.digest.short().to_owned(),
            one.data.len().to_string(),
        ]
    });
    let heads = ["SEQ", "SAVED", "ATTEMPT", "SCHEMA", "PLUGIN", "BYTES"];
    ctx.out.table(&heads, rows.collect(), "")
}

async fn export(ctx: &Context, run: &RunId, seq: Option<u64>, output: &Path) -> Answer {
    let kept = ctx.store.checkpoints(run).await?;
    let Some(newest) = kept.first() else {
        return Err(none(ctx, run).await?);
    };
    let seq = seq.unwrap_or(newest.seq);
    let Some(one) = kept.iter().find(|one| one.seq == seq) else {
        return Err(not_kept(run, seq));
    };
    std::fs::write(output, &one.data)
        .map_err(|error| Failure::failed(format!("{}: {error}", output.display())))?;
    if ctx.out.json {
        return ctx.out.value(&json!({
            "run": run.as_str(), "seq": seq, "bytes": one.data.len(), "file": output,
        }));
    }
    let (file, bytes) = (output.display(), one.data.len());
    ctx.out
        .line(format!("{file}: {bytes} bytes, checkpoint {seq} of {run}"))
}

fn not_kept(run: &RunId, seq: u64) -> Failure {
    Failure::failed(format!(
        "checkpoint {seq} of {run} is not kept; `checkpoint list {run}` shows those that are"
    ))
}

async fn rewind(ctx: &Context, run: &RunId, seq: u64) -> Answer {
    if let Some(record) = ctx.store.run(run).await?
        && record.state.is_ended()
    {
        return Err(Failure::failed(format!(
            "{run} is {}: an ended run never runs again",
            record.state.as_str()
        )));
    }
    match ctx.store.rewind_checkpoint(run, seq, &operator()).await? {
        Rewound::Rewound if ctx.out.json => ctx
            .out
            .value(&json!({ "run": run.as_str(), "seq": seq, "result": "rewound" })),
        Rewound::Rewound => ctx.out.line(format!(
            "The next attempt of {run} begins at checkpoint {seq}."
        )),
        Rewound::None => Err(not_kept(run, seq)),
        Rewound::Running => Err(Failure::failed(format!(
            "{run} is executing; wait for its end, or drain its pod and rewind while it waits"
        ))),
    }
}

async fn none(ctx: &Context, run: &RunId) -> Result<Failure, Failure> {
    Ok(match ctx.store.run(run).await? {
        None => Context::unknown_run(run),
        Some(_) => Failure::failed(format!("{run} has no checkpoint")),
    })
}

async fn clear(ctx: &Context, run: &RunId) -> Answer {
    match ctx.store.clear_checkpoint(run, &operator()).await? {
        Cleared::Cleared if ctx.out.json => ctx
            .out
            .value(&json!({ "run": run.as_str(), "result": "cleared" })),
        Cleared::Cleared => ctx.out.line(format!("The checkpoints of {run} are gone.")),
        Cleared::None => Err(none(ctx, run).await?),
        Cleared::Running => Err(Failure::failed(format!(
            "{run} is executing; cancel it or wait for its end first"
        ))),
    }
}
