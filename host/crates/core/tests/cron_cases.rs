//! The catalogued failures of other schedulers, each under its case number.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may panic"
)]

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use fastrand::Rng;
use wasmcron_core::cron::{Cron, CronError, DayRule, FieldFault, FieldName, Shift, Zone};

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
    let firings = cron(text)
        .iter_after(at(start), zone(zone_name))
        .collect_first(expected.len());
    assert_eq!(firings, expected, "{text} {zone_name} from {start}");
}

trait CollectFirst {
    fn collect_first(self, count: usize) -> Vec<String>;
}

impl<I: Iterator<Item = wasmcron_core::cron::Firing>> CollectFirst for I {
    fn collect_first(self, count: usize) -> Vec<String> {
        self.take(count)
            .map(|firing| firing.at.to_rfc3339_opts(SecondsFormat::Secs, true))
            .collect()
    }
}

fn fault(text: &str) -> (FieldName, FieldFault) {
    match Cron::parse(text) {
        Err(CronError::Field { field, fault, .. }) => (field, fault),
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn c01_weekday_one_is_monday_and_both_zero_and_seven_are_sunday() {
    let start = "2025-01-01T00:00:00Z";
    fires("0 0 * * 1", "UTC", start, &["2025-01-06T00:00:00Z"]);
    fires(
        "0 7 * * 1-5",
        "UTC",
        start,
        &[
            "2025-01-01T07:00:00Z",
            "2025-01-02T07:00:00Z",
            "2025-01-03T07:00:00Z",
            "2025-01-06T07:00:00Z",
        ],
    );
    for sunday in [
        "0 0 * * 0",
        "0 0 * * 7",
        "@weekly",
        "0 0 0 * * 7",
        "0 0 0 * * 0 *",
    ] {
        fires(sunday, "UTC", start, &["2025-01-05T00:00:00Z"]);
    }
}

#[test]
fn c02_a_time_inside_the_gap_fires_at_its_end() {
    let start = "2025-03-08T12:00:00-05:00";
    fires(
        "30 2 * * *",
        "America/New_York",
        start,
        &["2025-03-09T07:00:00Z", "2025-03-10T06:30:00Z"],
    );
    let firing = cron("30 2 * * *")
        .next_after(at(start), zone("America/New_York"))
        .unwrap();
    let Some(Shift::Moved { from }) = firing.note else {
        panic!("{firing:?}")
    };
    assert_eq!(from.to_string(), "2025-03-09 02:30:00");
}

#[test]
fn c02_several_times_inside_one_gap_are_one_firing() {
    // 02:00, 02:20 and 02:40 do not exist; 03:00 is the gap's end itself.
    fires(
        "0,20,40 2,3 * * *",
        "America/New_York",
        "2025-03-09T00:00:00-05:00",
        &[
            "2025-03-09T07:00:00Z",
            "2025-03-09T07:20:00Z",
            "2025-03-09T07:40:00Z",
        ],
    );
    let firing = cron("0,20,40 2,3 * * *")
        .next_after(at("2025-03-09T00:00:00-05:00"), zone("America/New_York"))
        .unwrap();
    assert!(
        matches!(firing.note, Some(Shift::Merged { count: 4, .. })),
        "{firing:?}"
    );
    // A start within the last second before the gap's end, and one at it.
    let twenty = "2025-03-09T07:20:00Z";
    fires(
        "20 2,3 * * *",
        "America/New_York",
        "2025-03-09T06:59:59.999Z",
        &["2025-03-09T07:00:00Z", twenty],
    );
    fires(
        "20 2,3 * * *",
        "America/New_York",
        "2025-03-09T07:00:00Z",
        &[twenty],
    );
}

#[test]
fn c03_a_repeated_time_fires_in_the_first_pass_only() {
    for start in ["2025-11-02T05:30:00Z", "2025-11-02T06:10:00Z"] {
        fires(
            "30 1 * * *",
            "America/New_York",
            start,
            &["2025-11-03T06:30:00Z"],
        );
    }
    let start = "2025-11-01T12:00:00-04:00";
    fires(
        "30 1 * * *",
        "America/New_York",
        start,
        &["2025-11-02T05:30:00Z", "2025-11-03T06:30:00Z"],
    );
    let job = cron("30 1 * * *");
    let mut firings = job.iter_after(at(start), zone("America/New_York"));
    assert_eq!(firings.next().unwrap().note, Some(Shift::FirstPass));
    assert_eq!(firings.next().unwrap().note, None);
}

#[test]
fn c04_wildcard_jobs_follow_the_wall_clock() {
    fires(
        "*/30 * * * *",
        "Australia/Melbourne",
        "2024-04-06T15:15:00Z",
        &[
            "2024-04-06T15:30:00Z",
            "2024-04-06T16:00:00Z",
            "2024-04-06T16:30:00Z",
        ],
    );
    fires(
        "0 * * * *",
        "America/New_York",
        "2025-11-02T00:30:00-04:00",
        &[
            "2025-11-02T05:00:00Z",
            "2025-11-02T06:00:00Z",
            "2025-11-02T07:00:00Z",
        ],
    );
    fires(
        "0 */2 * * *",
        "America/New_York",
        "2025-03-09T00:30:00-05:00",
        &[
            "2025-03-09T08:00:00Z",
            "2025-03-09T10:00:00Z",
            "2025-03-09T12:00:00Z",
        ],
    );
    assert!(cron("0 * * * *").follows_wall_clock());
    assert!(cron("* 30 2 * * *").follows_wall_clock());
    assert!(!cron("0-59 0-23 * * *").follows_wall_clock());
}

#[test]
fn c05_a_gap_at_midnight_does_not_lose_the_day() {
    let start = "2024-04-25T21:30:00+02:00";
    fires(
        "0 0 * * *",
        "Africa/Cairo",
        start,
        &["2024-04-25T22:00:00Z"],
    );
    fires(
        "0 */2 * * *",
        "Africa/Cairo",
        start,
        &[
            "2024-04-25T20:00:00Z",
            "2024-04-25T23:00:00Z",
            "2024-04-26T01:00:00Z",
        ],
    );
}

/// A time within two days of a change of one of these zones.
fn near_a_change(random: &mut Rng) -> (Zone, DateTime<Utc>) {
    const CHANGES: [(&str, &str); 10] = [
        ("America/New_York", "2025-03-09T07:00:00Z"),
        ("America/New_York", "2025-11-02T06:00:00Z"),
        ("Europe/Berlin", "2025-10-26T01:00:00Z"),
        ("Australia/Lord_Howe", "2025-04-05T15:00:00Z"),
        ("Australia/Lord_Howe", "2024-10-05T15:30:00Z"),
        ("Africa/Cairo", "2024-10-31T21:00:00Z"),
        ("Antarctica/Troll", "2025-03-30T01:00:00Z"),
        ("Antarctica/Casey", "2010-03-04T15:00:00Z"),
        ("Pacific/Apia", "2011-12-30T10:00:00Z"),
        ("Pacific/Kwajalein", "1969-09-30T13:00:00Z"),
    ];
    let (name, change) = CHANGES[random.usize(..CHANGES.len())];
    let millis = TimeDelta::milliseconds(random.i64(-172_800_000..172_800_000));
    (zone(name), at(change) + millis)
}

#[test]
fn c07_next_is_after_its_start_and_firings_strictly_increase() {
    fires(
        "30 1 * * *",
        "America/New_York",
        "2025-11-02T06:10:00Z",
        &["2025-11-03T06:30:00Z"],
    );
    let mut random = Rng::with_seed(7);
    let minutes = ["*", "*/15", "0", "30", "0,30", "15-45/10", "59", "5/25"];
    let hours = ["*", "*/2", "0", "1", "1-2", "2", "0-3", "3", "23", "22/1"];
    let days = [
        "* * *",
        "* * 0",
        "1,15 * 1",
        "L * *",
        "* * 0#1",
        "*/2 * 1-5",
        "* 3,11 *",
    ];
    for _ in 0..10_000 {
        let mut pick = |from: &[&str]| from[random.usize(..from.len())].to_owned();
        let seconds = pick(&["", "0 ", "*/20 ", "30 ", "59 "]);
        let text = format!(
            "{seconds}{} {} {}",
            pick(&minutes),
            pick(&hours),
            pick(&days)
        );
        let (zone, start) = near_a_change(&mut random);
        let mut last = start;
        for firing in cron(&text).iter_after(start, zone).take(6) {
            assert!(
                firing.at > last,
                "{text} {zone} from {start}: {} after {last}",
                firing.at
            );
            assert_eq!(firing.at.timestamp_subsec_nanos(), 0);
            last = firing.at;
        }
        assert!(last > start, "{text} {zone} from {start} never fires");
    }
}

#[test]
fn c08_dates_that_cannot_exist_are_refused() {
    for text in [
        "0 0 30 2 *",
        "0 0 31 4,6,9,11 *",
        "* * 31 11 *",
        "0 0 30 2 */2",
        "0 0 30W 2 *",
        "0 0 0 29 2 * 2025",
        "0 0 0 29 2 * 2100",
    ] {
        let error = Cron::parse(text).unwrap_err();
        assert!(
            matches!(error, CronError::NeverFires { .. }),
            "{text}: {error}"
        );
        assert!(error.to_string().contains(text), "{error}");
    }
    fires(
        "0 0 30 2 1",
        "UTC",
        "2025-01-01T00:00:00Z",
        &["2025-02-03T00:00:00Z"],
    );
}

#[test]
fn c08_a_rare_or_exhausted_date_costs_few_steps() {
    let calendar = 12 * (2199 - 1970 + 1);
    for (text, start, bound) in [
        ("* * * * *", "2025-01-01T00:00:30Z", 4),
        ("0 5 0 * * *", "2025-01-01T00:00:00Z", 10),
        ("0 0 29 2 *", "2096-02-29T00:00:00Z", 40),
        ("0 0 29 2 */7", "2060-02-29T00:00:00Z", 60),
        ("0 0 0 1 1 * 2020", "2025-01-01T00:00:00Z", 4),
        // Nothing from 2184 to the end of the calendar.
        ("0 0 29 2 */7", "2184-03-01T00:00:00Z", 40),
        ("59 59 23 31 12 5#5 *", "1970-01-01T00:00:00Z", calendar),
    ] {
        for zone_name in ["UTC", "America/New_York", "Pacific/Apia"] {
            let steps =
                Cron::parse(text).map_or(0, |cron| cron.steps_after(at(start), zone(zone_name)));
            assert!(
                steps <= bound,
                "{text} {zone_name}: {steps} steps, at most {bound} expected"
            );
        }
    }
}

#[test]
fn c09_the_horizon_covers_the_century_without_a_leap_day() {
    fires(
        "0 0 29 2 *",
        "UTC",
        "2096-02-29T00:00:00Z",
        &["2104-02-29T00:00:00Z"],
    );
    fires(
        "0 0 29 2 */7",
        "UTC",
        "2025-01-01T00:00:00Z",
        &[
            "2032-02-29T00:00:00Z",
            "2060-02-29T00:00:00Z",
            "2088-02-29T00:00:00Z",
        ],
    );
    // The longest wait there is: 40 years over 2100.
    fires(
        "0 0 29 2 */7",
        "UTC",
        "2088-03-01T00:00:00Z",
        &["2128-02-29T00:00:00Z"],
    );
    fires(
        "0 0 0 29 2 * 2104",
        "UTC",
        "2025-01-01T00:00:00Z",
        &["2104-02-29T00:00:00Z"],
    );
}

#[test]
fn c10_both_day_fields_unite_unless_one_begins_with_a_star() {
    let start = "2025-01-01T00:00:00Z";
    fires(
        "0 0 13 * 5",
        "UTC",
        start,
        &["2025-01-03T00:00:00Z", "2025-01-10T00:00:00Z"],
    );
    fires(
        "0 0 1-31 * 1",
        "UTC",
        start,
        &["2025-01-02T00:00:00Z", "2025-01-03T00:00:00Z"],
    );
    fires(
        "0 0 1-31/2 * 1",
        "UTC",
        start,
        &[
            "2025-01-03T00:00:00Z",
            "2025-01-05T00:00:00Z",
            "2025-01-06T00:00:00Z",
            "2025-01-07T00:00:00Z",
        ],
    );
    fires(
        "0 0 */2 * 1",
        "UTC",
        start,
        &["2025-01-13T00:00:00Z", "2025-01-27T00:00:00Z"],
    );
    fires(
        "0 0 * * 1",
        "UTC",
        start,
        &["2025-01-06T00:00:00Z", "2025-01-13T00:00:00Z"],
    );
    assert_eq!(cron("0 0 1-31/2 * 1").day_rule(), DayRule::Either);
    assert_eq!(cron("0 0 */2 * 1").day_rule(), DayRule::Both);
    assert_eq!(cron("0 0 ? * 1").day_rule(), DayRule::Both);
}

#[test]
fn c11_step_zero_is_an_error_that_names_the_field() {
    for (text, field) in [
        ("*/0 * * * *", FieldName::Minute),
        ("0 */0 * * * *", FieldName::Minute),
        ("*/0 * * * * *", FieldName::Second),
        ("10-20/0 * * * *", FieldName::Minute),
        ("0 0 * * 1/0", FieldName::DayOfWeek),
    ] {
        assert_eq!(
            fault(text),
            (
                field,
                FieldFault::Step {
                    step: "0".to_owned()
                }
            ),
            "{text}"
        );
        let message = Cron::parse(text).unwrap_err().to_string();
        assert!(message.contains(&field.to_string()), "{message}");
    }
}

#[test]
fn c13_garbage_after_a_valid_start_is_refused() {
    for text in [
        "* * * * * * * *ASDS",
        "5x * * * *",
        "5.0 * * * *",
        "1-2-3 * * * *",
        "*5 * * * *",
        "4294967296 * * * *",
        "*/4294967296 * * * *",
        "256 * * * *",
        "\u{663} * * * *",
        "*\u{a0}* * * *",
        "* * * *\n*",
        "",
        " \t ",
        ", * * * *",
        "0 0 L-3W * *",
        "0 0 1-15W * *",
        "0 0 L/2 * *",
        "0 0 * * L",
        "0 0 * * MON#6",
        "0 0 * * 1-5#2",
        "0 0 ?/2 * *",
        "? * * * *",
        "0 0 0 1 1 * 1969",
        "0 0 0 1 1 * 2200",
        "@reboot",
        "@every 5m",
    ] {
        assert!(Cron::parse(text).is_err(), "{text:?} was accepted");
    }
    let long = format!("{}0 * * * *", "0,".repeat(600));
    assert_eq!(
        Cron::parse(&long),
        Err(CronError::TooLong { bytes: long.len() })
    );
}

#[test]
fn c13_no_text_makes_the_parser_panic() {
    let mut random = Rng::with_seed(13);
    let pieces = [
        "0",
        "1",
        "5",
        "7",
        "31",
        "59",
        "99999999999",
        "*",
        "/",
        "-",
        ",",
        "?",
        "L",
        "W",
        "#",
        "@daily",
        "@",
        " ",
        " ",
        " ",
        "\t",
        "MON",
        "JAN",
        "sun",
        "é",
        "\0",
        "\u{3000}",
        ".",
        "LW",
    ];
    let mut accepted = 0;
    for _ in 0..50_000 {
        let count = random.usize(0..16);
        let text: String = (0..count)
            .map(|_| pieces[random.usize(..pieces.len())])
            .collect();
        match Cron::parse(&text) {
            Ok(cron) => {
                accepted += 1;
                assert_eq!(cron.to_string(), text);
                cron.next_after(DateTime::UNIX_EPOCH, Zone::UTC);
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
    assert!(accepted > 0);
}

#[test]
fn c13_messages_name_field_find_and_what_is_accepted() {
    for (text, parts) in [
        ("61 * * * *", ["minute", "61", "0 to 59"]),
        (
            "0 0 * * fri-sun",
            ["day-of-week", "fri-sun", "end the range at 7"],
        ),
        ("0 0 * nov-feb *", ["month", "nov-feb", "do not wrap round"]),
        ("0 0 * * monday", ["day-of-week", "monday", "SUN to SAT"]),
        ("0 0 15#2 * *", ["day-of-month", "15#2", "1 to 31"]),
        ("1,,2 * * * *", ["minute", "1,,2", "empty list element"]),
        (
            "* * * *",
            ["4 field(s)", "5 are accepted", "6 with seconds first"],
        ),
        ("@Daily", ["@Daily", "@daily", "lower case"]),
        ("@reboot", ["@reboot", "accepted", "@hourly"]),
        ("* * * * \u{2217}", ["\u{2217}", "character 9", "ASCII"]),
    ] {
        let message = Cron::parse(text).unwrap_err().to_string();
        for part in parts {
            assert!(
                message.contains(part),
                "{text}: {part:?} is missing in {message:?}"
            );
        }
    }
}

#[test]
fn c14_days_that_depend_on_the_month() {
    let utc = |text, start, expected: &[&str]| {
        let expected: Vec<String> = expected.iter().map(|day| format!("{day}:00Z")).collect();
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        fires(text, "UTC", start, &expected);
    };
    let new_year = "2025-01-01T00:00:00Z";
    utc(
        "0 0 1W * *",
        "2025-01-02T00:00:00Z",
        &["2025-02-03T00:00", "2025-03-03T00:00", "2025-04-01T00:00"],
    );
    utc("0 5 4W * *", "2025-04-17T00:00:00Z", &["2025-05-05T05:00"]);
    utc("0 5 LW * *", "2023-10-01T00:00:00Z", &["2023-10-31T05:00"]);
    utc("0 0 L 2 *", new_year, &["2025-02-28T00:00"]);
    utc(
        "0 0 L-3 * *",
        new_year,
        &["2025-01-28T00:00", "2025-02-25T00:00", "2025-03-28T00:00"],
    );
    utc("0 0 L-2 10 *", new_year, &["2025-10-29T00:00"]);
    utc(
        "0 0 * * FRI#3",
        new_year,
        &["2025-01-17T00:00", "2025-02-21T00:00", "2025-03-21T00:00"],
    );
    utc(
        "0 0 * * MON#5",
        new_year,
        &["2025-03-31T00:00", "2025-06-30T00:00", "2025-09-29T00:00"],
    );
    utc(
        "0 0 31W * *",
        new_year,
        &["2025-01-31T00:00", "2025-03-31T00:00", "2025-05-30T00:00"],
    );
    utc(
        "0 0 l * fril",
        new_year,
        &["2025-01-31T00:00", "2025-02-28T00:00", "2025-03-28T00:00"],
    );
    // Under a leading star the two must both hold.
    utc(
        "0 0 */2 * 5L",
        new_year,
        &["2025-01-31T00:00", "2025-04-25T00:00", "2025-06-27T00:00"],
    );
}

#[test]
fn c15_changes_that_are_not_one_hour() {
    fires(
        "15 2 * * *",
        "Australia/Lord_Howe",
        "2024-10-05T12:00:00+10:30",
        &["2024-10-05T15:30:00Z"],
    );
    fires(
        "45 1 * * *",
        "Australia/Lord_Howe",
        "2025-04-05T12:00:00+11:00",
        &["2025-04-05T14:45:00Z", "2025-04-06T15:15:00Z"],
    );
    fires(
        "30 1 * * *",
        "Antarctica/Troll",
        "2025-03-29T12:00:00Z",
        &["2025-03-30T01:00:00Z"],
    );
}

#[test]
fn c15_a_change_of_three_hours_is_caught_up_and_a_skipped_date_is_not() {
    // Casey went from +08 to +11 at 02:00 local time: exactly three hours.
    fires(
        "30 3 * * *",
        "Antarctica/Casey",
        "2009-10-17T12:00:00+08:00",
        &["2009-10-17T18:00:00Z", "2009-10-18T16:30:00Z"],
    );
    // Apia had no 30 December 2011: a Friday that never came.
    fires(
        "0 12 * * FRI",
        "Pacific/Apia",
        "2011-12-24T00:00:00-10:00",
        &["2012-01-05T22:00:00Z"],
    );
    fires(
        "0 */12 * * *",
        "Pacific/Apia",
        "2011-12-29T10:00:00-10:00",
        &[
            "2011-12-29T22:00:00Z",
            "2011-12-30T10:00:00Z",
            "2011-12-30T22:00:00Z",
        ],
    );
    // The one date that a year field asks for may be the one that the zone skipped.
    let only = cron("0 0 12 30 12 * 2011");
    assert_eq!(
        only.next_after(at("2011-01-01T00:00:00Z"), zone("Pacific/Apia")),
        None
    );
    assert!(
        only.next_after(at("2011-01-01T00:00:00Z"), Zone::UTC)
            .is_some()
    );
}

#[test]
fn c18_no_instant_makes_next_or_the_local_time_panic() {
    let frozen = [
        ("2019-10-27T00:30:00Z", "Europe/London"),
        ("2025-03-09T06:30:00Z", "America/New_York"),
        ("2025-10-26T00:59:59Z", "Europe/Sofia"),
    ];
    let texts = [
        "*/30 * * * *",
        "30 1 * * *",
        "30 2 * * *",
        "0 0 L * *",
        "*/7 * * * * *",
    ];
    for (now, zone_name) in frozen {
        for text in texts {
            assert!(cron(text).next_after(at(now), zone(zone_name)).is_some());
        }
        assert!(!zone(zone_name).local(at(now)).to_rfc3339().is_empty());
    }
    for text in texts {
        for zone_name in [
            "UTC",
            "Pacific/Kiritimati",
            "Pacific/Pago_Pago",
            "Africa/Monrovia",
        ] {
            let zone = zone(zone_name);
            let first = cron(text)
                .next_after(DateTime::<Utc>::MIN_UTC, zone)
                .unwrap();
            assert!(
                zone.local(first.at).to_rfc3339().starts_with("1970-01"),
                "{text} {zone}"
            );
            assert_eq!(cron(text).next_after(DateTime::<Utc>::MAX_UTC, zone), None);
            for extreme in [DateTime::<Utc>::MIN_UTC, DateTime::<Utc>::MAX_UTC] {
                assert!(!zone.local(extreme).to_rfc3339().is_empty());
            }
        }
    }
}

#[test]
fn c19_the_offset_belongs_to_the_instant_not_to_the_job() {
    fires(
        "0 9 * * *",
        "Europe/Berlin",
        "2025-03-28T00:00:00+01:00",
        &[
            "2025-03-28T08:00:00Z",
            "2025-03-29T08:00:00Z",
            "2025-03-30T07:00:00Z",
            "2025-03-31T07:00:00Z",
            "2025-04-01T07:00:00Z",
        ],
    );
}

#[test]
fn a_step_wider_than_its_field_is_accepted_with_a_warning() {
    for text in [
        "*/90 * * * *",
        "*/60 * * * *",
        "10-20/100 * * * *",
        "0 20/4 * * 7",
    ] {
        let job = cron(text);
        let [warning] = job.warnings() else {
            panic!("{text}: {:?}", job.warnings())
        };
        assert!(warning.contains("only"), "{text}: {warning}");
    }
    for text in ["*/59 * * * *", "0 0 1-7 * */7", "5/15 * * * *"] {
        assert!(cron(text).warnings().is_empty(), "{text}");
    }
}

#[test]
fn an_expression_is_its_text() {
    let text = " 0\t1 * *  MON-FRI ";
    assert_eq!(cron(text).to_string(), text);
    assert_eq!(cron(text), cron(text));
    assert_ne!(cron("0 0 * * 0"), cron("0 0 * * 7"));
    let json = serde_json::to_string(&cron("@daily")).unwrap();
    assert_eq!(json, "\"@daily\"");
    assert_eq!(serde_json::from_str::<Cron>(&json).unwrap(), cron("@daily"));
    assert!(serde_json::from_str::<Cron>("\"0 0 30 2 *\"").is_err());
    assert_eq!(
        serde_json::from_str::<Zone>("\"Asia/Shanghai\"").unwrap(),
        zone("Asia/Shanghai")
    );
}
