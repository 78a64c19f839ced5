//! Executes one claimed attempt and ends it in the store.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use wasmcron_core::decide::finish::{self, After, Circumstances};
use wasmcron_core::decide::recover;
use wasmcron_core::job::{Job, Reload};
use wasmcron_core::run::{Checkpoint, Outcome};
use wasmcron_core::task::{Reason, Task};
use wasmcron_runtime::{
    AttemptControl, AttemptEnd, AttemptReport, AttemptSpec, Blame, Call, CallReason, Grants,
    Limits, SavedCheckpoint, StopReason,
};
use wasmcron_store::queue::Attempt;
use wasmcron_store::runs::{AttemptRef, Finish, Finished, Next, StateWrite};

use super::attempts::Executing;
use super::bridge::Bridge;
use super::lease::lease_until;
use super::outage::Outage;
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
fn run_left(pod: &Pod, job: &Job, attempt: &Attempt) -> Option<Duration> {
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

/// What is known when an attempt is over.
struct Ending {
    report: AttemptReport,
    /// What the guest had been asked to do.
    stop: Option<StopReason>,
    cancelled_by: Option<String>,
    /// A checkpoint of the attempt was acknowledged.
    progressed: bool,
    /// A write of it was refused because another attempt may own the run.
    fenced: bool,
}

/// Maps the end, decides what follows, and repeats `finish` until it is answered.
async fn conclude(
    pod: &Pod,
    job: &Job,
    plugin: &dyn Program,
    attempt: &Attempt,
    names: &AttemptRef,
    ending: Ending,
) {
    let run_left = run_left(pod, job, attempt);
    let mut outcome = outcome(&ending);
    if let (Outcome::TimedOut { message }, Some(Duration::ZERO), Some(limit)) =
        (&mut outcome, run_left, job.definition.run_timeout)
    {
        *message = finish::over(limit);
    }
    let asked_to_yield = matches!(ending.stop, Some(StopReason::Draining | StopReason::Reload));
    let met = Circumstances {
        progressed: ending.progressed,
        asked_to_yield,
        may_rerun: may_rerun(pod, job, &outcome).await,
        run_left,
    };
    let report = ending.report;
    let after = finish::finish(&job.definition, &attempt.task, &outcome, met);
    let state = report.on_success_state.into_iter();
    let finish = Finish {
        attempt: names.clone(),
        me: pod.me.clone(),
        outcome,
        next: next(after),
        digest: Some(plugin.digest().clone()),
        state: state
            .map(|write| StateWrite {
                key: write.key,
                value: write.value.map(|v| v.to_vec()),
            })
            .collect(),
        state_limit: job.limits.state,
        retention: pod.retention(),
    };
    pod.attempts.conclude(names);
    let (finish, answer) = send(pod, finish).await;
    note_end(pod, job, attempt, &finish, answer, report.wall);
}

/// Whether a job that cannot resume runs again after the platform lost it. Without an answer of the
/// store it does not.
async fn may_rerun(pod: &Pod, job: &Job, outcome: &Outcome) -> bool {
    let definition = &job.definition;
    if !matches!(outcome, Outcome::Lost { .. }) || definition.resumable || !definition.auto_rerun {
        return false;
    }
    let max_average = pod.settings.recovery.auto_rerun_max_average.get();
    match pod.store.job(&job.name).await {
        Ok(Some(view)) => recover::may_rerun(definition, view.successes, max_average).is_ok(),
        _ => false,
    }
}

fn next(after: After) -> Next {
    match after {
        After::End { state, why } => Next::End { state, why },
        After::Again {
            reason,
            due_in,
            failures,
            idle_yields,
            why,
        } => Next::Again {
            reason,
            due_in,
            failures,
            idle_yields,
            why,
        },
    }
}

/// Repeats `finish` until it is answered; says what was sent last, and the answer.
async fn send(pod: &Pod, mut finish: Finish) -> (Finish, &'static str) {
    let outage = Outage::new("finish", &pod.health);
    loop {
        match pod.store.finish(&finish).await {
            Ok(Finished::Finished | Finished::AlreadyFinished) => return (finish, "finished"),
            Ok(Finished::Fenced) => {
                pod.metrics.fenced.inc();
                tracing::warn!(run = %finish.attempt.run, fence = %finish.attempt.fence, "run.fenced");
                return (finish, "fenced");
            }
            Ok(Finished::TooLarge(limit)) => {
                let message =
                    format!("the job's state exceeds its limit of {limit} bytes (`limits.state`)");
                finish.outcome = Outcome::Failed {
                    message: message.clone(),
                    retry: false,
                    after_ms: None,
                };
                finish.next = Next::End {
                    state: wasmcron_core::run::RunState::Failed,
                    why: Some(message),
                };
                finish.state.clear();
            }
            Err(error) => {
                let wait = outage.failed(&error, &pod.metrics);
                if !pod.rest(wait).await {
                    return (finish, "none");
                }
            }
        }
    }
}

/// How an end is written down.
fn outcome(ending: &Ending) -> Outcome {
    let end = &ending.report.end;
    let message = end.message();
    let by = || {
        ending
            .cancelled_by
            .clone()
            .unwrap_or_else(|| "its plugin".into())
    };
    if ending.fenced && end.blame() == Blame::Guest {
        // Whatever the guest made of the refusal: it was the platform's doing, not a fault of its own.
        return Outcome::Lost {
            reason: format!("fenced: the job's lock was lost; then: {message}"),
        };
    }
    if ending.cancelled_by.is_some() && end.blame() == Blame::Platform {
        return Outcome::Cancelled { by: by() };
    }
    match end {
        AttemptEnd::Done { summary } => Outcome::Succeeded {
            summary: summary.clone(),
        },
        AttemptEnd::Yielded => Outcome::Yielded,
        AttemptEnd::Retry { after, .. } => {
            let after_ms = after.map(|wait| u32::try_from(wait.as_millis()).unwrap_or(u32::MAX));
            Outcome::Failed {
                message,
                retry: true,
                after_ms,
            }
        }
        AttemptEnd::Fatal { .. } => Outcome::Failed {
            message,
            retry: false,
            after_ms: None,
        },
        AttemptEnd::Cancelled => Outcome::Cancelled { by: by() },
        AttemptEnd::Interrupted {
            why: wasmcron_runtime::Why::Cancelled,
        } => Outcome::Cancelled { by: by() },
        AttemptEnd::TimedOut { .. } => Outcome::TimedOut { message },
        // A trap may pass (a poisoned page, a full disk behind an API): the retry policy decides.
        AttemptEnd::Trap(trap) => {
            let trace = trap
                .backtrace
                .as_deref()
                .map(|trace| format!("\n{trace}"))
                .unwrap_or_default();
            Outcome::Failed {
                message: format!("{message}{trace}"),
                retry: true,
                after_ms: None,
            }
        }
        AttemptEnd::LimitExceeded { .. } => Outcome::Failed {
            message,
            retry: true,
            after_ms: None,
        },
        AttemptEnd::Interrupted { .. } | AttemptEnd::LeaseLost | AttemptEnd::HostError { .. } => {
            Outcome::Lost { reason: message }
        }
    }
}

/// Whether the run ended here: an end that was refused is told of by whoever owns the run.
fn ends_run(next: &Next, answer: &str) -> bool {
    answer == "finished" && matches!(next, Next::End { .. })
}

fn note_end(
    pod: &Pod,
    job: &Job,
    attempt: &Attempt,
    finish: &Finish,
    answer: &str,
    wall: Duration,
) {
    let outcome = finish.outcome.as_str();
    pod.metrics.outcomes.with_label_values(&[outcome]).inc();
    pod.metrics.event("run.finished");
    if ends_run(&finish.next, answer) {
        pod.metrics.run_ended(
            job.name.as_str(),
            pod.clock.now().since(attempt.task.nominal),
        );
    }
    let (run, fence, number) = (
        &finish.attempt.run,
        &finish.attempt.fence,
        attempt.task.attempt,
    );
    let next = match &finish.next {
        Next::End { state, .. } => state.as_str(),
        Next::Again { .. } => "again",
    };
    let seconds = wall.as_secs_f64();
    match &finish.outcome {
        Outcome::Succeeded { .. } | Outcome::Yielded => {
            tracing::info!(%run, attempt = number, %fence, outcome, next, answer, seconds, "run.finished");
        }
        other => {
            let why = other.message();
            tracing::warn!(%run, attempt = number, %fence, outcome, next, answer, seconds, why, "run.finished");
        }
    }
}

#[cfg(test)]
mod tests {
    use wasmcron_core::run::RunState;

    use super::*;

    #[test]
    fn a_refused_end_is_not_counted_as_the_runs_end() {
        let end = Next::End {
            state: RunState::Succeeded,
            why: None,
        };
        assert!(ends_run(&end, "finished"));
        assert!(!ends_run(&end, "fenced"));
        assert!(!ends_run(&end, "none"));
    }
}
