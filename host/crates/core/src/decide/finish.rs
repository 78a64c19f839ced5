//! What comes after an attempt: the end of the run, a retry, or a continuation.

use std::time::Duration;

use sha2::{Digest as _, Sha256};

use crate::job::{Definition, Retry};
use crate::run::{Outcome, RunState};
use crate::task::{Reason, Task};
use crate::time::Timestamp;

/// Yields in a row without a newer checkpoint after which the run ends as failed.
pub const IDLE_YIELDS_MAX: u32 = 10;

/// What the executor knows besides the outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Circumstances {
    /// A checkpoint of a higher sequence than the attempt began with was acknowledged.
    pub progressed: bool,
    /// The host asked the guest to stop so that it continues elsewhere (drain, newer version).
    pub asked_to_yield: bool,
    /// The job is run again from nothing if the platform lost it: `recover::may_rerun`.
    pub may_rerun: bool,
    /// What is left of the run's own time; none: it has no limit.
    pub run_left: Option<Duration>,
}

/// The wait after an attempt that the platform ended before it made progress.
pub const LOST_PAUSE: Duration = Duration::from_secs(1);

/// What comes after an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum After {
    /// The run is over.
    End {
        /// How.
        state: RunState,
        /// Why, for people.
        why: Option<String>,
    },
    /// The run goes on.
    Again {
        /// Why the next attempt happens.
        reason: Reason,
        /// Wait before it.
        due_in: Duration,
        /// Failed attempts so far.
        failures: u32,
        /// Yields in a row without a newer checkpoint.
        idle_yields: u32,
        /// Why it waits, for people.
        why: String,
    },
}

/// Decides what comes after an attempt of `task` that ended as `outcome`. A run goes on only if its
/// next attempt can begin within the run's own time.
#[must_use]
pub fn finish(job: &Definition, task: &Task, outcome: &Outcome, met: Circumstances) -> After {
    let after = by_outcome(job, task, outcome, met);
    match (&after, job.run_timeout, met.run_left) {
        (After::Again { due_in, why, .. }, Some(limit), Some(left)) if *due_in >= left => {
            let said = match outcome {
                Outcome::TimedOut { message } if left.is_zero() => message.clone(),
                _ => format!("{}: {why}", over(limit)),
            };
            After::End {
                state: RunState::TimedOut,
                why: Some(said),
            }
        }
        _ => after,
    }
}

/// That a run is out of time, for people.
#[must_use]
pub fn over(limit: Duration) -> String {
    format!(
        "the run is over its run_timeout of {}",
        humantime::format_duration(limit)
    )
}

/// What is left of a run's own time at `now` if its first attempt was claimed at `began`; none: it has
/// no limit, or has not begun.
#[must_use]
pub fn run_left(job: &Definition, began: Option<Timestamp>, now: Timestamp) -> Option<Duration> {
    Some(job.run_timeout?.saturating_sub(now.since(began?)))
}

