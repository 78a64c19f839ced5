//! When a job fires: cron in a zone, a fixed period, or only by hand.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::cron::{Cron, Zone};
use crate::ids::JobName;
use crate::job::duration_ms;
use crate::time::{Timestamp, millis};

/// When a job fires.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
    /// What makes nominal times.
    pub trigger: Trigger,
    /// No nominal time before this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starts: Option<Timestamp>,
    /// No nominal time after this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends: Option<Timestamp>,
    /// The most by which a firing is put off after its nominal time.
    #[serde(with = "duration_ms")]
    pub jitter: Duration,
}

/// What makes nominal times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Trigger {
    /// A cron expression in a zone.
    Cron {
        /// The expression.
        expression: Cron,
        /// The zone its fields are read in.
        timezone: Zone,
    },
    /// Every so often, aligned to the epoch, so that all pods agree.
    Every {
        /// The period; at least [`MIN_PERIOD`].
        #[serde(with = "duration_ms")]
        period: Duration,
    },
    /// Only by hand.
    Manual,
}

/// The shortest period of a job.
pub const MIN_PERIOD: Duration = Duration::from_millis(100);

impl Schedule {
    /// The first nominal time strictly after `after`, if there is one.
    #[must_use]
    pub fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        // `starts` itself may be a nominal time, so the search begins a millisecond before it.
        let floor = self
            .starts
            .map_or(after, |starts| after.max(starts - Duration::from_millis(1)));
        let next = match &self.trigger {
            Trigger::Cron {
                expression,
                timezone,
            } => Timestamp::from(expression.next_after(floor.to_datetime(), *timezone)?.at),
            Trigger::Every { period } => {
                let step = millis(*period).max(1);
                Timestamp::from_millis((floor.as_millis() / step + 1).checked_mul(step)?)
            }
            Trigger::Manual => return None,
        };
        let within = next > after && self.ends.is_none_or(|ends| next <= ends);
        within.then_some(next)
    }

    /// When the firing of a nominal time is due: put off by a share of the jitter that depends on
    /// nothing but the job and the time, so that every pod computes the same.
    #[must_use]
    pub fn due_at(&self, job: &JobName, nominal: Timestamp) -> Timestamp {
        let jitter = u64::try_from(millis(self.jitter)).unwrap_or(0);
        if jitter == 0 {
            return nominal;
        }
        let hash = Sha256::digest(format!("{job}@{}", nominal.as_millis()));
        let word = hash
            .iter()
            .take(8)
            .fold(0_u64, |word, byte| word << 8 | u64::from(*byte));
        nominal + Duration::from_millis(word % (jitter + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every(period: Duration) -> Schedule {
        Schedule {
            trigger: Trigger::Every { period },
            starts: None,
            ends: None,
            jitter: Duration::ZERO,
        }
    }

    #[test]
    fn a_period_is_aligned_to_the_epoch() {
        let schedule = every(Duration::from_secs(300));
        let after: Timestamp = "2026-11-29T01:02:03.004Z".parse().expect("time");
        assert_eq!(
            schedule.next_after(after).expect("next").to_string(),
            "2026-11-29T01:05:00Z"
        );
    }

    #[test]
    fn starts_and_ends_bound_the_nominal_times_inclusively() {
        let at = |text: &str| text.parse::<Timestamp>().expect("time");
        let mut schedule = every(Duration::from_secs(60));
        schedule.starts = Some(at("2026-01-01T00:00:00Z"));
        schedule.ends = Some(at("2026-01-01T00:01:00Z"));
        assert_eq!(schedule.next_after(Timestamp::EPOCH), schedule.starts);
        assert_eq!(
            schedule.next_after(at("2026-01-01T00:00:00Z")),
            schedule.ends
        );
        assert_eq!(schedule.next_after(at("2026-01-01T00:01:00Z")), None);
    }

    #[test]
    fn jitter_is_the_same_everywhere_and_bounded() {
        let job = JobName::new("sync").expect("name");
        let mut schedule = every(Duration::from_secs(60));
        schedule.jitter = Duration::from_secs(5);
        let nominal = Timestamp::from_millis(60_000);
        let due = schedule.due_at(&job, nominal);
        assert_eq!(due, schedule.due_at(&job, nominal));
        assert!(due >= nominal && due <= nominal + schedule.jitter);
    }
}
