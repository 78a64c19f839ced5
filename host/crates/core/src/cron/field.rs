//! The strict grammar of one cron field.
//!
//! Whatever passes here means exactly one thing. The libraries of this field read past the end
//! of a number, clamp ranges or drop list elements they do not understand; a schedule that is
//! silently another schedule is worse than an error.

use std::fmt;

use super::error::{CronError, FieldFault};

/// A field of a cron expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldName {
    /// Seconds, 0 to 59; only in expressions of 6 or 7 fields.
    Second,
    /// Minutes, 0 to 59.
    Minute,
    /// Hours, 0 to 23.
    Hour,
    /// Days of the month, 1 to 31.
    DayOfMonth,
    /// Months, 1 to 12 or JAN to DEC.
    Month,
    /// Days of the week, 0 to 7 or SUN to SAT; 0 and 7 are Sunday.
    DayOfWeek,
    /// Years, 1970 to 2199; only in expressions of 7 fields.
    Year,
}

impl fmt::Display for FieldName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Second => "second",
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::DayOfMonth => "day-of-month",
            Self::Month => "month",
            Self::DayOfWeek => "day-of-week",
            Self::Year => "year",
        })
    }
}

const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

impl FieldName {
    /// The lowest and the highest value.
    pub(super) fn bounds(self) -> (u32, u32) {
        match self {
            Self::Second | Self::Minute => (0, 59),
            Self::Hour => (0, 23),
            Self::DayOfMonth => (1, 31),
            Self::Month => (1, 12),
            Self::DayOfWeek => (0, 7),
            Self::Year => (super::FIRST_YEAR, super::LAST_YEAR),
        }
    }

    fn accepted(self) -> &'static str {
        match self {
            Self::Second | Self::Minute => "a number from 0 to 59",
            Self::Hour => "a number from 0 to 23",
            Self::DayOfMonth => "a number from 1 to 31, L, L-n, nW or LW",
            Self::Month => "a number from 1 to 12 or a name from JAN to DEC",
            Self::DayOfWeek => {
                "a number from 0 to 7 (0 and 7 are Sunday) or a name from SUN to SAT, with #n or L \
                 after it"
            }
            Self::Year => "a number from 1970 to 2199",
        }
    }

    fn number_of_name(self, name: &str) -> Option<u32> {
        let (names, first): (&[&str], u32) = match self {
            Self::Month => (&MONTHS, 1),
            Self::DayOfWeek => (&WEEKDAYS, 0),
            _ => return None,
        };
        let place = names
            .iter()
            .position(|known| known.eq_ignore_ascii_case(name))?;
        Some(first + u32::try_from(place).ok()?)
    }
}

/// A run of values with a step: `low`, `low + step`, … up to `high`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) low: u32,
    pub(super) high: u32,
    pub(super) step: u32,
}

impl Span {
    /// The values, lowest first.
    pub(super) fn values(self) -> impl Iterator<Item = u32> {
        let step = usize::try_from(self.step.max(1)).unwrap_or(usize::MAX);
        (self.low..=self.high).step_by(step)
    }
}

/// A day that depends on the shape of its month.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Special {
    /// `L` (0 days before the last day) and `L-n`.
    DaysBeforeLast(u32),
    /// `nW`.
    NearestWeekday(u32),
    /// `LW`.
    LastWeekday,
    /// `d#n`; weekday 0 is Sunday.
    Nth { weekday: u32, n: u32 },
    /// `dL`; weekday 0 is Sunday.
    LastOf { weekday: u32 },
}

/// One field, understood.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Field {
    /// The text begins with `*`, or is `?`. It decides how the day fields combine and whether
    /// the job follows the wall clock; how many values the field covers does not.
    pub(super) leading_star: bool,
    pub(super) spans: Vec<Span>,
    pub(super) specials: Vec<Special>,
    pub(super) warnings: Vec<String>,
}

impl Field {
    /// Reads the text of one field: a comma-separated list of elements.
    pub(super) fn parse(name: FieldName, text: &str) -> Result<Self, CronError> {
        let mut field = Self {
            leading_star: text.starts_with(['*', '?']),
            ..Self::default()
        };
        if text == "?" && matches!(name, FieldName::DayOfMonth | FieldName::DayOfWeek) {
            let (low, high) = name.bounds();
            field.spans.push(Span { low, high, step: 1 });
            return Ok(field);
        }
        for element in text.split(',') {
            field
                .element(name, element)
                .map_err(|fault| CronError::Field {
                    field: name,
                    found: if element.is_empty() { text } else { element }.to_owned(),
                    fault,
                })?;
        }
        Ok(field)
    }

