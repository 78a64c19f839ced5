//! Cron expressions and time zones: when does a job fire next?
//!
//! The dialect is that of Unix cron, read strictly:
//!
//! | Fields | Order |
//! | --- | --- |
//! | 5 | minute, hour, day-of-month, month, day-of-week |
//! | 6 | second first |
//! | 7 | second first, year (1970 to 2199) last |
//!
//! - An element is `*`, `N`, `N-M`, each also with `/step`; `N/step` means `N-max/step`. Elements
//!   form lists with commas. Months and weekdays also have three-letter names in any case.
//! - Day-of-week 0 and 7 are Sunday, whatever the number of fields. The field's maximum is 7.
//! - When both day fields are restricted, a day in either will do. When the text of either begins
//!   with `*` (or is `?`), a day must be in both ([`DayRule`]).
//! - Day-of-month also takes `L`, `L-n`, `nW`, `LW`; day-of-week also `dL` and `d#n`. A form that
//!   a month has no day for skips the month.
//! - `?` alone may stand for a whole day field and means `*`.
//! - Nicknames: `@yearly`, `@annually`, `@monthly`, `@weekly`, `@daily`, `@midnight`, `@hourly`.
//! - Nothing wraps round, is clamped, or is ignored. An expression that can never fire is refused.
//!
//! Clock changes follow Debian's cron. A job whose second, minute or hour field begins with `*`
//! follows the wall clock: it does not fire at times that are skipped and fires in both passes of
//! times that are repeated. Any other job is a fixed-time job: all its times inside a gap become
//! one firing at the first instant after the gap, and of a repeated time only the first pass
//! counts. A change of more than three hours is a correction of the calendar, as when a zone
//! skips a date: the new time counts at once, for every job, with nothing caught up or held back.

mod days;
mod error;
mod field;
mod parse;
mod times;
mod walk;
mod zone;

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, NaiveDateTime, Utc};
use serde::{Deserialize, Serialize};

pub use self::days::DayRule;
pub use self::error::{CronError, FieldFault, ZoneError};
pub use self::field::FieldName;
pub use self::zone::{MAX_ZONE_NAME_BYTES, Zone};

/// Longest expression that is read, in bytes.
pub const MAX_EXPRESSION_BYTES: usize = 1_024;

/// The first year in which anything fires.
pub const FIRST_YEAR: u32 = 1970;

/// The last year in which anything fires. Together with [`FIRST_YEAR`] it spans every
/// combination of leap year and weekday, so what finds no date here never fires.
pub const LAST_YEAR: u32 = 2199;

/// A cron expression, understood. See the [module](self) for the dialect.
///
/// Two expressions are equal when their texts are; [`Display`](fmt::Display) gives the text back
/// as it was written. It is serialized as its text.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Cron {
    text: String,
    times: times::Times,
    days: days::Days,
    follows_wall_clock: bool,
    warnings: Vec<String>,
}

/// One firing of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Firing {
    /// When; always a whole second.
    pub at: DateTime<Utc>,
    /// What a clock change did to this firing, if anything.
    pub note: Option<Shift>,
}

/// What a clock change did to a firing of a fixed-time job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Shift {
    /// The local time was skipped, so the job fires at the first instant after the gap.
    Moved {
        /// The local time that does not exist.
        from: NaiveDateTime,
    },
    /// Several local times fall on the first instant after the gap and are one firing.
    Merged {
        /// The first of them, inside the gap.
        first: NaiveDateTime,
        /// How many there are.
        count: u32,
    },
    /// The clock shows this local time twice; this is the first pass, the second does not count.
    FirstPass,
}

impl fmt::Display for Shift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Moved { from } => {
                write!(
                    f,
                    "{from} does not exist: moved to the end of the clock change"
                )
            }
            Self::Merged { first, count } => write!(
                f,
                "{count} times from {first} on fall into a clock change: one firing at its end"
            ),
            Self::FirstPass => f.write_str("this local time comes twice: fires the first time"),
        }
    }
}

impl Cron {
    /// Reads an expression.
    ///
    /// # Errors
    ///
    /// [`CronError`] when the text is not an expression of the dialect, or when no date from
    /// [`FIRST_YEAR`] to [`LAST_YEAR`] satisfies it. The message is meant for the job's author.
    pub fn parse(text: &str) -> Result<Self, CronError> {
        parse::parse(text)
    }

    /// The expression as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Remarks for the job's author on what is accepted but hardly meant, such as a step wider
    /// than its field.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// How the two day fields combine.
    pub fn day_rule(&self) -> DayRule {
        self.days.rule
    }

    /// Whether the job follows the wall clock across clock changes (its second, minute or hour
    /// field begins with `*`) instead of being a fixed-time job.
    pub fn follows_wall_clock(&self) -> bool {
        self.follows_wall_clock
    }

    /// The first firing strictly after `start`, or `None` when there is none up to the end of
    /// [`LAST_YEAR`].
    pub fn next_after(&self, start: DateTime<Utc>, zone: Zone) -> Option<Firing> {
        self.walk(zone).next_after(start)
    }

    /// All firings strictly after `start`, in order; the instants strictly increase.
    pub fn iter_after(
        &self,
        start: DateTime<Utc>,
        zone: Zone,
    ) -> impl Iterator<Item = Firing> + use<'_> {
        std::iter::successors(self.next_after(start, zone), move |last| {
            self.next_after(last.at, zone)
        })
    }

    /// How much [`Cron::next_after`] has to look at: stretches of constant offset, months and
    /// local times. It lets a test bound the work without a clock.
    #[doc(hidden)]
    pub fn steps_after(&self, start: DateTime<Utc>, zone: Zone) -> u32 {
        let mut walk = self.walk(zone);
        walk.next_after(start);
        walk.steps
    }

    fn walk(&self, zone: Zone) -> walk::Walk {
        walk::Walk {
            times: self.times,
            days: self.days,
            zone,
            follows_wall_clock: self.follows_wall_clock,
            steps: 0,
        }
    }
}

impl PartialEq for Cron {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Cron {}

impl fmt::Display for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Cron {
    type Err = CronError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl TryFrom<String> for Cron {
    type Error = CronError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text)
    }
}

impl From<Cron> for String {
    fn from(cron: Cron) -> Self {
        cron.text
    }
}
