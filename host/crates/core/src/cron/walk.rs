//! The walk from an instant to the next firing, across the clock changes of a zone.
//!
//! The walk goes forward through the stretches of time in which the zone keeps one offset. Inside
//! a stretch local time and UTC differ by a constant, so the next local match is the next firing.
//! The rule for clock changes is applied where one stretch meets the next.
//!
//! Two facts about zones let it look at few instants. The first: two changes of a zone are never
//! closer than six days (the closest pair in the data is almost seven days apart), so comparing
//! the offsets at the two ends of [`CLEAR`] seconds shows whether there is a change between them.
//! The second: no single change moves the clock by more than a day, so nothing can fire earlier
//! than [`REACH`] seconds before the instant that today's offset predicts.

use chrono::{DateTime, NaiveDateTime, Utc};

use super::days::Days;
use super::times::Times;
use super::zone::{Change, Zone};
use super::{Firing, Shift};

const DAY: i64 = 86_400;

/// Two changes of a zone are farther apart than this; seconds.
const CLEAR: i64 = 6 * DAY;

/// More than any change moves the clock; seconds.
const REACH: i64 = 26 * 3_600;

/// Changes up to this size are the clock changes that fixed-time jobs are protected from; larger
/// ones are corrections of the calendar, and the new time simply counts. Seconds.
const CATCH_UP: i64 = 3 * 3_600;

/// 1969-12-30 and 2200-01-03: no firing lies outside, whatever the zone.
const FIRST_INSTANT: i64 = -2 * DAY;
const LAST_INSTANT: i64 = 7_258_118_400 + 2 * DAY;

/// One search for the next firing.
pub(super) struct Walk {
    pub(super) times: Times,
    pub(super) days: Days,
    pub(super) zone: Zone,
    /// The job follows the wall clock instead of being a fixed-time job.
    pub(super) follows_wall_clock: bool,
    /// How much the search had to look at: stretches of constant offset, months and local times.
    pub(super) steps: u32,
}

impl Walk {
    /// The first firing strictly after `start`.
    pub(super) fn next_after(&mut self, start: DateTime<Utc>) -> Option<Firing> {
        // The first whole second after the start, also when the start has a fraction.
        let mut at = start.timestamp().saturating_add(1).max(FIRST_INSTANT);
        while at <= LAST_INSTANT {
            self.steps += 1;
            let offset = self.zone.offset_at(at);
            let mut from = at + offset;
            if let Some(change) = self.recent_change(at) {
                if change.at == at
                    && let Some(firing) = self.caught_up(change)
                {
                    return Some(firing);
                }
                // In the second pass of an overlap the times up to here are done.
                from = from.max(change.at + change.before);
            }
            let target = self.next_local(from).map(|local| local - offset);
            let clear = at + CLEAR;
            let until = target.map_or(clear, |target| target.min(clear));
            if let Some(change) = self.zone.change_between(at, until) {
                at = change.at;
                continue;
            }
            let target = target?;
            if target <= clear {
                let note = self
                    .is_repeated_later(target, offset)
                    .then_some(Shift::FirstPass);
                return Some(Firing {
                    at: instant(target)?,
                    note,
                });
            }
            at = clear.max(target - REACH);
        }
        None
    }

    /// For fixed-time jobs, the change that still matters at `at`: a gap that ends there, or an
    /// overlap whose second pass may still run.
    fn recent_change(&self, at: i64) -> Option<Change> {
        if self.follows_wall_clock {
            return None;
        }
        self.zone
            .change_between(at - CATCH_UP, at)
            .filter(|change| change.is_caught_up())
    }

    /// The one firing that stands for all the times inside a gap, at the first instant after it.
    fn caught_up(&mut self, change: Change) -> Option<Firing> {
        let (begin, end) = (change.at + change.before, change.at + change.after);
        let first = self.next_local(begin).filter(|first| *first < end)?;
        let mut count = 1;
        let mut last = first;
        // A time at the very end of the gap falls on the same instant, so it is one of them.
        while let Some(next) = self.next_local(last + 1).filter(|next| *next <= end) {
            (count, last) = (count + 1, next);
        }
        let first = local_time(first)?;
        let note = if count == 1 {
            Shift::Moved { from: first }
        } else {
            Shift::Merged { first, count }
        };
        Some(Firing {
            at: instant(change.at)?,
            note: Some(note),
        })
    }

    /// For fixed-time jobs: will the clock show the local time of `at` a second time?
    fn is_repeated_later(&self, at: i64, offset: i64) -> bool {
        !self.follows_wall_clock
            && self
                .zone
                .change_between(at, at + CATCH_UP)
                .is_some_and(|change| {
                    change.is_caught_up() && at + offset >= change.at + change.after
                })
    }

    /// The first matching local time that is not before `from`. Local times are counted as if
    /// they were UTC: seconds since 1970-01-01T00:00:00 on the wall clock.
    fn next_local(&mut self, from: i64) -> Option<i64> {
        self.steps += 1;
        let today = from.div_euclid(DAY);
        let mut day = self.days.at_or_after(today, &mut self.steps)?;
        if day == today {
            if let Some(time) = self.times.at_or_after(from.rem_euclid(DAY)) {
                return Some(day * DAY + time);
            }
            day = self.days.at_or_after(today + 1, &mut self.steps)?;
        }
        Some(day * DAY + self.times.first())
    }
}

impl Change {
    fn is_caught_up(&self) -> bool {
        (self.after - self.before).abs() <= CATCH_UP
    }
}

fn instant(at: i64) -> Option<DateTime<Utc>> {
    DateTime::from_timestamp(at, 0)
}

fn local_time(local: i64) -> Option<NaiveDateTime> {
    instant(local).map(|instant| instant.naive_utc())
}

#[cfg(test)]
mod tests {
    use chrono_tz::TZ_VARIANTS;

    use super::*;

    /// The two facts that the walk relies on, checked on every zone of the data.
    #[test]
    fn changes_of_a_zone_lie_days_apart_and_move_the_clock_by_a_day_at_most() {
        const PROBE: i64 = DAY / 2;
        for name in TZ_VARIANTS.iter().map(|zone| zone.name()) {
            let Ok(zone) = Zone::parse(name) else {
                unreachable!("{name}")
            };
            let mut last_change = i64::MIN / 2;
            let mut before = zone.offset_at(FIRST_INSTANT);
            // Up to 2040: the rules after that repeat.
            for probe in FIRST_INSTANT / PROBE..2_208_988_800 / PROBE {
                let at = probe * PROBE;
                let after = zone.offset_at(at);
                if after != before {
                    assert!(
                        at - last_change > CLEAR + PROBE,
                        "{name}: two changes before {at}"
                    );
                    assert!(
                        (after - before).abs() < REACH,
                        "{name}: {before} to {after} at {at}"
                    );
                    last_change = at;
                }
                before = after;
            }
        }
    }
}
