//! `cron next`: when does an expression fire?

use std::time::{Duration, SystemTime};

use chrono::{DateTime, SecondsFormat, Utc};
use clap::Subcommand;
use serde::Serialize;
use wasmcron_core::cron::{Cron, Firing, LAST_YEAR, Zone};

use super::out::{Answer, Failure, Out, note};
use super::text;

/// Verbs on cron expressions.
#[derive(Debug, Subcommand)]
pub enum CronCommand {
    /// The next firings of an expression, with a remark where a clock change moved one
    Next {
        /// 5 fields, 6 with seconds first, 7 with a year last, or a nickname such as @daily
        #[arg(allow_hyphen_values = true)]
        expression: String,
        /// IANA time zone that the fields are read in
        #[arg(long, value_name = "ZONE", default_value = "UTC")]
        tz: String,
        /// Firings strictly after this RFC 3339 time [default: now]
        #[arg(long, value_name = "TIME", value_parser = moment)]
        from: Option<DateTime<Utc>>,
        /// How many, 1 to 1000
        #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
        count: u16,
    },
}

fn moment(text: &str) -> Result<DateTime<Utc>, String> {
    let parsed = DateTime::parse_from_rfc3339(text);
    parsed
        .map(DateTime::into)
        .map_err(|_| format!("{text:?} is not an RFC 3339 time such as 2026-01-31T01:00:00Z"))
}

/// Runs the verb.
pub fn run(out: Out, command: CronCommand) -> Answer {
    let CronCommand::Next {
        expression,
        tz,
        from,
        count,
    } = command;
    let now = DateTime::<Utc>::from(SystemTime::now());
    let (cron, zone) = read(&expression, &tz)?;
    let firings: Vec<Firing> = cron
        .iter_after(from.unwrap_or(now), zone)
        .take(count.into())
        .collect();
    for warning in cron.warnings() {
        note(format!("warning: {warning}"));
    }
    if out.json {
        return out.value(&NextView::new(&cron, zone, &firings));
    }
    let rows = firings
        .iter()
        .map(|firing| row(firing, zone, now))
        .collect();
    out.table(
        &["UTC", zone.name(), "IN", "REMARK"],
        rows,
        "Nothing fires after that time.",
    )?;
    if !firings.is_empty() && firings.len() < usize::from(count) {
        out.line(format!("No further firing up to the end of {LAST_YEAR}."))?;
    }
    Ok(())
}

fn read(expression: &str, zone: &str) -> Result<(Cron, Zone), Failure> {
    let cron = Cron::parse(expression).map_err(Failure::bad_input)?;
    let zone = Zone::parse(zone).map_err(|error| Failure::bad_input(format!("--tz: {error}")))?;
    Ok((cron, zone))
}

/// `cron next --json`.
#[derive(Debug, Serialize)]
struct NextView {
    /// The expression as it was written.
    expression: String,
    /// The zone's name.
    timezone: &'static str,
    /// The firings in UTC.
    next: Vec<String>,
}

impl NextView {
    fn new(cron: &Cron, zone: Zone, firings: &[Firing]) -> Self {
        let next = firings
            .iter()
            .map(|firing| firing.at.to_rfc3339_opts(SecondsFormat::Secs, true))
            .collect();
        NextView {
            expression: cron.as_str().to_owned(),
            timezone: zone.name(),
            next,
        }
    }
}

fn row(firing: &Firing, zone: Zone, now: DateTime<Utc>) -> Vec<String> {
    let local = zone
        .local(firing.at)
        .format("%a %Y-%m-%d %H:%M:%S %:z")
        .to_string();
    let away = (firing.at - now).to_std().map_or_else(
        |_| "-".to_owned(),
        |away| text::span(Duration::from_secs(away.as_secs())),
    );
    let remark = firing
        .note
        .map(|shift| shift.to_string())
        .unwrap_or_default();
    vec![
        firing.at.to_rfc3339_opts(SecondsFormat::Secs, true),
        local,
        away,
        remark,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = include_str!("../../../tests/golden/cron_vectors.tsv");

    fn unescape(cell: &str) -> String {
        let mut chars = cell.chars();
        let mut text = String::new();
        while let Some(c) = chars.next() {
            match (c, chars.as_str().chars().next()) {
                ('\\', Some('t')) => text.push('\t'),
                ('\\', Some('n')) => text.push('\n'),
                ('\\', Some('u')) => {
                    let code: String = chars.as_str().chars().skip(1).take(4).collect();
                    text.extend(u32::from_str_radix(&code, 16).ok().and_then(char::from_u32));
                    chars.nth(3);
                }
                _ => {
                    text.push(c);
                    continue;
                }
            }
            chars.next();
        }
        text
    }

    /// What `cron next --count 3 --json` would print as `next`, or ERROR.
    fn answer(expression: &str, zone: &str, start: &str) -> String {
        let start = moment(start).expect("a start");
        match read(expression, zone) {
            Err(Failure::BadInput(reason)) => {
                assert!(!reason.is_empty());
                "ERROR".into()
            }
            Err(other) => panic!("{other:?}"),
            Ok((cron, zone)) => {
                let firings: Vec<Firing> = cron.iter_after(start, zone).take(3).collect();
                for firing in &firings {
                    row(firing, zone, start);
                }
                NextView::new(&cron, zone, &firings).next.join(",")
            }
        }
    }

    #[test]
    fn every_row_of_the_golden_table() {
        let mut rows = 0;
        let mut wrong = Vec::new();
        for line in TABLE
            .lines()
            .filter(|line| !line.starts_with("# ") && !line.is_empty())
        {
            let cells: Vec<&str> = line.split('\t').collect();
            let [expression, zone, start, expected, ..] = cells.as_slice() else {
                panic!("{line:?}")
            };
            rows += 1;
            let found = answer(&unescape(expression), zone, start);
            let expected: Vec<&str> = expected.split(',').map(str::trim).collect();
            if found != expected.join(",") {
                wrong.push(format!("{line}\n  gave {found}"));
            }
        }
        assert!(rows > 50, "only {rows} rows were read");
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn c18_no_local_time_panics() {
        let cases = [
            ("* * * * *", "Europe/London", "2019-10-27T00:30:00Z"),
            ("30 2 * * *", "America/New_York", "2025-03-09T06:30:00Z"),
            ("*/5 3 * * *", "Europe/Sofia", "2025-10-26T00:59:59Z"),
        ];
        for (expression, zone, start) in cases {
            assert_eq!(
                answer(expression, zone, start).split(',').count(),
                3,
                "{expression} {zone}"
            );
        }
    }

    #[test]
    fn a_moved_firing_carries_a_remark() {
        let (cron, zone) = read("30 2 * * *", "America/New_York").expect("cron");
        let start = moment("2025-03-09T06:30:00Z").expect("start");
        let firing = cron.next_after(start, zone).expect("firing");
        let row = row(&firing, zone, start);
        assert_eq!(row[1], "Sun 2025-03-09 03:00:00 -04:00");
        assert!(row[3].contains("2025-03-09 02:30:00"), "{row:?}");
    }
}
