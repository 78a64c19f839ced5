//! What stands still, and what to do about it.
//!
//! Two anomalies exist. *ScheduledTooLong*: a run sits in the queue of a pod that is gone, was
//! restarted, or does not get to it. *LockMissingButInRunning*: a run executes by the register, but
//! its lock ran out or belongs to another attempt, so its pod is dead or frozen.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::ids::{Delivery, Fence, PodAddress, RunId};
use crate::job::Definition;
use crate::time::Timestamp;
use crate::view::{LockHolder, Pod, RunningEntry, ScheduledEntry, Successes};

/// Actions of one scan at most; the rest is found by the next.
pub const ACTIONS_MAX: usize = 200;

/// The limits of recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoverPolicy {
    /// How old the last heartbeat of a live pod may be.
    pub active_window: Duration,
    /// How long a task may wait in a live pod's queue.
    pub scheduled_too_long: Duration,
    /// How long a restarted pod has to find the tasks of its dead self.
    pub session_grace: Duration,
    /// How often a run may lose its pod before it is taken for the cause.
    pub max_recoveries: u32,
    /// A job that is not resumable is run again only if its successes are at most this long on average.
    pub auto_rerun_max_average: Duration,
}

/// How an entry was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeenAs {
    /// In a queue.
    Scheduled(Delivery),
    /// Executing.
    Running(Fence),
}

/// What to do about one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recover {
    /// The run.
    pub run: RunId,
    /// How it was seen.
    pub seen: SeenAs,
    /// What to do.
    pub action: Action,
}

/// Send it on, or give it up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// To another pod, for this reason; counted as a recovery or not.
    Republish {
        /// Why, for people.
        why: String,
        /// Whether it counts towards `max_recoveries`.
        counted: bool,
    },
    /// It cannot go on, for this reason; the job's firings are held back or not.
    Lose {
        /// Why, for people.
        why: String,
        /// Whether an operator has to release the job.
        quarantine: bool,
    },
}

/// What is known of a run's job and past.
#[derive(Clone, Copy, Debug)]
pub struct Past<'a> {
    /// The stored definition; none once the job was retired.
    pub definition: Option<&'a Definition>,
    /// Its successful runs.
    pub successes: Successes,
    /// How often the run lost its pod in the current window.
    pub recoveries: u32,
}

/// Looks at a run in a queue. None: all is well, or its pod still has time.
#[must_use]
pub fn scheduled(
    entry: &ScheduledEntry,
    pods: &BTreeMap<PodAddress, Pod>,
    recoveries: u32,
    now: Timestamp,
    policy: &RecoverPolicy,
) -> Option<Recover> {
    let age = now.since(entry.published_at);
    let (why, counted) = match pods.get(&entry.pod) {
        None => (format!("pod {} is gone", entry.pod), true),
        Some(pod) if pod.load.draining || pod.heartbeat.is_none() => {
            (format!("pod {} left", entry.pod), false)
        }
        Some(pod) if !pod.is_active(now, policy.active_window) => {
            (format!("pod {} is silent", entry.pod), true)
        }
        Some(pod)
            if pod.session.as_ref() != Some(&entry.session) && age >= policy.session_grace =>
        {
            (format!("pod {} was restarted", entry.pod), true)
        }
        Some(_) if age >= policy.scheduled_too_long => (
            format!(
                "scheduled too long: {} s in the queue of {}",
                age.as_secs(),
                entry.pod
            ),
            false,
        ),
        Some(_) => return None,
    };
    let action = if counted && recoveries >= policy.max_recoveries {
        poisoned(recoveries, &why)
    } else {
        Action::Republish { why, counted }
    };
    Some(Recover {
        run: entry.task.run.clone(),
        seen: SeenAs::Scheduled(entry.delivery),
        action,
    })
}

