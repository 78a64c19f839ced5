//! Executes one claimed attempt and ends it in the store.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use wasmcron_core::decide::finish;
use wasmcron_core::job::{Job, Reload};
use wasmcron_core::run::Checkpoint;
use wasmcron_core::task::{Reason, Task};
use wasmcron_runtime::{
    AttemptControl, AttemptEnd, AttemptReport, AttemptSpec, Call, CallReason, Grants, Limits,
    SavedCheckpoint, StopReason,
};
use wasmcron_store::queue::Attempt;
use wasmcron_store::runs::AttemptRef;

use super::attempts::Executing;
use super::bridge::Bridge;
use super::conclude::{Ending, conclude};
use super::lease::lease_until;
use super::plugins::Program;
use super::pod::Pod;
use crate::config::params;

/// Less time than this is none.
const LEAST_TIME: Duration = Duration::from_millis(50);

/// Executes an attempt whose claim was sent at `sent` (since boot), to its acknowledged end.
pub async fn execute(
    pod: &Arc<Pod>,
    job: &Arc<Job>,
    plugin: &Arc<dyn Program>,
    attempt: Attempt,
    sent: Duration,
) {
    let names = AttemptRef {
        job: job.name.clone(),
        run: attempt.task.run.clone(),
        fence: attempt.fence,
    };
    let control = AttemptControl::with_lease(lease_until(pod, sent));
    let cancelled_by = Arc::new(Mutex::new(None));
    pod.attempts.begin(Executing {
        attempt: names.clone(),
        control: control.clone(),
        digest: plugin.digest().clone(),
        hands_over: job.reload == Reload::Handoff && job.definition.digest.is_none(),
        cancelled_by: cancelled_by.clone(),
    });
    pod.metrics.running.inc();
    if pod.leaving.is_cancelled() {
        control.stop(StopReason::Draining);
    }
    let bridge = Arc::new(Bridge::new(pod, job, &**plugin, &attempt, names.clone()));
    let report = match prepare(pod, job, plugin, &attempt, &control, &bridge).await {
        Ok((plugin, spec)) => {
            pod.metrics.event("run.started");
            observe_start(pod, &attempt.task);
            let from = attempt.checkpoint.as_ref().map_or(0, |saved| saved.seq);
            tracing::info!(run = %names.run, attempt = attempt.task.attempt, fence = %names.fence, from, plugin = plugin.digest().short(), "run.started");
            plugin.execute(spec, bridge.clone()).await
        }
        Err(end) => ended_before_it_began(end),
    };
    bridge.close().await;
    pod.metrics.log_dropped.inc_by(report.log_dropped_lines);
    let by = cancelled_by
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone();
    let ending = Ending {
        report,
        stop: control.stop_reason(),
        cancelled_by: by,
        progressed: bridge.progressed(),
        fenced: bridge.was_fenced(),
    };
    conclude(pod, job, &**plugin, &attempt, &names, ending).await;
    pod.attempts.end(&names);
    pod.metrics.running.dec();
}

fn observe_start(pod: &Pod, task: &Task) {
    if matches!(task.reason, Reason::Scheduled | Reason::Manual) {
        let late = pod.clock.now().since(task.nominal);
        pod.metrics
            .start_delay
            .with_label_values::<&str>(&[])
            .observe(late.as_secs_f64());
    }
}

fn ended_before_it_began(end: AttemptEnd) -> AttemptReport {
    AttemptReport {
        end,
        wall: Duration::ZERO,
        start: Duration::ZERO,
        peak_memory: 0,
        log_dropped_lines: 0,
        log_dropped_bytes: 0,
        checkpoints_saved: 0,
        offer_lost: None,
        on_success_state: Vec::new(),
    }
}

/// Everything the sandbox needs. An error is how the attempt ends without a sandbox.
async fn prepare(
    pod: &Pod,
    job: &Job,
    plugin: &Arc<dyn Program>,
    attempt: &Attempt,
    control: &AttemptControl,
    bridge: &Bridge,
) -> Result<(Arc<dyn Program>, AttemptSpec), AttemptEnd> {
    let fatal = |message: String| AttemptEnd::Fatal { message };
    let own = params::own_environment(job);
    let parameters = params::resolve(&attempt.task.params, own).map_err(fatal)?;
    let value =
        serde_json::from_str(&parameters).map_err(|error| fatal(format!("parameters: {error}")))?;
    plugin
        .check_parameters(&value)
        .map_err(|faults| fatal(format!("parameters: {}", faults.join("; "))))?;
    let (plugin, checkpoint) = match &attempt.checkpoint {
        Some(checkpoint) => {
            let limits = limits(pod, job, job.definition.timeout);
            fit(pod, plugin, checkpoint, &limits, bridge).await
        }
        None => (plugin.clone(), None),
    };
    let time = time(pod, job, attempt);
    if time.is_zero() {
        return Err(AttemptEnd::TimedOut { limit: time });
    }
    let now = pod.clock.now();
    let call = Call {
        job: job.name.to_string(),
        run_id: attempt.task.run.to_string(),
        attempt: attempt.task.attempt,
        nominal_time: attempt.task.nominal.to_string(),
        actual_time: now.to_string(),
        previous_success: attempt.previous_success.map(|at| at.to_string()),
        deadline: Some((now + time).to_string()),
        reason: call_reason(attempt.task.reason),
        parameters,
        fence: attempt.fence.0,
    };
    let grants = Arc::new(grants(job).map_err(fatal)?);
    let limits = limits(pod, job, time);
    Ok((
        plugin,
        AttemptSpec {
            call,
            limits,
            grants,
            checkpoint,
            control: control.clone(),
        },
    ))
}

