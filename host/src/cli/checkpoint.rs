//! `checkpoint show`, `checkpoint clear`.

use clap::Subcommand;
use serde_json::json;
use wasmcron_core::ids::RunId;
use wasmcron_store::inspect::Cleared;

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
