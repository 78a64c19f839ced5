//! The dates on which a schedule fires.
//!
//! A month has one of 28 shapes (four lengths, seven weekdays for its first day), so the days of
//! a month are found as one 32-bit mask and the search steps month by month, skipping the months
//! and years that the expression excludes. The whole calendar from 1970 to 2199 is 2,760 months:
//! that bounds every search, also one for a date that never comes.

use std::fmt;

use chrono::{Datelike, NaiveDate};

use super::FIRST_YEAR;
use super::field::Special;
use super::times::next_bit;

/// Days from 1 January of year 1 (which is day 1) to 1 January 1970.
const EPOCH_FROM_CE: i64 = 719_163;

/// How the two day fields combine: Debian cron's rule. What counts is whether the text of either
/// begins with `*` (or is `?`), not how many days it covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DayRule {
    /// A day must be in both: at least one of the fields begins with `*` or is `?`.
    Both,
    /// A day in either will do: both fields are restricted.
    Either,
}

impl fmt::Display for DayRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Both => "a day must be in both day fields, since one begins with `*`",
            Self::Either => "a day in either day field will do, since neither begins with `*`",
        })
    }
}

/// The years of a schedule, as bits counted from [`FIRST_YEAR`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Years([u64; 4]);

impl Years {
    pub(super) const EMPTY: Self = Self([0; 4]);

    pub(super) fn insert(&mut self, year: u32) {
        if let Some(bit) = year.checked_sub(FIRST_YEAR)
            && let Some(word) = self.0.get_mut((bit / 64) as usize)
        {
            *word |= 1 << (bit % 64);
        }
    }

    /// The first year of the set that is not before `from`.
    fn at_or_after(self, from: u32) -> Option<u32> {
        let from = from.saturating_sub(FIRST_YEAR);
        (0u32..).zip(self.0).find_map(|(index, word)| {
            let base = index * 64;
            next_bit(word, from.saturating_sub(base)).map(|bit| FIRST_YEAR + base + bit)
        })
    }
}

/// The day-of-month field. Bit n stands for the day n.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct MonthDays {
    pub(super) days: u32,
    /// Bit n: the day that lies n days before the last (`L` is n = 0).
    before_last: u32,
    /// Bit n: the weekday nearest to day n.
    nearest: u32,
    last_weekday: bool,
}

/// The day-of-week field. Bit 0 stands for Sunday.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct WeekDays {
    pub(super) days: u32,
    /// For each n from 1 to 5: the weekdays whose n-th occurrence counts.
    nth: [u32; 5],
    /// The weekdays whose last occurrence counts.
    last: u32,
}

/// All the fields that choose dates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Days {
    pub(super) years: Years,
    /// Bit n stands for month n, from 1 to 12.
    pub(super) months: u64,
    pub(super) month_days: MonthDays,
    pub(super) week_days: WeekDays,
    pub(super) rule: DayRule,
}

/// The length of a month and the weekday (Sunday is 0) of its first day.
#[derive(Clone, Copy)]
struct Shape {
    length: u32,
    first_weekday: u32,
}

impl Shape {
    fn of(year: u32, month: u32) -> Option<Self> {
        let first = NaiveDate::from_ymd_opt(i32::try_from(year).ok()?, month, 1)?;
        let length = match month {
            2 if first.leap_year() => 29,
            2 => 28,
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        };
        Some(Self {
            length,
            first_weekday: first.weekday().num_days_from_sunday(),
        })
    }

    /// Bits 1 to `length`.
    fn all_days(self) -> u32 {
        (u32::MAX >> (31 - self.length)) & !1
    }

    /// Sunday is 0.
    fn weekday(self, day: u32) -> u32 {
        (self.first_weekday + day + 6) % 7
    }

    /// The first day of the month that is this weekday, from 1 to 7.
    fn first(self, weekday: u32) -> u32 {
        1 + (weekday + 7 - self.first_weekday) % 7
    }

    /// The Monday-to-Friday day nearest to `day` without leaving the month; `None` when the month
    /// has no such day (never the month's end instead: that would be another date).
    fn nearest_weekday(self, day: u32) -> Option<u32> {
        if day > self.length {
            return None;
        }
        Some(match self.weekday(day) {
            6 if day == 1 => 3,
            6 => day - 1,
            0 if day == self.length => day - 2,
            0 => day + 1,
            _ => day,
        })
    }
}

/// Members of a small set, lowest first.
fn bits(mut set: u32) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let bit = set.trailing_zeros();
        set &= set.wrapping_sub(1);
        (bit < 32).then_some(bit)
    })
}

impl MonthDays {
    pub(super) fn add(&mut self, special: Special) {
        match special {
            Special::DaysBeforeLast(days) => self.before_last |= 1 << days.min(31),
            Special::NearestWeekday(day) => self.nearest |= 1 << day.min(31),
            Special::LastWeekday => self.last_weekday = true,
            Special::Nth { .. } | Special::LastOf { .. } => {}
        }
    }

    fn mask(&self, shape: Shape) -> u32 {
        let mut mask = self.days;
        for days in bits(self.before_last) {
            mask |= shape.length.checked_sub(days).map_or(0, |day| 1 << day);
        }
        for day in bits(self.nearest) {
            mask |= shape.nearest_weekday(day).map_or(0, |day| 1 << day);
        }
        if self.last_weekday {
            mask |= shape
                .nearest_weekday(shape.length)
                .map_or(0, |day| 1 << day);
        }
        mask & shape.all_days()
    }
}

