//! Points in time as the protocol counts them.

use std::fmt;
use std::ops::{Add, Sub};
use std::str::FromStr;
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, TimeZone as _, Utc};
use serde::{Deserialize, Serialize};

/// Milliseconds since the Unix epoch, UTC.
///
/// The store's clock and every nominal time use this unit, so that one number means one instant in
/// Redis, in SQLite and in every pod. Serialised as that number. The range is the one that both an
/// RFC 3339 year and a Lua double hold exactly: years 1970 to 9999.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp(i64);

/// 9999-12-31T23:59:59.999Z.
const MAX_MILLIS: i64 = 253_402_300_799_999;

impl Timestamp {
    /// The epoch; also what "never decided" compares below.
    pub const EPOCH: Timestamp = Timestamp(0);
    /// The end of the representable range.
    pub const MAX: Timestamp = Timestamp(MAX_MILLIS);

    /// From milliseconds since the epoch; values outside the range are brought to its nearest end.
    #[must_use]
    pub fn from_millis(millis: i64) -> Self {
        Timestamp(millis.clamp(0, MAX_MILLIS))
    }

    /// Milliseconds since the epoch.
    #[must_use]
    pub fn as_millis(self) -> i64 {
        self.0
    }

    /// As a `chrono` instant.
    #[must_use]
    pub fn to_datetime(self) -> DateTime<Utc> {
        Utc.timestamp_millis_opt(self.0)
            .single()
            .unwrap_or(DateTime::UNIX_EPOCH)
    }

    /// The time that passed since `earlier`; zero if it lies later.
    #[must_use]
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_millis(u64::try_from(self.0 - earlier.0).unwrap_or(0))
    }
}

/// A duration in whole milliseconds as the protocol carries it, at most what `i64` holds.
#[must_use]
pub fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

impl From<DateTime<Utc>> for Timestamp {
    fn from(at: DateTime<Utc>) -> Self {
        Timestamp::from_millis(at.timestamp_millis())
    }
}

impl Add<Duration> for Timestamp {
    type Output = Timestamp;
    fn add(self, rhs: Duration) -> Timestamp {
        Timestamp::from_millis(self.0.saturating_add(millis(rhs)))
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Timestamp;
    fn sub(self, rhs: Duration) -> Timestamp {
        Timestamp::from_millis(self.0.saturating_sub(millis(rhs)))
    }
}

impl fmt::Display for Timestamp {
    /// RFC 3339 in UTC; milliseconds only where there are some.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let form = if self.0 % 1000 == 0 {
            SecondsFormat::Secs
        } else {
            SecondsFormat::Millis
        };
        f.write_str(&self.to_datetime().to_rfc3339_opts(form, true))
    }
}

/// The text is no RFC 3339 time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{found:?} is not a time; an RFC 3339 time such as 2026-01-31T01:00:00Z is accepted")]
pub struct TimestampError {
    found: String,
}

impl FromStr for Timestamp {
    type Err = TimestampError;

    /// RFC 3339 with any offset.
    ///
    /// # Errors
    /// When the text is not such a time or lies outside the years 1970 to 9999.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || TimestampError {
            found: text.chars().take(64).collect(),
        };
        let at = DateTime::parse_from_rfc3339(text).map_err(|_| refuse())?;
        let millis = at.timestamp_millis();
        if (0..=MAX_MILLIS).contains(&millis) {
            Ok(Timestamp(millis))
        } else {
            Err(refuse())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_number_agree() {
        for text in [
            "2026-11-29T01:00:00Z",
            "1970-01-01T00:00:00.001Z",
            "9999-12-31T23:59:59.999Z",
        ] {
            let at: Timestamp = text.parse().expect("a time");
            assert_eq!(at.to_string(), text);
            assert_eq!(Timestamp::from_millis(at.as_millis()), at);
        }
        assert!("2026-11-29".parse::<Timestamp>().is_err());
        assert!("1969-12-31T23:59:59Z".parse::<Timestamp>().is_err());
    }

    #[test]
    fn arithmetic_stays_in_range() {
        assert_eq!(Timestamp::EPOCH - Duration::from_secs(1), Timestamp::EPOCH);
        assert_eq!(Timestamp::MAX + Duration::MAX, Timestamp::MAX);
        assert_eq!(Timestamp::EPOCH.since(Timestamp::MAX), Duration::ZERO);
    }
}
