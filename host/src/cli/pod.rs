//! `pod list`, `pod drain`.

use std::time::Duration;

use clap::Subcommand;
use serde_json::json;
use wasmcron_core::ids::{PodAddress, SessionId};
use wasmcron_core::time::Timestamp;
use wasmcron_store::pods::Draining;

use super::context::{Context, Globals, operator, with_store};
use super::out::{Answer, Failure, note};
use super::text;
use super::views::{PodList, PodView};

/// Verbs on pods.
#[derive(Debug, Subcommand)]
pub enum PodCommand {
    /// Pods, who leads, their load and their plugins
    List,
    /// Ask a pod to leave the fleet in good order, as SIGTERM would; its process ends with code 0
    Drain {
        /// Its address, as `pod list` shows it
        pod: PodAddress,
        /// Wait until it has left
        #[arg(long)]
        wait: bool,
    },
}

/// Pause between two looks at a pod that leaves.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// A pod that was asked to leave and gave no heartbeat for so long is not leaving but gone.
const SILENT: Duration = Duration::from_secs(60);

/// Runs the verb.
pub fn run(globals: &Globals, command: PodCommand) -> Answer {
    match command {
        PodCommand::List => with_store(globals, list),
        PodCommand::Drain { pod, wait } => {
            with_store(globals, async |ctx| drain(&ctx, &pod, wait).await)
        }
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

async fn drain(ctx: &Context, address: &PodAddress, wait: bool) -> Answer {
    let asked = session(ctx, address).await?;
    let result = match ctx.store.drain(address, &operator()).await? {
        Draining::Asked => "asked",
        Draining::Leaving => "already-leaving",
        Draining::Unknown => {
            return Err(Failure::failed(format!(
                "no pod {address}; `pod list` shows those that live"
            )));
        }
    };
    if !wait {
        return drained(ctx, address, result);
    }
    note(format!("{address}: {result}"));
    loop {
        let known = session(ctx, address).await?;
        match (&asked, known) {
            (Some((session, _)), Some((now, state))) if *session == now => match state {
                "left" => return drained(ctx, address, "left"),
                "gone" => {
                    return Err(Failure::failed(format!(
                        "{address} fell silent before it had left"
                    )));
                }
                _ => tokio::time::sleep(LOOK_EVERY).await,
            },
            // Another process took the address, or nothing is left of the pod.
            _ => return drained(ctx, address, "left"),
        }
    }
}

/// The session of a pod, and whether it has left, fell silent, or neither.
async fn session(
    ctx: &Context,
    address: &PodAddress,
) -> Result<Option<(SessionId, &'static str)>, Failure> {
    let now = ctx.store.now().await?;
    let pods = ctx.store.pods().await?;
    let Some(pod) = pods.into_iter().find(|pod| pod.address == *address) else {
        return Ok(None);
    };
    let state = if pod.load.draining && pod.heartbeat.is_none() {
        "left"
    } else if pod.load.running == 0 && !pod.is_active(now, SILENT) {
        "gone"
    } else {
        "here"
    };
    Ok(pod.session.map(|session| (session, state)))
}

fn drained(ctx: &Context, address: &PodAddress, result: &str) -> Answer {
    if ctx.out.json {
        return ctx
            .out
            .value(&json!({ "pod": address.as_str(), "result": result }));
    }
    ctx.out.line(match result {
        "asked" => format!("Pod {address} was asked to leave."),
        "left" => format!("Pod {address} has left."),
        _ => format!("Pod {address} is leaving already."),
    })
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