/// Looks at a run that executes. None while its own lock is held.
#[must_use]
pub fn running(
    entry: &RunningEntry,
    lock: Option<&LockHolder>,
    past: Past<'_>,
    policy: &RecoverPolicy,
) -> Option<Recover> {
    if lock.is_some_and(|lock| lock.fence == entry.fence) {
        return None;
    }
    let missing = format!(
        "lock missing but in running: pod {} stopped extending attempt {}",
        entry.pod, entry.task.attempt
    );
    let action = if let Some(by) = &entry.cancel {
        // Whoever asked for its end gets it: a cancelled run is not started again.
        Action::Lose {
            why: format!("{missing}; its end was asked for by {by}"),
            quarantine: false,
        }
    } else if past.recoveries >= policy.max_recoveries {
        poisoned(past.recoveries, &missing)
    } else {
        match past.definition {
            None => Action::Lose {
                why: format!("{missing}; the job is no longer defined"),
                quarantine: false,
            },
            Some(job) if job.resumable => Action::Republish {
                why: missing,
                counted: true,
            },
            Some(job) => rerun(job, past.successes, missing, policy),
        }
    };
    Some(Recover {
        run: entry.task.run.clone(),
        seen: SeenAs::Running(entry.fence),
        action,
    })
}

/// A run that cannot resume starts again from nothing only where that was asked for and is cheap.
///
/// # Errors
/// Why it does not, for people.
pub fn may_rerun(
    job: &Definition,
    successes: Successes,
    max_average: Duration,
) -> Result<(), String> {
    if !job.auto_rerun {
        Err("the job is neither resumable nor auto_rerun".into())
    } else if successes.count == 0 {
        Err("no run of it succeeded yet, so its length is unknown".into())
    } else if successes.average > max_average {
        let (found, limit) = (successes.average.as_secs(), max_average.as_secs());
        Err(format!(
            "its runs take {found} s on average, the limit is {limit} s"
        ))
    } else {
        Ok(())
    }
}

fn rerun(
    job: &Definition,
    successes: Successes,
    missing: String,
    policy: &RecoverPolicy,
) -> Action {
    match may_rerun(job, successes, policy.auto_rerun_max_average) {
        Ok(()) => Action::Republish {
            why: missing,
            counted: true,
        },
        Err(because) => Action::Lose {
            why: format!("{missing}; not run again: {because}"),
            quarantine: false,
        },
    }
}

fn poisoned(recoveries: u32, why: &str) -> Action {
    Action::Lose {
        why: format!("{why}; given up after {recoveries} recoveries, the job is quarantined"),
        quarantine: true,
    }
}

