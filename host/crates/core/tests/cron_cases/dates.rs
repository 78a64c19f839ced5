//! Which dates an expression means, and the search for rare ones.

use wasmcron_core::cron::{Cron, CronError, DayRule};

use super::{at, cron, fires, zone};

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
