//! Ends an attempt in the store: how it ended, what follows, and who hears of it.

use std::time::Duration;

use wasmcron_core::decide::finish::{self, After, Circumstances};
use wasmcron_core::decide::recover;
use wasmcron_core::job::Job;
use wasmcron_core::run::Outcome;
use wasmcron_runtime::{AttemptEnd, AttemptReport, Blame, StopReason};
use wasmcron_store::queue::Attempt;
use wasmcron_store::runs::{AttemptRef, Finish, Finished, Next, StateWrite};

use super::executor::run_left;
use super::outage::Outage;
use super::plugins::Program;
use super::pod::Pod;

/// What is known when an attempt is over.
pub struct Ending {
    pub report: AttemptReport,
    /// What the guest had been asked to do.
    pub stop: Option<StopReason>,
    pub cancelled_by: Option<String>,
    /// A checkpoint of the attempt was acknowledged.
    pub progressed: bool,
    /// A write of it was refused because another attempt may own the run.
    pub fenced: bool,
}

/// Maps the end, decides what follows, and repeats `finish` until it is answered.
pub async fn conclude(
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
