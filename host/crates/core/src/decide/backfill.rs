//! Which nominal times of the past a backfill makes runs of.

use crate::schedule::{Schedule, Trigger};
use crate::time::Timestamp;

/// A stretch of the past that somebody asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The first nominal time (inclusive).
    pub from: Timestamp,
    /// The last (inclusive).
    pub to: Timestamp,
    /// How many runs at most.
    pub max: usize,
}

/// Why a backfill is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Nothing says which times there are.
    #[error("the job has no schedule, so nothing says which times to fill; use `job trigger`")]
    NoSchedule,
    /// The stretch ends before it begins.
    #[error("--to ({to}) lies before --from ({from})")]
    Backwards {
        /// Its first time.
        from: Timestamp,
        /// Its last.
        to: Timestamp,
    },
    /// The schedule itself fires times of the future.
    #[error("--to ({to}) lies in the future; the schedule fires those times itself")]
    Future {
        /// Its last time.
        to: Timestamp,
    },
    /// More than anybody may have meant.
    #[error("more than {max} firings lie between --from and --to; narrow them or raise --max")]
    TooMany {
        /// The limit.
        max: usize,
    },
}

/// The nominal times of a stretch in their order, as far as the schedule is decided: what lies after
/// `cursor` is fired by the schedule itself.
///
/// # Errors
/// When the stretch makes no sense, or holds more times than it may.
pub fn plan(
    schedule: &Schedule,
    stretch: Stretch,
    cursor: Timestamp,
    now: Timestamp,
) -> Result<Vec<Timestamp>, Refusal> {
    let Stretch { from, to, max } = stretch;
    if schedule.trigger == Trigger::Manual {
        return Err(Refusal::NoSchedule);
    }
    if to < from {
        return Err(Refusal::Backwards { from, to });
    }
    if to > now {
        return Err(Refusal::Future { to });
    }
    let until = to.min(cursor);
    let before = from - std::time::Duration::from_millis(1);
    let times = std::iter::successors(schedule.next_after(before), |at| schedule.next_after(*at));
    let found: Vec<Timestamp> = times
        .take_while(|at| *at <= until)
        .take(max.saturating_add(1))
        .collect();
    if found.len() > max {
        return Err(Refusal::TooMany { max });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::agenda::testing::definition;

    fn at(text: &str) -> Timestamp {
        format!("2026-11-29T{text}Z").parse().expect("time")
    }

    fn hours(from: &str, to: &str, max: usize) -> Result<Vec<String>, Refusal> {
        let schedule = definition("0 * * * *").schedule;
        let stretch = Stretch {
            from: at(from),
            to: at(to),
            max,
        };
        let (cursor, now) = (at("06:30:00"), at("07:15:00"));
        let times = plan(&schedule, stretch, cursor, now)?;
        Ok(times
            .iter()
            .map(|at| at.to_string()[11..16].into())
            .collect())
    }

    #[test]
    fn both_ends_belong_to_it() {
        let planned = hours("02:00:00", "04:00:00", 10);
        assert_eq!(planned.expect("a plan"), ["02:00", "03:00", "04:00"]);
        assert_eq!(hours("02:00:01", "02:59:59", 10).expect("none"), [""; 0]);
    }

    #[test]
    fn what_the_schedule_fires_itself_is_left_to_it() {
        let planned = hours("05:30:00", "07:15:00", 10);
        assert_eq!(planned.expect("a plan"), ["06:00"], "07:00 is not decided");
        let future = Refusal::Future { to: at("08:00:00") };
        assert_eq!(hours("05:00:00", "08:00:00", 10), Err(future));
    }

    #[test]
    fn it_is_bounded_and_makes_sense() {
        assert_eq!(
            hours("01:00:00", "06:00:00", 5),
            Err(Refusal::TooMany { max: 5 })
        );
        assert_eq!(hours("01:00:00", "06:00:00", 6).expect("a plan").len(), 6);
        assert!(matches!(
            hours("02:00:00", "01:00:00", 5),
            Err(Refusal::Backwards { .. })
        ));
        let mut schedule = definition("@daily").schedule;
        schedule.trigger = Trigger::Manual;
        let stretch = Stretch {
            from: at("01:00:00"),
            to: at("02:00:00"),
            max: 1,
        };
        let answer = plan(&schedule, stretch, at("03:00:00"), at("03:00:00"));
        assert_eq!(answer, Err(Refusal::NoSchedule));
    }
}
