//! The catalogued failures of other schedulers, each test under its case number.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may panic"
)]

mod clock_changes;
mod dates;
mod text;

use chrono::{DateTime, SecondsFormat, Utc};
use wasmcron_core::cron::{Cron, Zone};

fn at(text: &str) -> DateTime<Utc> {
    DateTime::parse_from_rfc3339(text).unwrap().into()
}

fn zone(name: &str) -> Zone {
    Zone::parse(name).unwrap()
}

fn cron(text: &str) -> Cron {
    Cron::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Asserts the first firings after a start.
#[track_caller]
fn fires(text: &str, zone_name: &str, start: &str, expected: &[&str]) {
    let job = cron(text);
    let firings = job
        .iter_after(at(start), zone(zone_name))
        .take(expected.len());
    let instants: Vec<String> = firings
        .map(|firing| firing.at.to_rfc3339_opts(SecondsFormat::Secs, true))
        .collect();
    assert_eq!(instants, expected, "{text} {zone_name} from {start}");
}
