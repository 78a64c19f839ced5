//! Values with a unit, as configuration files spell them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A duration with its unit, such as `"30s"`; `MS` is the default in milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span<const MS: u64>(Duration);

impl<const MS: u64> Span<MS> {
    /// The duration.
    #[must_use]
    pub fn get(self) -> Duration {
        self.0
    }
}

impl<const MS: u64> Default for Span<MS> {
    fn default() -> Self {
        Span(Duration::from_millis(MS))
    }
}

impl<const MS: u64> From<Duration> for Span<MS> {
    fn from(duration: Duration) -> Self {
        Span(duration)
    }
}

/// The longest duration that a file may name: ten years.
pub const SPAN_MAX: Duration = Duration::from_secs(10 * 366 * 86_400);

/// Reads a duration such as `30s`, `1h 30m` or `250ms`.
///
/// # Errors
/// When it has no unit, a fraction, a sign, or exceeds [`SPAN_MAX`]; the text says what is accepted.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let accepted = "a whole number with a unit is accepted, such as 500ms, 30s, 5m, 2h or 1d";
    let refuse = || format!("{text:?} is not a duration; {accepted}");
    // humantime also takes fractions, and `0` without a unit.
    if text.contains('.') || !text.contains(|c: char| c.is_ascii_alphabetic()) {
        return Err(refuse());
    }
    let duration = humantime::parse_duration(text.trim()).map_err(|_| refuse())?;
    if duration.subsec_nanos() % 1_000_000 != 0 {
        return Err(format!("{text:?} is finer than a millisecond; {accepted}"));
    }
    if duration > SPAN_MAX {
        return Err(format!("{text:?} is longer than ten years; {accepted}"));
    }
    Ok(duration)
}

impl<const MS: u64> FromStr for Span<MS> {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        parse_duration(text).map(Span)
    }
}

impl<const MS: u64> fmt::Display for Span<MS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_duration(self.0).fmt(f)
    }
}

impl<const MS: u64> fmt::Debug for Span<MS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<const MS: u64> Serialize for Span<MS> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de, const MS: u64> Deserialize<'de> for Span<MS> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer
            .deserialize_any(TextVisitor(
                "a duration with a unit, such as \"30s\"",
                parse_duration,
            ))
            .map(Span)
    }
}

impl<const MS: u64> JsonSchema for Span<MS> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Duration".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "examples": ["500ms", "30s", "5m", "2h"] })
    }
}

/// A number of bytes with its unit, such as `"256MiB"`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(u64);

impl Size {
    /// So many mebibytes.
    #[must_use]
    pub const fn mib(count: u64) -> Self {
        Size(count << 20)
    }

    /// The bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl From<u64> for Size {
    fn from(bytes: u64) -> Self {
        Size(bytes)
    }
}

fn parse_size(text: &str) -> Result<u64, String> {
    let refuse = || {
        format!(
            "{text:?} is not a size; a number with a unit is accepted, such as 64KiB, 256MiB or 1GiB"
        )
    };
    if !text.trim_end().ends_with(['B', 'b']) {
        return Err(refuse());
    }
    bytesize::ByteSize::from_str(text.trim())
        .map(|size| size.as_u64())
        .map_err(|_| refuse())
}

impl FromStr for Size {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        parse_size(text).map(Size)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        for (unit, name) in UNITS {
            if self.0 >= unit && self.0.is_multiple_of(unit) {
                return write!(f, "{}{name}", self.0 / unit);
            }
        }
        write!(f, "{}B", self.0)
    }
}

impl fmt::Debug for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer
            .deserialize_any(TextVisitor(
                "a size with a unit, such as \"256MiB\"",
                parse_size,
            ))
            .map(Size)
    }
}

impl JsonSchema for Size {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Size".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "examples": ["64KiB", "256MiB", "1GiB"] })
    }
}

/// Takes text and says what was expected when something else stands there, such as a bare number.
struct TextVisitor<T>(&'static str, fn(&str) -> Result<T, String>);

impl<T> serde::de::Visitor<'_> for TextVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        (self.1)(text).map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c101_durations_need_a_whole_number_and_a_unit() {
        for (text, millis) in [
            ("30s", 30_000),
            ("1h 30m", 5_400_000),
            ("250ms", 250),
            ("0s", 0),
        ] {
            assert_eq!(
                parse_duration(text),
                Ok(Duration::from_millis(millis)),
                "{text}"
            );
        }
        for text in [
            "10",
            "0",
            "1.5h",
            "-5s",
            "99999999999h",
            "",
            "1us",
            "11000d",
        ] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_need_a_unit() {
        assert_eq!("256MiB".parse::<Size>().map(Size::bytes), Ok(256 << 20));
        assert_eq!(Size::mib(1024).to_string(), "1GiB");
        for text in ["256", "-1MiB", "1XB", ""] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }
}
