//! `pod list`.

use clap::Subcommand;
use wasmcron_core::time::Timestamp;

use super::context::{Context, Globals, with_store};
use super::out::Answer;
use super::text;
use super::views::{PodList, PodView};

/// Verbs on pods.
#[derive(Debug, Subcommand)]
pub enum PodCommand {
    /// Pods, who leads, their load and their plugins
    List,
}

/// Runs the verb.
pub fn run(globals: &Globals, command: PodCommand) -> Answer {
    match command {
        PodCommand::List => with_store(globals, list),
    }
}

async fn list(ctx: Context) -> Answer {
    let now = ctx.store.now().await?;
    let leader = ctx.store.leader().await?;
    let window = ctx.settings.active_window();
    let pods = ctx.store.pods().await?;
    let pods: Vec<PodView> = pods
        .iter()
        .map(|pod| PodView::new(pod, leader.as_ref(), pod.is_active(now, window)))
        .collect();
    let list = PodList {
        now: now.to_string(),
        leader: leader.as_ref().map(|leader| leader.pod.address.to_string()),
        term: leader.as_ref().map(|leader| leader.term.to_string()),
        pods,
    };
    if ctx.out.json {
        return ctx.out.value(&list);
    }
    let rows = list.pods.iter().map(|pod| row(pod, now)).collect();
    ctx.out.table(
        &[
            "POD",
            "STATE",
            "HEARTBEAT",
            "RUNNING",
            "QUEUED",
            "JOBS",
            "PLUGINS",
            "VERSION",
        ],
        rows,
        "No pod has left a trace.",
    )?;
    if list.leader.is_none() {
        ctx.out.line("No pod leads.")?;
    }
    Ok(())
}

fn row(pod: &PodView, now: Timestamp) -> Vec<String> {
    let beat: Option<Timestamp> = pod.heartbeat.as_deref().and_then(|at| at.parse().ok());
    let plugins: Vec<String> = pod
        .plugins
        .iter()
        .map(|(name, digest)| format!("{name}@{}", digest.get(..7).unwrap_or(digest)))
        .collect();
    let capacity = pod
        .capacity
        .map_or_else(|| "?".to_owned(), |capacity| capacity.to_string());
    let exclusive = pod
        .exclusive
        .as_deref()
        .map(|run| format!(" (exclusive: {run})"))
        .unwrap_or_default();
    vec![
        pod.address.clone(),
        format!("{}{}", pod.state, if pod.leads { ", leads" } else { "" }),
        beat.map_or_else(
            || "-".into(),
            |beat| format!("{} ago", text::span(now.since(beat))),
        ),
        format!("{}/{capacity}{exclusive}", pod.running),
        pod.queued.to_string(),
        pod.jobs.len().to_string(),
        plugins.join(" "),
        pod.version.clone().unwrap_or_else(|| "-".into()),
    ]
}
