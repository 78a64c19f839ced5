//! From the text of an expression to its bit sets.
//!
//! Our own grammar ([`super::field`]) decides what is accepted and what it means. The accepted
//! fields are then written in the dialect of the `cron` crate, which counts weekdays from
//! 1 = Sunday and knows no year after 2100, and its ordinal sets become our bit sets.

use std::str::FromStr;

use cron::{Schedule, TimeUnitSpec};

use super::days::{DayRule, Days, MonthDays, WeekDays, Years};
use super::error::CronError;
use super::field::{Field, FieldName, Special};
use super::times::Times;
use super::{Cron, MAX_EXPRESSION_BYTES};

/// The nicknames and the five fields each stands for.
const NICKNAMES: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

/// See [`Cron::parse`].
pub(super) fn parse(text: &str) -> Result<Cron, CronError> {
    check_characters(text)?;
    let fields = Fields::parse(expand_nickname(text)?)?;
    let schedule = fields.read(text)?;
    let days = fields.days(&schedule);
    // Cheap: each month of the calendar is looked at once at most.
    if days.at_or_after(0, &mut 0).is_none() {
        return Err(CronError::NeverFires {
            found: text.to_owned(),
            rule: days.rule,
        });
    }
    Ok(Cron {
        text: text.to_owned(),
        times: Times {
            seconds: set_of(schedule.seconds()),
            minutes: set_of(schedule.minutes()),
            hours: set_of(schedule.hours()),
        },
        days,
        follows_wall_clock: fields.second.leading_star
            || fields.minute.leading_star
            || fields.hour.leading_star,
        warnings: fields.into_warnings(),
    })
}

fn check_characters(text: &str) -> Result<(), CronError> {
    if text.len() > MAX_EXPRESSION_BYTES {
        return Err(CronError::TooLong { bytes: text.len() });
    }
    let accepted = |c: char| c.is_ascii_graphic() || c == ' ' || c == '\t';
    match text.chars().enumerate().find(|(_, c)| !accepted(*c)) {
        Some((index, found)) => Err(CronError::Character {
            found,
            position: index + 1,
        }),
        None => Ok(()),
    }
}

fn expand_nickname(text: &str) -> Result<&str, CronError> {
    let trimmed = text.trim_matches([' ', '\t']);
    if !trimmed.starts_with('@') {
        return Ok(text);
    }
    NICKNAMES
        .into_iter()
        .find_map(|(nickname, fields)| (nickname == trimmed).then_some(fields))
        .ok_or_else(|| CronError::Nickname {
            found: trimmed.to_owned(),
        })
}

/// All the fields of an expression, with the absent ones filled in.
#[derive(Debug)]
struct Fields {
    second: Field,
    minute: Field,
    hour: Field,
    day_of_month: Field,
    month: Field,
    day_of_week: Field,
    year: Field,
}

impl Fields {
    fn parse(text: &str) -> Result<Self, CronError> {
        let words: Vec<&str> = text
            .split([' ', '\t'])
            .filter(|word| !word.is_empty())
            .collect();
        let (second, five, year) = match *words.as_slice() {
            [] => return Err(CronError::Empty),
            [minute, hour, day, month, weekday] => ("0", [minute, hour, day, month, weekday], "*"),
            [second, minute, hour, day, month, weekday] => {
                (second, [minute, hour, day, month, weekday], "*")
            }
            [second, minute, hour, day, month, weekday, year] => {
                (second, [minute, hour, day, month, weekday], year)
            }
            _ => return Err(CronError::FieldCount { found: words.len() }),
        };
        let [minute, hour, day_of_month, month, day_of_week] = five;
        Ok(Self {
            second: Field::parse(FieldName::Second, second)?,
            minute: Field::parse(FieldName::Minute, minute)?,
            hour: Field::parse(FieldName::Hour, hour)?,
            day_of_month: Field::parse(FieldName::DayOfMonth, day_of_month)?,
            month: Field::parse(FieldName::Month, month)?,
            day_of_week: Field::parse(FieldName::DayOfWeek, day_of_week)?,
            year: Field::parse(FieldName::Year, year)?,
        })
    }

    /// Has the `cron` crate read the fields.
    fn read(&self, text: &str) -> Result<Schedule, CronError> {
        let translated = [
            in_crate_dialect(&self.second),
            in_crate_dialect(&self.minute),
            in_crate_dialect(&self.hour),
            in_crate_dialect(&self.day_of_month),
            in_crate_dialect(&self.month),
            weekdays_in_crate_dialect(&self.day_of_week),
        ];
        Schedule::from_str(&translated.join(" ")).map_err(|error| CronError::Reader {
            found: text.to_owned(),
            reason: error.to_string(),
        })
    }

