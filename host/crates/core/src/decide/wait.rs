//! How long a run waits for a pod.

use std::time::Duration;

use crate::job::Definition;
use crate::run::RunState;
use crate::task::{Reason, Task};
use crate::time::Timestamp;

use super::finish::{over, run_left};

/// How a run that waits for a pod is given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GiveUp {
    /// `TimedOut`, or `Skipped` for a firing that never began.
    pub state: RunState,
    /// Why, for people.
    pub why: String,
}

/// Whether a due run is past its own time-out. `began`: when its first attempt was claimed.
#[must_use]
pub fn out_of_time(job: &Definition, began: Option<Timestamp>, now: Timestamp) -> Option<GiveUp> {
    let left = run_left(job, began, now)?;
    let limit = job.run_timeout?;
    left.is_zero().then(|| GiveUp {
        state: RunState::TimedOut,
        why: over(limit),
    })
}

/// Whether a due run has waited for a pod for too long. A firing that has not begun is given up like
/// one that was never published: after the grace of its job's misfire policy. What somebody asked for,
/// and what has begun, goes on waiting. `waited`: since the first look that found no pod for it.
#[must_use]
pub fn no_pod(job: &Definition, task: &Task, waited: Duration, why: &str) -> Option<GiveUp> {
    let firing = matches!(task.reason, Reason::Scheduled | Reason::CatchUp) && !task.has_begun();
    let grace = job.misfire.grace;
    (firing && waited >= grace).then(|| GiveUp {
        state: RunState::Skipped,
        why: format!(
            "misfire: no pod took it within misfire.grace of {}: {why}",
            humantime::format_duration(grace)
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::agenda::testing::definition;
    use crate::ids::RunId;

    fn task(reason: Reason, attempt: u32) -> Task {
        let run = RunId::nominal(&"job".parse().expect("name"), Timestamp::EPOCH);
        let mut task = Task::first(run, Timestamp::EPOCH, reason, "{}".into());
        task.attempt = attempt;
        task
    }

    #[test]
    fn a_firing_waits_for_a_pod_up_to_its_grace() {
        let job = definition("@daily");
        let state = |reason, attempt, seconds| {
            let waited = Duration::from_secs(seconds);
            no_pod(&job, &task(reason, attempt), waited, "no live pod").map(|it| it.state)
        };
        assert_eq!(state(Reason::Scheduled, 1, 599), None);
        assert_eq!(state(Reason::Scheduled, 1, 600), Some(RunState::Skipped));
        assert_eq!(state(Reason::CatchUp, 1, 600), Some(RunState::Skipped));
        for (reason, attempt) in [
            (Reason::Manual, 1),
            (Reason::Backfill, 1),
            (Reason::Scheduled, 2),
            (Reason::Retry, 2),
        ] {
            assert_eq!(state(reason, attempt, 86_400), None, "{reason:?}");
        }
    }

    #[test]
    fn a_run_out_of_time_is_not_begun_again() {
        let mut job = definition("@daily");
        let at = |seconds: i64| Timestamp::from_millis(seconds * 1000);
        assert_eq!(out_of_time(&job, Some(at(0)), at(1_000_000)), None);
        job.run_timeout = Some(Duration::from_secs(60));
        assert_eq!(out_of_time(&job, None, at(1_000)), None);
        assert_eq!(out_of_time(&job, Some(at(0)), at(59)), None);
        let given_up = out_of_time(&job, Some(at(0)), at(60)).expect("it is over");
        assert_eq!(given_up.state, RunState::TimedOut);
        assert!(
            given_up.why.contains("run_timeout of 1m"),
            "{}",
            given_up.why
        );
    }
}
