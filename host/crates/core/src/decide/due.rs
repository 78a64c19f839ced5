//! Which nominal times of a job are due, and which of them run.

use std::time::Duration;

use crate::ids::JobName;
use crate::job::MisfirePolicy;
use crate::schedule::{Schedule, Trigger};
use crate::task::Reason;
use crate::time::{Timestamp, millis};
use crate::view::{Gap, JobView};

/// A firing later than this is a catch-up, and so is each of several that one look finds due: it waits for
/// an active run of its job instead of being skipped, since nobody would ask for it a second time.
pub const ON_TIME: Duration = Duration::from_secs(60);

/// Nominal times that one call looks at. What lies beyond is decided by the next call.
pub const SCAN_MAX: usize = 10_000;

/// A decision about nominal times of one job, in the order of their times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// This nominal time runs.
    Fire {
        /// The nominal time.
        nominal: Timestamp,
        /// `Scheduled`, or `CatchUp` once it is late or one of several.
        reason: Reason,
    },
    /// These nominal times do not run.
    Gap(Gap),
}

/// Decides every nominal time of a job that is due.
///
/// Empty when nothing is due or when the job's firings are held back (disabled, paused,
/// quarantined): those times get their answer when the hold ends.
#[must_use]
pub fn due(job: &JobView, now: Timestamp) -> Vec<Verdict> {
    if is_held(job) {
        return Vec::new();
    }
    let definition = &job.stored.definition;
    let grace = definition.misfire.grace;
    let schedule = &definition.schedule;
    let missed = Stretch::missed(schedule, &job.job, job.cursor, now, grace);
    let mut verdicts = Vec::new();
    let mut cursor = job.cursor;
    if let Some(stretch) = &missed {
        cursor = stretch.to;
        verdicts.push(Verdict::Gap(stretch.gap("misfire")));
        if stretch.truncated {
            return verdicts;
        }
    }
    let candidates = candidates(schedule, &job.job, cursor, now);
    let keep = match definition.misfire.policy {
        MisfirePolicy::Skip | MisfirePolicy::Once => 1,
        MisfirePolicy::All { max } => usize::try_from(max).unwrap_or(usize::MAX),
    };
    // A scan that stopped early says nothing of the latest times: answer what was seen in bulk.
    let keep = if candidates.len() == SCAN_MAX {
        0
    } else {
        keep
    };
    let (merged, fired) = candidates.split_at(candidates.len().saturating_sub(keep));
    if let (Some(first), Some(last)) = (merged.first(), merged.last()) {
        let count = merged.len() as u64;
        verdicts.push(Verdict::Gap(Gap {
            from: *first,
            to: *last,
            count,
            why: "coalesced".into(),
        }));
    }
    for nominal in fired {
        let late = now.since(schedule.due_at(&job.job, *nominal));
        // Several at once would overlap each other, and a policy that skips then skipped all but one.
        let reason = if late > ON_TIME || fired.len() > 1 {
            Reason::CatchUp
        } else {
            Reason::Scheduled
        };
        verdicts.push(Verdict::Fire {
            nominal: *nominal,
            reason,
        });
    }
    verdicts
}

/// When the next nominal time of a job is due; none if it never is or its firings are held back.
#[must_use]
pub fn next_due(job: &JobView) -> Option<Timestamp> {
    if is_held(job) {
        return None;
    }
    let schedule = &job.stored.definition.schedule;
    let nominal = schedule.next_after(job.cursor)?;
    Some(schedule.due_at(&job.job, nominal))
}

/// Whether the job's firings wait for a person.
#[must_use]
pub fn is_held(job: &JobView) -> bool {
    !job.stored.definition.enabled || job.paused.is_some() || job.quarantined.is_some()
}

fn candidates(
    schedule: &Schedule,
    job: &JobName,
    cursor: Timestamp,
    now: Timestamp,
) -> Vec<Timestamp> {
    let mut found = Vec::new();
    let mut at = cursor;
    while found.len() < SCAN_MAX {
        match schedule.next_after(at) {
            Some(nominal) if schedule.due_at(job, nominal) <= now => {
                found.push(nominal);
                at = nominal;
            }
            _ => break,
        }
    }
    found
}

/// A run of nominal times, counted and not listed.
struct Stretch {
    from: Timestamp,
    to: Timestamp,
    count: u64,
    truncated: bool,
}

impl Stretch {
    fn gap(&self, why: &str) -> Gap {
        Gap {
            from: self.from,
            to: self.to,
            count: self.count,
            why: why.into(),
        }
    }

    /// The nominal times after the cursor that are later than the grace allows.
    fn missed(
        schedule: &Schedule,
        job: &JobName,
        cursor: Timestamp,
        now: Timestamp,
        grace: Duration,
    ) -> Option<Stretch> {
        let limit = now - grace;
        let from = schedule
            .next_after(cursor)
            .filter(|first| schedule.due_at(job, *first) < limit)?;
        let mut stretch = Stretch {
            from,
            to: from,
            count: 1,
            truncated: false,
        };
        if let Trigger::Every { period } = &schedule.trigger {
            stretch.skip_periods(schedule, limit, millis(*period).max(1));
        }
        for _ in 0..SCAN_MAX {
            match schedule.next_after(stretch.to) {
                Some(nominal) if schedule.due_at(job, nominal) < limit => {
                    stretch.to = nominal;
                    stretch.count += 1;
                }
                _ => return Some(stretch),
            }
        }
        stretch.truncated = true;
        Some(stretch)
    }

