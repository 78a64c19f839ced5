//! `GET /healthz` and `GET /readyz`.
//!
//! Ready is judged by ages (last heartbeat, last take), not by a ping: a pod whose subscriber hangs
//! answers pings for hours.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;
use wasmcron_core::time::Timestamp;

use crate::services::Pod;

/// Whether the pod can do its work, and if not, why.
#[derive(Serialize)]
pub(super) struct Readiness {
    ready: bool,
    pod: String,
    leader: bool,
    draining: bool,
    running: usize,
    seconds_since_heartbeat: Option<f64>,
    seconds_since_take: f64,
    problems: Vec<String>,
}

/// The process lives.
pub(super) async fn alive() -> &'static str {
    "ok\n"
}

/// The store answers and tasks are taken.
pub(super) async fn ready(State(pod): State<Arc<Pod>>) -> (StatusCode, Json<Readiness>) {
    let window = pod.settings.subscribers.window.get();
    let last_beat = match pod.last_beat.load(Ordering::Relaxed) {
        0 => None,
        last => Some(Duration::from_millis(last)),
    };
    let beat = last_beat.map(|last| pod.machine.boot().saturating_sub(last));
    let take = pod.clock.now().since(Timestamp::from_millis(
        pod.last_take.load(Ordering::Relaxed),
    ));
    let running = pod.attempts.running();
    let full = running >= usize::try_from(pod.capacity).unwrap_or(usize::MAX);
    let draining = pod.attempts.is_draining();
    let mut problems = Vec::new();
    match beat {
        None => problems.push("the pod starts: no heartbeat was acknowledged yet".into()),
        Some(beat) if beat > window => problems.push(format!(
            "no heartbeat was acknowledged for {} s",
            beat.as_secs()
        )),
        Some(_) => {}
    }
    // A pod whose slots are all taken rightly asks for nothing.
    if take > window && !full {
        problems.push(format!(
            "no task was asked for with an answer for {} s",
            take.as_secs()
        ));
    }
    if draining {
        problems.push("the pod is draining".into());
    }
    let ready = problems.is_empty();
    let status = if ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    let answer = Readiness {
        ready,
        pod: pod.me.address.to_string(),
        leader: pod.lead.term().is_some(),
        draining,
        running,
        seconds_since_heartbeat: beat.map(|beat| beat.as_secs_f64()),
        seconds_since_take: take.as_secs_f64(),
        problems,
    };
    (status, Json(answer))
}
