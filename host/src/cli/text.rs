//! How times, durations and texts look to people.

use std::fmt::Write as _;
use std::time::Duration;

use wasmcron_core::schedule::{Schedule, Trigger};
use wasmcron_core::time::Timestamp;

/// A duration in its two largest units: `1h 4m`, `2.5s`, `12ms`.
pub fn span(duration: Duration) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")];
    let seconds = duration.as_secs();
    if seconds == 0 {
        return format!("{}ms", duration.as_millis());
    }
    if seconds < 10 && duration.subsec_millis() >= 100 {
        return format!("{seconds}.{}s", duration.subsec_millis() / 100);
    }
    let first = UNITS
        .iter()
        .position(|(unit, _)| seconds >= *unit)
        .unwrap_or(0);
    let mut text = String::new();
    let mut rest = seconds;
    for (unit, name) in UNITS.iter().skip(first).take(2) {
        let count = rest / unit;
        rest %= unit;
        if count > 0 {
            let gap = if text.is_empty() { "" } else { " " };
            // Writing to a string cannot fail.
            let _ = write!(text, "{gap}{count}{name}");
        }
    }
    text
}

/// A time with its distance from now.
pub fn when(at: Timestamp, now: Timestamp) -> String {
    if at > now {
        format!("{at} (in {})", span(at.since(now)))
    } else {
        format!("{at} ({} ago)", span(now.since(at)))
    }
}

/// A count with its noun: `1 pod`, `3 pods`.
pub fn count(n: u64, noun: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{n} {noun}{plural}")
}

/// A count with its noun and verb: `1 pod is`, `3 pods are`.
pub fn are(n: usize, noun: &str) -> String {
    let verb = if n == 1 { "is" } else { "are" };
    format!("{} {verb}", count(n as u64, noun))
}

/// A schedule in one line.
pub fn schedule(schedule: &Schedule) -> String {
    match &schedule.trigger {
        Trigger::Cron {
            expression,
            timezone,
        } => format!("{expression} {}", timezone.name()),
        Trigger::Every { period } => format!("every {}", humantime::format_duration(*period)),
        Trigger::Manual => "by hand".into(),
    }
}

/// A text that others wrote, without what a terminal could take for a command.
pub fn plain(text: &str) -> String {
    text.chars()
        .map(|c| {
            if c.is_control() && c != '\n' && c != '\t' {
                '\u{fffd}'
            } else {
                c
            }
        })
        .collect()
}

/// The first line of a text that others wrote, cut to a length in characters.
pub fn brief(text: &str, most: usize) -> String {
    let line = text.lines().next().unwrap_or("");
    let cut: String = line.chars().take(most).collect();
    let rest = if cut.len() < text.trim_end().len() {
        "…"
    } else {
        ""
    };
    plain(&format!("{cut}{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_show_their_two_largest_units() {
        for (millis, text) in [
            (12, "12ms"),
            (2_500, "2.5s"),
            (65_000, "1m 5s"),
            (3_600_000, "1h"),
            (90_061_000, "1d 1h"),
            (0, "0ms"),
        ] {
            assert_eq!(span(Duration::from_millis(millis)), text);
        }
    }

    #[test]
    fn a_text_of_others_cannot_move_the_cursor() {
        assert_eq!(plain("a\u{1b}[2Jb\n"), "a\u{fffd}[2Jb\n");
        assert_eq!(brief("one two\nthree", 4), "one …");
        assert_eq!(brief("one", 4), "one");
    }
}