impl WeekDays {
    pub(super) fn add(&mut self, special: Special) {
        match special {
            Special::Nth { weekday, n } => {
                if let Some(days) = self.nth.get_mut(n.saturating_sub(1) as usize) {
                    *days |= 1 << weekday.min(31);
                }
            }
            Special::LastOf { weekday } => self.last |= 1 << weekday.min(31),
            Special::DaysBeforeLast(_) | Special::NearestWeekday(_) | Special::LastWeekday => {}
        }
    }

    fn mask(&self, shape: Shape) -> u32 {
        const EVERY_WEEK: u32 = 1 | 1 << 7 | 1 << 14 | 1 << 21 | 1 << 28;
        let mut mask = 0;
        for weekday in bits(self.days) {
            mask |= EVERY_WEEK << shape.first(weekday);
        }
        for (week, days) in (0u32..).zip(self.nth) {
            // The fifth such day may lie beyond the month, even beyond the word.
            for weekday in bits(days) {
                mask |= 1u32
                    .checked_shl(shape.first(weekday) + week * 7)
                    .unwrap_or(0);
            }
        }
        for weekday in bits(self.last) {
            let first = shape.first(weekday);
            mask |= 1
                << if first + 28 <= shape.length {
                    first + 28
                } else {
                    first + 21
                };
        }
        mask & shape.all_days()
    }
}

impl Days {
    fn mask(&self, year: u32, month: u32) -> u32 {
        let Some(shape) = Shape::of(year, month) else {
            return 0;
        };
        let (in_month, in_week) = (self.month_days.mask(shape), self.week_days.mask(shape));
        match self.rule {
            DayRule::Both => in_month & in_week,
            DayRule::Either => in_month | in_week,
        }
    }

    /// The first matching date that is not before `from`, both in days since 1970-01-01; `None`
    /// when there is none up to the end of
    /// [`super::LAST_YEAR`]. `steps` grows by the months examined.
    pub(super) fn at_or_after(&self, from: i64, steps: &mut u32) -> Option<i64> {
        let from = i32::try_from(from + EPOCH_FROM_CE).ok()?;
        let from = NaiveDate::from_num_days_from_ce_opt(from)?;
        let start_year = u32::try_from(from.year()).unwrap_or(0);
        let mut year = self.years.at_or_after(start_year)?;
        let (mut month, mut day) = if year == start_year {
            (from.month(), from.day())
        } else {
            (1, 1)
        };
        loop {
            while let Some(candidate) = next_bit(self.months, month) {
                if candidate != month {
                    (month, day) = (candidate, 1);
                }
                *steps += 1;
                if let Some(day) = next_bit(u64::from(self.mask(year, month)), day) {
                    let date = NaiveDate::from_ymd_opt(i32::try_from(year).ok()?, month, day)?;
                    return Some(i64::from(date.num_days_from_ce()) - EPOCH_FROM_CE);
                }
                (month, day) = (month + 1, 1);
            }
            year = self.years.at_or_after(year + 1)?;
            (month, day) = (1, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::LAST_YEAR;
    use super::*;

    fn all_years() -> Years {
        let mut years = Years::EMPTY;
        (FIRST_YEAR..=LAST_YEAR).for_each(|year| years.insert(year));
        years
    }

    #[test]
    fn c08_an_impossible_date_ends_after_every_february_was_seen_once() {
        let days = Days {
            years: all_years(),
            months: 1 << 2,
            month_days: MonthDays {
                days: 1 << 30,
                ..MonthDays::default()
            },
            week_days: WeekDays {
                days: 0x7f,
                ..WeekDays::default()
            },
            rule: DayRule::Both,
        };
        let mut steps = 0;
        assert_eq!(days.at_or_after(0, &mut steps), None);
        assert_eq!(steps, LAST_YEAR - FIRST_YEAR + 1);
    }

    #[test]
    fn years_know_their_ends() {
        let years = all_years();
        assert_eq!(years.at_or_after(0), Some(FIRST_YEAR));
        assert_eq!(years.at_or_after(LAST_YEAR), Some(LAST_YEAR));
        assert_eq!(years.at_or_after(LAST_YEAR + 1), None);
        assert_eq!(years.at_or_after(u32::MAX), None);
        let mut some = Years::EMPTY;
        some.insert(2098);
        some.insert(1900);
        some.insert(u32::MAX);
        assert_eq!(some.at_or_after(1970), Some(2098));
        assert_eq!(some.at_or_after(2099), None);
    }

    #[test]
    fn shapes_agree_with_the_calendar() {
        for year in [1970, 2000, 2024, 2025, 2100] {
            for month in 1..=12 {
                let Some(shape) = Shape::of(year, month) else {
                    unreachable!("{year}-{month} exists")
                };
                let date = |day| NaiveDate::from_ymd_opt(year.cast_signed(), month, day);
                for day in 1..=shape.length {
                    let weekday = date(day).map(|date| date.weekday().num_days_from_sunday());
                    assert_eq!(weekday, Some(shape.weekday(day)), "{year}-{month}-{day}");
                }
                assert_eq!(date(shape.length + 1), None, "{year}-{month}");
                assert_eq!(shape.all_days().count_ones(), shape.length);
            }
        }
    }
}
