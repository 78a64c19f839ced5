//! Clock changes: gaps, overlaps, skipped dates, and no instant that makes anything panic.

use chrono::{DateTime, TimeDelta, Utc};
use fastrand::Rng;
use wasmcron_core::cron::{Shift, Zone};

use super::{at, cron, fires, zone};

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
    // A job at the gap's end alone is where it always is.
    let regular = cron("0 3 * * *")
        .next_after(at("2025-03-09T00:00:00-05:00"), zone("America/New_York"))
        .unwrap();
    assert_eq!(
        (regular.at, regular.note),
        (at("2025-03-09T07:00:00Z"), None)
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
    let note = |text| {
        cron(text)
            .next_after(at(start), zone("America/New_York"))
            .unwrap()
            .note
    };
    assert_eq!(note("0 1 * * *"), Some(Shift::FirstPass));
    assert_eq!(note("59 0 2 11 *"), None);
    assert_eq!(note("0 2 2 11 *"), None);
    assert_eq!(
        note("*/10 1 2 11 *"),
        None,
        "a wildcard job fires in both passes"
    );
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
    // Vostok went back from +07 to +00 at midnight of 1 February 1994. Seven hours are no
    // overlap but a new reckoning, so the evening comes again.
    fires(
        "0 20 * * *",
        "Antarctica/Vostok",
        "1994-01-31T00:00:00+07:00",
        &[
            "1994-01-31T13:00:00Z",
            "1994-01-31T20:00:00Z",
            "1994-02-01T20:00:00Z",
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
