//! Time zones by their exact IANA names, from data compiled into the program.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, FixedOffset, Offset, TimeZone, Utc};
use chrono_tz::{TZ_VARIANTS, Tz};
use serde::{Deserialize, Serialize};

use super::error::ZoneError;

/// Longest zone name that is looked at, in bytes; the longest of the database has 32.
pub const MAX_ZONE_NAME_BYTES: usize = 64;

/// A time zone of the IANA database.
///
/// A job keeps the zone's name, never an offset: the offset belongs to an instant. The data are
/// compiled in, so the same build answers alike on every machine and a name never reaches the
/// file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Zone(Tz);

/// A change of a zone's offset from UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change {
    /// The first instant with the new offset, in seconds since the epoch.
    pub(super) at: i64,
    /// Seconds east of UTC before the change.
    pub(super) before: i64,
    /// Seconds east of UTC from the change on.
    pub(super) after: i64,
}

impl Zone {
    /// Coordinated Universal Time.
    pub const UTC: Self = Self(Tz::UTC);

    /// The zone of this exact name.
    ///
    /// # Errors
    ///
    /// [`ZoneError`] when the IANA database holds no such name; letter case counts, and
    /// abbreviations that are not IANA names are refused. The nearest name is suggested.
    pub fn parse(name: &str) -> Result<Self, ZoneError> {
        let readable = name
            .bytes()
            .all(|byte| byte == b' ' || byte.is_ascii_graphic());
        if name.is_empty() || name.len() > MAX_ZONE_NAME_BYTES || !readable || name.contains("..") {
            let found = name.chars().take(MAX_ZONE_NAME_BYTES).collect();
            return Err(ZoneError::Malformed { found });
        }
        if let Ok(zone) = Tz::from_str(name) {
            return Ok(Self(zone));
        }
        let found = name.to_owned();
        if (2..=5).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_uppercase()) {
            return Err(ZoneError::Abbreviation { found });
        }
        Err(ZoneError::Unknown {
            found,
            nearest: nearest(name),
        })
    }

    /// The IANA name.
    pub fn name(self) -> &'static str {
        self.0.name()
    }

    /// The instant as the zone's clocks show it. Never fails: every instant has one local time.
    pub fn local(self, at: DateTime<Utc>) -> DateTime<FixedOffset> {
        at.with_timezone(&self.0.offset_from_utc_datetime(&at.naive_utc()).fix())
    }

    /// Seconds east of UTC at an instant, given in seconds since the epoch.
    pub(super) fn offset_at(self, at: i64) -> i64 {
        // An instant that chrono cannot hold lies thousands of centuries away; the walk never
        // asks for one.
        let at = DateTime::from_timestamp(at, 0).unwrap_or(DateTime::UNIX_EPOCH);
        let offset = self.0.offset_from_utc_datetime(&at.naive_utc());
        i64::from(offset.fix().local_minus_utc())
    }

    /// The change after `low` and up to and including `high`, provided there is one at most: two
    /// that cancel each other out go unseen. See [`super::walk`] for why that cannot happen
    /// within six days.
    pub(super) fn change_between(self, low: i64, high: i64) -> Option<Change> {
        let (before, after) = (self.offset_at(low), self.offset_at(high));
        if before == after {
            return None;
        }
        let (mut low, mut high) = (low, high);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if self.offset_at(middle) == before {
                low = middle;
            } else {
                high = middle;
            }
        }
        Some(Change {
            at: high,
            before,
            after,
        })
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Zone {
    type Err = ZoneError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::parse(name)
    }
}

impl TryFrom<String> for Zone {
    type Error = ZoneError;

    fn try_from(name: String) -> Result<Self, Self::Error> {
        Self::parse(&name)
    }
}

impl From<Zone> for String {
    fn from(zone: Zone) -> Self {
        zone.name().to_owned()
    }
}

