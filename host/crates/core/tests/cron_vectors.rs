//! Every row of the golden cron table, as one test that reports all the rows that fail.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may panic"
)]

use chrono::{DateTime, SecondsFormat, Utc};
use wasmcron_core::cron::{Cron, Zone};

const TABLE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../../tests/golden/cron_vectors.tsv"
);

/// The expressions of the table are escaped where a cell cannot hold the character.
fn unescape(cell: &str) -> String {
    let mut text = String::new();
    let mut rest = cell;
    while let Some((before, after)) = rest.split_once('\\') {
        text.push_str(before);
        let (kind, after) = after.split_at(1);
        rest = match kind {
            "t" => {
                text.push('\t');
                after
            }
            "n" => {
                text.push('\n');
                after
            }
            "u" => {
                let (code, after) = after.split_at(4);
                let code = u32::from_str_radix(code, 16).expect("four hexadecimal digits");
                text.push(char::from_u32(code).expect("a character"));
                after
            }
            other => panic!("unknown escape \\{other} in {cell:?}"),
        };
    }
    text + rest
}

/// What the library says, in the table's words.
fn answer(expression: &str, zone: &str, start: &str) -> String {
    let start: DateTime<Utc> = DateTime::parse_from_rfc3339(start)
        .expect("an RFC 3339 start")
        .into();
    let (Ok(cron), Ok(zone)) = (Cron::parse(expression), Zone::parse(zone)) else {
        return "ERROR".to_owned();
    };
    let firings = cron.iter_after(start, zone).take(3);
    let instants: Vec<String> = firings
        .map(|firing| firing.at.to_rfc3339_opts(SecondsFormat::Secs, true))
        .collect();
    instants.join(",")
}

#[test]
fn every_row_of_the_golden_table() {
    let table = std::fs::read_to_string(TABLE).expect(TABLE);
    let mut rows = 0;
    let mut failures = Vec::new();
    for (index, line) in table.lines().enumerate() {
        if line.starts_with("# ") {
            continue;
        }
        let cells: Vec<&str> = line.split('\t').collect();
        let [expression, zone, start, expected, note] = *cells.as_slice() else {
            panic!("line {}: not five cells: {line:?}", index + 1);
        };
        rows += 1;
        let actual = answer(&unescape(expression), zone, start);
        if actual != expected {
            failures.push(format!(
                "line {}: {expression:?} {zone} from {start}\n  expected {expected}\n  actual   {actual}\n  {note}",
                index + 1
            ));
        }
    }
    assert!(rows >= 180, "only {rows} rows read: is the table whole?");
    assert!(
        failures.is_empty(),
        "{} of {rows} rows fail:\n{}",
        failures.len(),
        failures.join("\n")
    );
}