    fn element(&mut self, name: FieldName, element: &str) -> Result<(), FieldFault> {
        if element.is_empty() {
            return Err(FieldFault::EmptyElement);
        }
        if element.contains('?') {
            return Err(FieldFault::QuestionMark);
        }
        let special = match name {
            FieldName::DayOfMonth => day_of_month_special(element)?,
            FieldName::DayOfWeek => day_of_week_special(element)?,
            _ => None,
        };
        if let Some(special) = special {
            self.specials.push(special);
            return Ok(());
        }
        let span = span(name, element)?;
        // A range of one value with a step, or a step that leaves the range at once, is almost
        // always a slip of the author; Unix cron accepts it, so we accept it and say so.
        if element.contains('/') && span.high - span.low < span.step {
            self.warnings.push(format!(
                "cron field {name}: {element:?}: the step is wider than its range, so only {} matches",
                span.low
            ));
        }
        self.spans.push(span);
        Ok(())
    }
}

/// `*`, `N`, `N-M`, each with an optional `/step`; `N/step` means from N to the field's end.
fn span(name: FieldName, element: &str) -> Result<Span, FieldFault> {
    let (min, max) = name.bounds();
    let (base, step) = match element.split_once('/') {
        None => (element, None),
        Some((_, step)) if step.contains('/') => return Err(FieldFault::TwoSteps),
        Some((base, step)) => (base, Some(parse_step(step)?)),
    };
    let (low, high) = if base == "*" {
        (min, max)
    } else if base.contains('*') {
        return Err(FieldFault::Star);
    } else if let Some((low, high)) = base.split_once('-') {
        (value(name, low)?, value(name, high)?)
    } else {
        let low = value(name, base)?;
        (low, if step.is_some() { max } else { low })
    };
    if low > high {
        return Err(FieldFault::Reversed {
            low,
            high,
            hint: reversed_hint(name, high),
        });
    }
    Ok(Span {
        low,
        high,
        step: step.unwrap_or(1),
    })
}

fn reversed_hint(name: FieldName, high: u32) -> &'static str {
    match name {
        FieldName::DayOfWeek if high == 0 => ", or end the range at 7, which is Sunday too",
        _ => "",
    }
}

fn parse_step(text: &str) -> Result<u32, FieldFault> {
    number(text)
        .filter(|step| *step > 0)
        .ok_or_else(|| FieldFault::Step {
            step: text.to_owned(),
        })
}

/// A plain decimal number; no sign, no other digits than ASCII ones. `None` also when it does
/// not fit, so that a huge number can never wrap into the field.
fn number(text: &str) -> Option<u32> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

/// A number or name inside the bounds of the field.
fn value(name: FieldName, text: &str) -> Result<u32, FieldFault> {
    let (min, max) = name.bounds();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return number(text)
            .filter(|value| (min..=max).contains(value))
            .ok_or_else(|| FieldFault::OutOfRange {
                value: text.to_owned(),
                accepted: name.accepted(),
            });
    }
    name.number_of_name(text)
        .ok_or_else(|| FieldFault::NotAValue {
            value: text.to_owned(),
            accepted: name.accepted(),
        })
}

/// `Ok(None)` when the element holds neither L nor W and so is an ordinary one.
fn day_of_month_special(element: &str) -> Result<Option<Special>, FieldFault> {
    let upper = element.to_ascii_uppercase();
    if !upper.contains(['L', 'W']) {
        return Ok(None);
    }
    if upper == "L" {
        return Ok(Some(Special::DaysBeforeLast(0)));
    }
    if upper == "LW" {
        return Ok(Some(Special::LastWeekday));
    }
    if let Some(days) = upper.strip_prefix("L-") {
        let days = number(days).filter(|days| (1..=30).contains(days));
        return days
            .map(|days| Some(Special::DaysBeforeLast(days)))
            .ok_or(FieldFault::DayOfMonthForm);
    }
    upper
        .strip_suffix('W')
        .and_then(number)
        .filter(|day| (1..=31).contains(day))
        .map(|day| Some(Special::NearestWeekday(day)))
        .ok_or(FieldFault::DayOfMonthForm)
}

/// `Ok(None)` when the element holds neither L nor # and so is an ordinary one.
fn day_of_week_special(element: &str) -> Result<Option<Special>, FieldFault> {
    // 0 and 7 are both Sunday.
    let weekday = |text: &str| value(FieldName::DayOfWeek, text).map(|day| day % 7);
    if let Some((day, n)) = element.split_once('#') {
        let n = number(n)
            .filter(|n| (1..=5).contains(n))
            .ok_or(FieldFault::DayOfWeekForm)?;
        return match weekday(day) {
            Ok(weekday) => Ok(Some(Special::Nth { weekday, n })),
            Err(fault @ FieldFault::OutOfRange { .. }) => Err(fault),
            Err(_) => Err(FieldFault::DayOfWeekForm),
        };
    }
    let Some(day) = element.strip_suffix(['L', 'l']) else {
        return Ok(None);
    };
    match weekday(day) {
        Ok(weekday) => Ok(Some(Special::LastOf { weekday })),
        Err(fault @ FieldFault::OutOfRange { .. }) => Err(fault),
        Err(_) => Err(FieldFault::DayOfWeekForm),
    }
}