/// The name that a slip of the fingers may have missed, or the zone of a bare city name.
fn nearest(found: &str) -> Option<&'static str> {
    let wanted = found.to_ascii_lowercase();
    let limit = wanted.len() / 4;
    let distance = |name: &'static str| {
        let name = name.to_ascii_lowercase();
        let whole = edit_distance(&wanted, &name);
        match name.rsplit_once('/') {
            Some((_, city)) if !wanted.contains('/') => whole.min(edit_distance(&wanted, city)),
            _ => whole,
        }
    };
    TZ_VARIANTS
        .iter()
        .map(|zone| (distance(zone.name()), zone.name()))
        // The database has many aliases; among equally near ones the shortest is the usual one.
        .min_by_key(|(distance, name)| (*distance, name.len()))
        .filter(|(distance, _)| *distance <= limit)
        .map(|(_, name)| name)
}

/// Insertions, deletions and replacements between two short ASCII texts.
fn edit_distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        // `diagonal` is the cell above and to the left, `left` the one just written.
        let mut diagonal = i;
        let mut left = i + 1;
        let mut cells = row.iter_mut();
        if let Some(first) = cells.next() {
            *first = left;
        }
        for (cell, y) in cells.zip(b.bytes()) {
            let above = *cell;
            left = (diagonal + usize::from(x != y))
                .min(above + 1)
                .min(left + 1);
            *cell = left;
            diagonal = above;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edit_distances() {
        for (a, b, expected) in [
            ("", "", 0),
            ("", "abc", 3),
            ("abc", "", 3),
            ("kitten", "sitting", 3),
            ("a", "a", 0),
        ] {
            assert_eq!(edit_distance(a, b), expected, "{a} {b}");
        }
    }

    #[test]
    fn refused_names_get_the_nearest_known_one() {
        let suggested = |name: &str| match Zone::parse(name) {
            Err(ZoneError::Unknown { nearest, .. }) => nearest,
            other => unreachable!("{name}: {other:?}"),
        };
        assert_eq!(suggested("asia/shanghai"), Some("Asia/Shanghai"));
        assert_eq!(suggested("Asia/Shangai"), Some("Asia/Shanghai"));
        assert_eq!(suggested("America/New York"), Some("America/New_York"));
        assert_eq!(suggested("Berlin"), Some("Europe/Berlin"));
        assert_eq!(suggested("utc"), Some("UTC"));
        assert_eq!(suggested("Mars/Olympus_Mons"), None);
        assert_eq!(suggested("UTC+8"), None);
    }

    #[test]
    fn what_is_no_name_at_all() {
        let long = "A".repeat(10_000);
        for name in [
            "",
            "../../etc/passwd",
            "Europe/..",
            "Zürich",
            "UTC\0",
            "UTC\n",
            &long,
        ] {
            assert!(
                matches!(Zone::parse(name), Err(ZoneError::Malformed { .. })),
                "{name:?}"
            );
        }
        for name in ["IST", "PST", "AEST", "CDT"] {
            assert!(
                matches!(Zone::parse(name), Err(ZoneError::Abbreviation { .. })),
                "{name}"
            );
        }
    }

    #[test]
    fn names_survive_a_round_trip() {
        for zone in TZ_VARIANTS {
            assert_eq!(Zone::parse(zone.name()).map(Zone::name), Ok(zone.name()));
        }
        assert_eq!(Zone::UTC.to_string(), "UTC");
    }

    #[test]
    fn a_change_is_found_to_the_second() {
        let Ok(zone) = Zone::parse("Australia/Lord_Howe") else {
            unreachable!()
        };
        let change = Change {
            at: 1_728_142_200,
            before: 37_800,
            after: 39_600,
        };
        assert_eq!(
            zone.change_between(change.at - 500_000, change.at + 7),
            Some(change)
        );
        assert_eq!(zone.change_between(change.at - 1, change.at), Some(change));
        assert_eq!(zone.change_between(change.at, change.at + 500_000), None);
        assert_eq!(
            zone.change_between(change.at - 500_000, change.at - 1),
            None
        );
    }
}