    /// A fixed period needs no walk over what may be millions of times: jump close to the limit and
    /// leave the rest, where jitter and the end of the schedule matter, to the walk.
    fn skip_periods(&mut self, schedule: &Schedule, limit: Timestamp, step: i64) {
        let end = schedule.ends.map_or(limit, |ends| ends.min(limit)) - schedule.jitter;
        let periods = (end.as_millis() - self.from.as_millis()) / step - 1;
        if let Ok(skipped @ 1..) = u64::try_from(periods) {
            self.to = Timestamp::from_millis(self.from.as_millis() + periods * step);
            self.count += skipped;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::agenda::testing::job_view;
    use crate::job::Misfire;

    fn at(text: &str) -> Timestamp {
        format!("2026-11-29T{text}Z").parse().expect("time")
    }

    fn fired(verdicts: &[Verdict]) -> Vec<String> {
        let show = |verdict: &Verdict| match verdict {
            Verdict::Fire { nominal, reason } => format!("{nominal} {reason:?}"),
            Verdict::Gap(gap) => format!("{}..{} {} {}", gap.from, gap.to, gap.count, gap.why),
        };
        verdicts
            .iter()
            .map(|v| show(v).replace("2026-11-29T", ""))
            .collect()
    }

    #[test]
    fn c20_a_late_look_fires_once_with_the_nominal_time() {
        let job = job_view("a", "0 2 * * *", at("01:00:00"));
        for late in ["02:00:00", "02:00:01.200", "02:00:45"] {
            assert_eq!(
                fired(&due(&job, at(late))),
                ["02:00:00Z Scheduled"],
                "{late}"
            );
        }
        assert_eq!(fired(&due(&job, at("02:05:00"))), ["02:00:00Z CatchUp"]);
        assert_eq!(
            fired(&due(&job, at("04:10:00"))),
            ["02:00:00Z..02:00:00Z 1 misfire"]
        );
        assert!(due(&job, at("01:59:59.999")).is_empty());
    }

    #[test]
    fn once_runs_the_latest_and_merges_the_earlier() {
        let job = job_view("a", "* * * * *", at("01:00:00"));
        assert_eq!(
            fired(&due(&job, at("01:20:30"))),
            [
                "01:01:00Z..01:10:00Z 10 misfire",
                "01:11:00Z..01:19:00Z 9 coalesced",
                "01:20:00Z Scheduled"
            ]
        );
    }

    #[test]
    fn all_runs_the_latest_in_order() {
        let mut job = job_view("a", "* * * * *", at("01:00:00"));
        job.stored.definition.misfire = Misfire {
            policy: MisfirePolicy::All { max: 2 },
            grace: Duration::from_secs(600),
        };
        assert_eq!(
            fired(&due(&job, at("01:04:10"))),
            [
                "01:01:00Z..01:02:00Z 2 coalesced",
                "01:03:00Z CatchUp",
                "01:04:00Z CatchUp"
            ]
        );
        // After a short outage, too: none of them is skipped for another.
        job.cursor = at("01:04:00");
        job.stored.definition.schedule.trigger = Trigger::Every {
            period: Duration::from_secs(2),
        };
        assert_eq!(
            fired(&due(&job, at("01:04:04"))),
            ["01:04:02Z CatchUp", "01:04:04Z CatchUp"]
        );
        assert_eq!(fired(&due(&job, at("01:04:03"))), ["01:04:02Z Scheduled"]);
    }

    #[test]
    fn skip_runs_what_is_within_its_grace_only() {
        let mut job = job_view("a", "0 * * * *", at("01:00:00"));
        job.stored.definition.misfire = Misfire {
            policy: MisfirePolicy::Skip,
            grace: Duration::from_secs(60),
        };
        assert_eq!(fired(&due(&job, at("02:00:50"))), ["02:00:00Z Scheduled"]);
        assert_eq!(
            fired(&due(&job, at("02:01:01"))),
            ["02:00:00Z..02:00:00Z 1 misfire"]
        );
    }

    #[test]
    fn a_held_job_decides_nothing() {
        let mut job = job_view("a", "* * * * *", at("01:00:00"));
        job.stored.definition.enabled = false;
        assert!(due(&job, at("05:00:00")).is_empty());
        assert_eq!(next_due(&job), None);
    }

    #[test]
    fn a_short_period_after_a_long_gap_costs_no_walk() {
        let mut job = job_view("a", "* * * * *", at("01:00:00"));
        job.stored.definition.schedule.trigger = Trigger::Every {
            period: Duration::from_millis(100),
        };
        let now = job.cursor + Duration::from_secs(86_400 * 30);
        let verdicts = due(&job, now);
        let Some(Verdict::Gap(gap)) = verdicts.first() else {
            panic!("{verdicts:?}")
        };
        assert_eq!(gap.from, job.cursor + Duration::from_millis(100));
        let span = gap.to.since(job.cursor).as_millis();
        assert_eq!(u128::from(gap.count), span / 100);
        assert!(now.since(gap.to) >= Duration::from_secs(600));
        assert!(now.since(gap.to) <= Duration::from_secs(601));
    }

    #[test]
    fn every_nominal_time_has_exactly_one_answer() {
        // The long gap needs several calls; together they answer each minute once.
        let mut job = job_view("a", "* * * * *", at("01:00:00"));
        let now = job.cursor + Duration::from_secs(60 * 25_000 + 5);
        let mut answered = 0;
        for _ in 0..10 {
            for verdict in due(&job, now) {
                let (to, count) = match verdict {
                    Verdict::Fire { nominal, .. } => (nominal, 1),
                    Verdict::Gap(gap) => (gap.to, gap.count),
                };
                answered += count;
                job.cursor = to;
            }
        }
        assert_eq!(answered, 25_000);
        assert!(due(&job, now).is_empty());
    }
}