/// How long an attempt may take: its own limit, or what is left of its run's.
fn time(pod: &Pod, job: &Job, attempt: &Attempt) -> Duration {
    let limit = job.definition.timeout;
    run_left(pod, job, attempt).map_or(limit, |left| left.min(limit))
}

/// What is left of the run's own time; less than anything can be done in is nothing.
pub fn run_left(pod: &Pod, job: &Job, attempt: &Attempt) -> Option<Duration> {
    let left = finish::run_left(&job.definition, Some(attempt.began_at), pod.clock.now())?;
    Some(if left < LEAST_TIME {
        Duration::ZERO
    } else {
        left
    })
}

fn limits(pod: &Pod, job: &Job, time: Duration) -> Limits {
    // A short attempt is warned within its last tenth.
    let notice = pod
        .settings
        .runtime
        .stop_notice
        .get()
        .min((time / 10).max(Duration::from_millis(100)));
    Limits {
        time: Some(time),
        time_notice: Some(notice),
        memory: job.limits.memory,
        checkpoint: job.limits.checkpoint,
        state: job.limits.state,
        log: job.limits.log_bytes,
        log_rate: job.limits.log_lines_per_second,
        http_body: job.limits.http_body,
        ..Limits::default()
    }
}

fn call_reason(reason: Reason) -> CallReason {
    match reason {
        Reason::Scheduled => CallReason::Scheduled,
        Reason::Manual => CallReason::Manual,
        Reason::Retry => CallReason::Retry,
        Reason::Resume => CallReason::Resume,
        Reason::CatchUp => CallReason::CatchUp,
        Reason::Backfill => CallReason::Backfill,
    }
}

fn grants(job: &Job) -> Result<Grants, String> {
    let http = job
        .allow
        .http
        .iter()
        .map(|origin| origin.parse())
        .collect::<Result<_, String>>()?;
    let env = job
        .allow
        .env
        .iter()
        .filter_map(|name| Some((name.clone(), std::env::var(name).ok()?)))
        .collect();
    Ok(Grants {
        http,
        env,
        secrets: job.allow.secrets.iter().cloned().collect(),
    })
}

/// Finds who can read a checkpoint: this version if the format is its own, or if it can migrate it;
/// else the version that wrote it, while this pod still has it; else the run starts anew, saying so.
async fn fit(
    pod: &Pod,
    plugin: &Arc<dyn Program>,
    checkpoint: &Checkpoint,
    limits: &Limits,
    bridge: &Bridge,
) -> (Arc<dyn Program>, Option<SavedCheckpoint>) {
    let saved = |schema, data: Vec<u8>| SavedCheckpoint {
        schema,
        data: Bytes::from(data),
        attempt: checkpoint.attempt,
    };
    let wanted = plugin.checkpoint_schema();
    if checkpoint.schema == wanted {
        return (plugin.clone(), Some(saved(wanted, checkpoint.data.clone())));
    }
    let mut why = format!(
        "the checkpoint has format {}, this version of the plugin reads {wanted}",
        checkpoint.schema
    );
    if plugin.supports_migration() {
        let data = Bytes::from(checkpoint.data.clone());
        let migrated = plugin.migrate_checkpoint(checkpoint.schema, data, limits);
        match migrated.await {
            Ok(data) => return (plugin.clone(), Some(saved(wanted, data.to_vec()))),
            Err(error) => why = format!("{why}, and its migration failed: {error}"),
        }
    }
    if let Some(writer) = pod.plugins.by_digest(&checkpoint.digest) {
        bridge.note(&format!("{why}; the version that wrote it goes on"));
        let schema = writer.checkpoint_schema();
        return (writer, Some(saved(schema, checkpoint.data.clone())));
    }
    bridge.note(&format!("{why}; the run starts anew"));
    (plugin.clone(), None)
}