    fn days(&self, schedule: &Schedule) -> Days {
        let mut month_days = MonthDays::default();
        let mut week_days = WeekDays::default();
        if !self.day_of_month.spans.is_empty() {
            month_days.days = narrow(set_of(schedule.days_of_month()));
        }
        if !self.day_of_week.spans.is_empty() {
            // 1 is Sunday there, 0 is Sunday here.
            week_days.days = narrow(set_of(schedule.days_of_week()) >> 1);
        }
        let specials = |field: &Field| -> Vec<Special> { field.specials.clone() };
        specials(&self.day_of_month)
            .into_iter()
            .for_each(|special| month_days.add(special));
        specials(&self.day_of_week)
            .into_iter()
            .for_each(|special| week_days.add(special));
        let mut years = Years::EMPTY;
        for year in self.year.spans.iter().flat_map(|span| span.values()) {
            years.insert(year);
        }
        let star = self.day_of_month.leading_star || self.day_of_week.leading_star;
        Days {
            years,
            months: set_of(schedule.months()),
            month_days,
            week_days,
            rule: if star { DayRule::Both } else { DayRule::Either },
        }
    }

    fn into_warnings(self) -> Vec<String> {
        [
            self.second,
            self.minute,
            self.hour,
            self.day_of_month,
            self.month,
            self.day_of_week,
            self.year,
        ]
        .into_iter()
        .flat_map(|field| field.warnings)
        .collect()
    }
}

/// What a field of only `L`, `W` or `#` forms is replaced by; its set is then not used.
const NO_PLAIN_VALUES: &str = "*";

/// The plain values of a field in words that the `cron` crate reads alike: it refuses a step
/// wider than the field and reads a lone value before a step in its own way.
fn in_crate_dialect(field: &Field) -> String {
    if field.spans.is_empty() {
        return NO_PLAIN_VALUES.to_owned();
    }
    let words: Vec<String> = field
        .spans
        .iter()
        .map(|span| match *span {
            // Only the first value is inside.
            span if span.high - span.low < span.step => span.low.to_string(),
            span => format!("{}-{}/{}", span.low, span.high, span.step),
        })
        .collect();
    words.join(",")
}

/// Ranges such as 5-7 have no counterpart there, so weekdays are listed one by one.
fn weekdays_in_crate_dialect(field: &Field) -> String {
    if field.spans.is_empty() {
        return NO_PLAIN_VALUES.to_owned();
    }
    let days = field.spans.iter().flat_map(|span| span.values());
    let words: Vec<String> = days.map(|day| (day % 7 + 1).to_string()).collect();
    words.join(",")
}

/// The ordinals of a field as bits; every ordinal is below 60.
fn set_of(unit: &impl TimeUnitSpec) -> u64 {
    unit.iter().fold(0, |set, ordinal| {
        set | 1u64.checked_shl(ordinal).unwrap_or(0)
    })
}

/// Days of month and week lie below bit 32.
fn narrow(set: u64) -> u32 {
    u32::try_from(set & u64::from(u32::MAX)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Our reading of a field and the crate's must be the same set.
    #[test]
    fn the_crate_reads_what_we_understood() {
        let mut random = fastrand::Rng::with_seed(17);
        for _ in 0..2_000 {
            let mut element = |low: u32, high: u32| {
                let (a, b) = (random.u32(low..=high), random.u32(low..=high));
                match random.u32(0..5) {
                    0 => format!("*/{}", random.u32(1..70)),
                    1 => format!("{}-{}/{}", a.min(b), a.max(b), random.u32(1..70)),
                    2 => format!("{}-{}", a.min(b), a.max(b)),
                    3 => format!("{a}/{}", random.u32(1..70)),
                    _ => format!("{a},{b}"),
                }
            };
            let text = format!(
                "{} {} {} {} {}",
                element(0, 59),
                element(0, 23),
                element(1, 31),
                element(1, 12),
                element(0, 7)
            );
            let outcome = Fields::parse(&text).and_then(|fields| Ok((fields.read(&text)?, fields)));
            let Ok((schedule, fields)) = outcome else {
                unreachable!("{text}: {outcome:?}");
            };
            let ours = |field: &Field| {
                field
                    .spans
                    .iter()
                    .flat_map(|span| span.values())
                    .fold(0u64, |set, v| set | 1 << v)
            };
            assert_eq!(set_of(schedule.minutes()), ours(&fields.minute), "{text}");
            assert_eq!(set_of(schedule.hours()), ours(&fields.hour), "{text}");
            assert_eq!(
                set_of(schedule.days_of_month()),
                ours(&fields.day_of_month),
                "{text}"
            );
            assert_eq!(set_of(schedule.months()), ours(&fields.month), "{text}");
            let week = ours(&fields.day_of_week);
            assert_eq!(
                set_of(schedule.days_of_week()) >> 1,
                (week | week >> 7) & 0x7f,
                "{text}"
            );
        }
    }
}
