//! What can be wrong with a cron expression or a zone name.
//!
//! Everything here is bad input: retrying cannot help, the author of the job has to change the
//! text. So each message names the field, what was found there, and what is accepted.

use super::field::FieldName;

/// Why a cron expression was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CronError {
    /// The text holds nothing but spaces and tabs.
    #[error(
        "the cron expression is empty: write 5 fields (minute hour day-of-month month day-of-week), \
         6 with seconds first, 7 with a year last, or a nickname such as @daily"
    )]
    Empty,
    /// The text is longer than [`super::MAX_EXPRESSION_BYTES`].
    #[error("the cron expression has {bytes} bytes: at most {max} are accepted", max = super::MAX_EXPRESSION_BYTES)]
    TooLong {
        /// Length of the text in bytes.
        bytes: usize,
    },
    /// A character that is not printable ASCII, a space or a tab.
    #[error(
        "the cron expression holds {found:?} at character {position}: only printable ASCII \
         characters, spaces and tabs are accepted (text pasted from a document often carries \
         look-alikes)"
    )]
    Character {
        /// The first such character.
        found: char,
        /// Its place in the text, counted in characters from 1.
        position: usize,
    },
    /// Too few or too many fields.
    #[error(
        "the cron expression has {found} field(s): 5 are accepted (minute hour day-of-month month \
         day-of-week), 6 with seconds first, 7 with a year last"
    )]
    FieldCount {
        /// How many fields were found.
        found: usize,
    },
    /// A text that starts with `@` and is not a known nickname standing alone.
    #[error(
        "unknown cron nickname {found:?}: accepted, in lower case and alone, are @yearly, \
         @annually, @monthly, @weekly, @daily, @midnight and @hourly (for a fixed interval use \
         `every = \"5m\"` instead of cron)"
    )]
    Nickname {
        /// The text as written.
        found: String,
    },
    /// One element of one field is wrong.
    #[error("cron field {field}: {found:?}: {fault}")]
    Field {
        /// The field.
        field: FieldName,
        /// The element of its list as written.
        found: String,
        /// What is wrong, and what is accepted.
        fault: FieldFault,
    },
    /// The library that reads the checked fields disagrees with our check: a bug of ours.
    #[error("the field reader refused the cron expression {found:?}: {reason}; please report it")]
    Reader {
        /// The expression as written.
        found: String,
        /// What the library said.
        reason: String,
    },
    /// Every field is right by itself, but no date satisfies them together.
    #[error(
        "the cron expression {found:?} never fires: no date from {first} to {last} satisfies \
         day-of-month, month, day-of-week and year together ({rule})",
        first = super::FIRST_YEAR,
        last = super::LAST_YEAR
    )]
    NeverFires {
        /// The expression as written.
        found: String,
        /// How its two day fields combine.
        rule: super::DayRule,
    },
}

/// What is wrong with one element of a field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FieldFault {
    /// Nothing before, after or between two commas.
    #[error("an empty list element; write a value between commas")]
    EmptyElement,
    /// Something that is neither a number nor a name of this field.
    #[error("{value:?} is not a value; accepted is {accepted}")]
    NotAValue {
        /// The part that was not understood.
        value: String,
        /// What this field takes.
        accepted: &'static str,
    },
    /// A number outside the field.
    #[error("{value} is out of range; accepted is {accepted}")]
    OutOfRange {
        /// The number as written.
        value: String,
        /// What this field takes.
        accepted: &'static str,
    },
    /// The range's end lies before its start.
    #[error(
        "the range runs backwards ({low} to {high}) and ranges do not wrap round; write a list or \
         two ranges{hint}"
    )]
    Reversed {
        /// Where the range starts.
        low: u32,
        /// Where it ends.
        high: u32,
        /// A remark for this field, or nothing.
        hint: &'static str,
    },
    /// A step that is not a number from 1 up.
    #[error("the step {step:?} is not accepted; write a number from 1 up after `/`")]
    Step {
        /// The step as written.
        step: String,
    },
    /// More than one `/`.
    #[error("two steps; one `/` is accepted in each list element")]
    TwoSteps,
    /// A star with something beside it.
    #[error("a star stands alone or before a step; accepted are `*` and `*/step`")]
    Star,
    /// `?` in a field of no days, or beside something else.
    #[error("`?` is accepted only alone, as the whole day-of-month or day-of-week field")]
    QuestionMark,
    /// A form with `L` or `W` that the day-of-month field does not take.
    #[error(
        "not an accepted form of L or W; day-of-month takes L (last day), L-n (n from 1 to 30 \
         days before it), nW (weekday nearest to day n, from 1 to 31) and LW (last weekday)"
    )]
    DayOfMonthForm,
    /// A form with `L` or `#` that the day-of-week field does not take.
    #[error(
        "not an accepted form of L or #; day-of-week takes dL (last such day of the month, such \
         as 5L or FRIL) and d#n (n-th such day, n from 1 to 5, such as MON#1)"
    )]
    DayOfWeekForm,
}

/// Why a time zone name was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ZoneError {
    /// The text cannot be an IANA name at all.
    #[error(
        "{found:?} is not a time zone name: accepted are exact IANA names such as \
         \"Asia/Shanghai\" or \"UTC\""
    )]
    Malformed {
        /// The text as written, cut to a readable length.
        found: String,
    },
    /// An abbreviation such as `IST`, which means different zones to different people.
    #[error(
        "time zone {found:?} is an abbreviation and may mean several zones: write the exact IANA \
         name of the place, such as \"Asia/Kolkata\""
    )]
    Abbreviation {
        /// The text as written.
        found: String,
    },
    /// A well-formed name that the IANA database does not hold.
    #[error(
        "unknown time zone {found:?}{}: accepted are exact IANA names such as \"Asia/Shanghai\" \
         or \"UTC\"",
        .nearest.map(|name| format!(" (did you mean {name:?}?)")).unwrap_or_default()
    )]
    Unknown {
        /// The text as written.
        found: String,
        /// The nearest name of the database, when one is near.
        nearest: Option<&'static str>,
    },
}