/// When to look again: at the earliest moment at which a lock that is held may run out, or after
/// `limit`.
#[must_use]
pub fn next_look(locks: &[Option<LockHolder>], limit: Duration) -> Duration {
    let earliest = locks
        .iter()
        .flatten()
        .map(|lock| lock.expires_in + Duration::from_millis(5))
        .min();
    earliest.map_or(limit, |wait| wait.clamp(Duration::from_millis(20), limit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::agenda::testing::definition;
    use crate::decide::publish::testing::{pod, session};
    use crate::ids::PodRef;
    use crate::task::{Reason, Task};

    const POLICY: RecoverPolicy = RecoverPolicy {
        active_window: Duration::from_secs(8),
        scheduled_too_long: Duration::from_secs(300),
        session_grace: Duration::from_secs(2),
        max_recoveries: 3,
        auto_rerun_max_average: Duration::from_secs(600),
    };

    fn now() -> Timestamp {
        Timestamp::from_millis(10_000_000)
    }

    fn task() -> Task {
        let run = RunId::nominal(&"job".parse().expect("name"), Timestamp::EPOCH);
        Task::first(run, Timestamp::EPOCH, Reason::Scheduled, "{}".into())
    }

    fn in_queue(age: u64) -> ScheduledEntry {
        ScheduledEntry {
            task: task(),
            pod: PodAddress::new("a").expect("address"),
            session: session(1),
            delivery: Delivery(7),
            published_at: now() - Duration::from_secs(age),
        }
    }

    fn executing() -> RunningEntry {
        RunningEntry {
            task: task(),
            pod: PodAddress::new("a").expect("address"),
            session: session(1),
            fence: Fence(5),
            claimed_at: now(),
            ends_by: now() + Duration::from_secs(60),
            cancel: None,
            progress: None,
        }
    }

    fn lock(fence: u64) -> LockHolder {
        LockHolder {
            pod: PodRef {
                address: PodAddress::new("a").expect("address"),
                session: session(1),
            },
            run: task().run,
            fence: Fence(fence),
            expires_in: Duration::from_secs(3),
        }
    }

    fn show(recover: Option<Recover>) -> &'static str {
        match recover.map(|recover| recover.action) {
            None => "leave",
            Some(Action::Republish { counted: true, .. }) => "republish, counted",
            Some(Action::Republish { .. }) => "republish",
            Some(Action::Lose {
                quarantine: true, ..
            }) => "quarantine",
            Some(Action::Lose { .. }) => "lose",
        }
    }

    #[test]
    fn a_table_of_scheduled_runs() {
        let live = pod("a", now());
        let silent = pod("a", now() - Duration::from_secs(9));
        let mut left = pod("a", now());
        left.heartbeat = None;
        let mut restarted = pod("a", now());
        restarted.session = Some(session(2));
        let table = [
            (Some(&live), 1, 0, "leave"),
            (Some(&live), 300, 3, "republish"),
            (Some(&silent), 0, 0, "republish, counted"),
            (Some(&silent), 0, 3, "quarantine"),
            (Some(&left), 0, 3, "republish"),
            (Some(&restarted), 1, 0, "leave"),
            (Some(&restarted), 2, 0, "republish, counted"),
            (None, 0, 0, "republish, counted"),
        ];
        for (pod, age, recoveries, expected) in table {
            let pods = pod
                .map(|pod| (pod.address.clone(), pod.clone()))
                .into_iter()
                .collect();
            assert_eq!(
                show(scheduled(&in_queue(age), &pods, recoveries, now(), &POLICY)),
                expected,
                "{pod:?} {age}"
            );
        }
    }

    #[test]
    fn a_table_of_running_runs() {
        let resumable = definition("@daily");
        let mut brittle = definition("@daily");
        brittle.resumable = false;
        let mut rerun = brittle.clone();
        rerun.auto_rerun = true;
        let long = Successes {
            count: 3,
            average: Duration::from_secs(601),
        };
        let short = Successes {
            count: 3,
            average: Duration::from_secs(600),
        };
        let none = Successes::default();
        let table = [
            (Some(5), Some(&resumable), none, 0, "leave"),
            (Some(6), Some(&resumable), none, 0, "republish, counted"),
            (None, Some(&resumable), none, 2, "republish, counted"),
            (None, Some(&resumable), none, 3, "quarantine"),
            (None, Some(&brittle), short, 0, "lose"),
            (None, Some(&rerun), short, 0, "republish, counted"),
            (None, Some(&rerun), long, 0, "lose"),
            (None, Some(&rerun), none, 0, "lose"),
            (None, None, none, 0, "lose"),
        ];
        for (fence, definition, successes, recoveries, expected) in table {
            let holder = fence.map(lock);
            let past = Past {
                definition,
                successes,
                recoveries,
            };
            assert_eq!(
                show(running(&executing(), holder.as_ref(), past, &POLICY)),
                expected,
                "{fence:?}"
            );
        }
    }

    #[test]
    fn a_cancelled_run_is_not_started_again() {
        let resumable = definition("@daily");
        let mut entry = executing();
        entry.cancel = Some("ops".into());
        let past = Past {
            definition: Some(&resumable),
            successes: Successes::default(),
            recoveries: 0,
        };
        assert_eq!(show(running(&entry, None, past, &POLICY)), "lose");
    }

    #[test]
    fn the_next_look_is_at_the_earliest_expiry() {
        let limit = Duration::from_secs(1);
        assert_eq!(next_look(&[], limit), limit);
        let mut soon = lock(5);
        soon.expires_in = Duration::from_millis(200);
        assert_eq!(
            next_look(&[None, Some(lock(5)), Some(soon)], limit),
            Duration::from_millis(205)
        );
    }
}