fn by_outcome(job: &Definition, task: &Task, outcome: &Outcome, met: Circumstances) -> After {
    let end = |state, why: &str| After::End {
        state,
        why: (!why.is_empty()).then(|| why.to_owned()),
    };
    let again = |reason, due_in, failures, idle_yields, why: String| After::Again {
        reason,
        due_in,
        failures,
        idle_yields,
        why,
    };
    match outcome {
        Outcome::Succeeded { .. } => end(RunState::Succeeded, ""),
        Outcome::Cancelled { by } => end(RunState::Cancelled, &format!("cancelled by {by}")),
        Outcome::Failed {
            message,
            retry: false,
            ..
        } => end(RunState::Failed, message),
        Outcome::Failed {
            message,
            retry: true,
            after_ms,
        } => {
            let asked = Duration::from_millis(after_ms.unwrap_or(0).into());
            retry(&job.retry, task, message, asked)
                .unwrap_or_else(|| end(RunState::Failed, message))
        }
        Outcome::TimedOut { message } => retry(&job.retry, task, message, Duration::ZERO)
            .unwrap_or_else(|| end(RunState::TimedOut, message)),
        Outcome::Yielded if met.progressed || met.asked_to_yield => again(
            Reason::Resume,
            Duration::ZERO,
            task.failures,
            0,
            "yielded".into(),
        ),
        Outcome::Yielded if task.idle_yields + 1 >= IDLE_YIELDS_MAX => end(
            RunState::Failed,
            &format!("no progress: {IDLE_YIELDS_MAX} yields in a row without a newer checkpoint"),
        ),
        Outcome::Yielded => {
            let idle = task.idle_yields + 1;
            let wait = backoff(&job.retry, task, idle);
            again(
                Reason::Resume,
                wait,
                task.failures,
                idle,
                "yielded without a newer checkpoint".into(),
            )
        }
        Outcome::Lost { reason } if job.resumable || met.may_rerun => {
            // Lost again and again without progress must not become a busy loop.
            let at_once = met.progressed || met.asked_to_yield;
            let wait = if at_once { Duration::ZERO } else { LOST_PAUSE };
            again(Reason::Resume, wait, task.failures, 0, reason.clone())
        }
        Outcome::Lost { reason } => end(RunState::Lost, reason),
    }
}

fn retry(policy: &Retry, task: &Task, message: &str, asked: Duration) -> Option<After> {
    let failures = task.failures + 1;
    (failures < policy.max_attempts).then(|| After::Again {
        reason: Reason::Retry,
        due_in: backoff(policy, task, failures).max(asked),
        failures,
        idle_yields: 0,
        why: format!(
            "attempt {} failed, {failures} of {} used: {message}",
            task.attempt, policy.max_attempts
        ),
    })
}

/// Doubles with each step up to the longest wait, less up to a fifth that depends on the run and the
/// step, so that jobs that failed together do not come back together.
fn backoff(policy: &Retry, task: &Task, step: u32) -> Duration {
    let doubled = policy
        .backoff
        .saturating_mul(2_u32.saturating_pow(step.saturating_sub(1)));
    let wait = doubled.min(policy.max_backoff.max(policy.backoff));
    let hash = Sha256::digest(format!("{}/{step}", task.run));
    let share = u32::from(hash.first().copied().unwrap_or(0));
    wait - wait * share / (5 * 256)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::agenda::testing::definition;
    use crate::ids::RunId;

    const QUIET: Circumstances = Circumstances {
        progressed: false,
        asked_to_yield: false,
        may_rerun: false,
        run_left: None,
    };

    fn task(failures: u32, idle_yields: u32) -> Task {
        let run = RunId::nominal(&"job".parse().expect("name"), Timestamp::EPOCH);
        let mut task = Task::first(run, Timestamp::EPOCH, Reason::Scheduled, "{}".into());
        task.failures = failures;
        task.idle_yields = idle_yields;
        task
    }

    fn job(max_attempts: u32) -> Definition {
        let mut job = definition("@daily");
        job.retry.max_attempts = max_attempts;
        job
    }

    fn failed(retry: bool, after_ms: Option<u32>) -> Outcome {
        Outcome::Failed {
            message: "boom".into(),
            retry,
            after_ms,
        }
    }

    fn show(after: &After) -> String {
        match after {
            After::End { state, .. } => state.as_str().into(),
            After::Again {
                reason,
                failures,
                idle_yields,
                ..
            } => format!("{reason:?} {failures} {idle_yields}"),
        }
    }

    #[test]
    fn a_table_of_ends() {
        let lost = Outcome::Lost {
            reason: "drained".into(),
        };
        let mut brittle = job(3);
        brittle.resumable = false;
        let resumable = job(3);
        let table = [
            (
                &resumable,
                task(0, 0),
                Outcome::Succeeded {
                    summary: String::new(),
                },
                "succeeded",
            ),
            (&resumable, task(0, 0), failed(false, None), "failed"),
            (&resumable, task(0, 0), failed(true, None), "Retry 1 0"),
            (&resumable, task(2, 0), failed(true, None), "failed"),
            (
                &resumable,
                task(1, 0),
                Outcome::TimedOut {
                    message: "1s".into(),
                },
                "Retry 2 0",
            ),
            (
                &resumable,
                task(2, 0),
                Outcome::TimedOut {
                    message: "1s".into(),
                },
                "timedout",
            ),
            (&resumable, task(1, 3), Outcome::Yielded, "Resume 1 4"),
            (&resumable, task(0, 9), Outcome::Yielded, "failed"),
            (&resumable, task(1, 0), lost.clone(), "Resume 1 0"),
            (&brittle, task(1, 0), lost, "lost"),
            (
                &brittle,
                task(0, 0),
                Outcome::Cancelled { by: "ops".into() },
                "cancelled",
            ),
        ];
        for (job, task, outcome, expected) in table {
            assert_eq!(
                show(&finish(job, &task, &outcome, QUIET)),
                expected,
                "{outcome:?}"
            );
        }
    }

    #[test]
    fn a_yield_with_progress_or_by_request_goes_on_at_once() {
        for met in [
            Circumstances {
                progressed: true,
                ..QUIET
            },
            Circumstances {
                asked_to_yield: true,
                ..QUIET
            },
        ] {
            let After::Again {
                due_in,
                idle_yields,
                ..
            } = finish(&job(1), &task(0, 9), &Outcome::Yielded, met)
            else {
                panic!("ended")
            };
            assert_eq!((due_in, idle_yields), (Duration::ZERO, 0));
        }
    }

    #[test]
    fn the_wait_doubles_up_to_its_limit_and_heeds_the_guest() {
        let mut job = job(99);
        job.retry.backoff = Duration::from_secs(10);
        job.retry.max_backoff = Duration::from_secs(60);
        let wait =
            |failures, after| match finish(&job, &task(failures, 0), &failed(true, after), QUIET) {
                After::Again { due_in, .. } => due_in,
                After::End { .. } => panic!("ended"),
            };
        for (failures, full) in [(0, 10), (1, 20), (2, 40), (3, 60), (90, 60)] {
            let full = Duration::from_secs(full);
            assert!(
                wait(failures, None) <= full && wait(failures, None) >= full * 4 / 5,
                "{failures}"
            );
        }
        assert_eq!(wait(0, Some(300_000)), Duration::from_secs(300));
    }

    #[test]
    fn a_run_goes_on_only_within_its_own_time() {
        let mut job = job(99);
        job.run_timeout = Some(Duration::from_secs(60));
        job.retry.backoff = Duration::from_secs(10);
        let after = |outcome: &Outcome, left| {
            let met = Circumstances {
                run_left: Some(Duration::from_secs(left)),
                ..QUIET
            };
            show(&finish(&job, &task(0, 0), outcome, met))
        };
        let lost = Outcome::Lost {
            reason: "drained".into(),
        };
        for (outcome, left, expected) in [
            (failed(true, None), 11, "Retry 1 0"),
            (failed(true, None), 7, "timedout"),
            (failed(true, Some(30_000)), 29, "timedout"),
            (failed(false, None), 7, "failed"),
            (Outcome::Yielded, 0, "timedout"),
            (lost.clone(), 0, "timedout"),
            (lost, 2, "Resume 0 0"),
        ] {
            assert_eq!(after(&outcome, left), expected, "{outcome:?} {left}");
        }
    }

    #[test]
    fn a_runs_time_counts_from_its_first_claim() {
        let mut job = job(1);
        let at = |seconds: i64| Timestamp::from_millis(seconds * 1000);
        assert_eq!(run_left(&job, Some(at(0)), at(5)), None);
        job.run_timeout = Some(Duration::from_secs(60));
        assert_eq!(run_left(&job, None, at(5)), None, "it has not begun");
        let left = |now| run_left(&job, Some(at(10)), at(now)).expect("a limit");
        assert_eq!(left(10), Duration::from_secs(60));
        assert_eq!(left(69), Duration::from_secs(1));
        assert_eq!(left(500), Duration::ZERO);
    }
}
