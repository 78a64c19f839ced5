//! The cron walk against a second, naive reading: every date, minute or second is looked at one
//! by one, and the clock-change rule is played out as a clock that somebody watches.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may panic"
)]

use chrono::{DateTime, Datelike, Days, NaiveDate, NaiveDateTime, TimeDelta, Timelike, Utc};
use fastrand::Rng;
use wasmcron_core::cron::{Cron, Zone};

const SEED: u64 = 20_250_309;

/// Does a plain list (stars, values, ranges, steps) hold the value?
fn listed(field: &str, value: u32, min: u32, max: u32) -> bool {
    field.split(',').any(|element| {
        let (base, step) = match element.split_once('/') {
            Some((base, step)) => (base, step.parse().unwrap()),
            None => (element, 1),
        };
        let (low, high) = match base.split_once('-') {
            _ if base == "*" => (min, max),
            Some((low, high)) => (low.parse().unwrap(), high.parse().unwrap()),
            None if element.contains('/') => (base.parse().unwrap(), max),
            None => (base.parse().unwrap(), base.parse().unwrap()),
        };
        (low..=high).contains(&value) && (value - low).is_multiple_of(step)
    })
}

fn length(date: NaiveDate) -> u32 {
    let next = date.with_day(28).unwrap() + Days::new(4);
    (next - TimeDelta::days(i64::from(next.day()))).day()
}

fn is_workday(date: NaiveDate) -> bool {
    date.weekday().number_from_monday() <= 5
}

/// Is `date` the workday of its month that lies nearest to `day`? Ties do not exist.
fn is_nearest_workday(date: NaiveDate, day: u32) -> bool {
    let month = (1..=length(date)).map(|day| date.with_day(day).unwrap());
    date.with_day(day).is_some()
        && month
            .filter(|date| is_workday(*date))
            .min_by_key(|date| date.day().abs_diff(day))
            == Some(date)
}

fn day_of_month_matches(field: &str, date: NaiveDate) -> bool {
    field.split(',').any(|element| match element {
        "L" => date.day() == length(date),
        "LW" => is_nearest_workday(date, length(date)),
        _ if element.starts_with("L-") => {
            date.day() + element[2..].parse::<u32>().unwrap() == length(date)
        }
        _ if element.ends_with('W') => {
            is_nearest_workday(date, element[..element.len() - 1].parse().unwrap())
        }
        _ => listed(element, date.day(), 1, 31),
    })
}

fn day_of_week_matches(field: &str, date: NaiveDate) -> bool {
    let weekday = date.weekday().num_days_from_sunday();
    let is = |text: &str| text.parse::<u32>().unwrap() % 7 == weekday;
    field.split(',').any(|element| {
        if let Some((day, n)) = element.split_once('#') {
            return is(day) && (date.day() - 1) / 7 + 1 == n.parse::<u32>().unwrap();
        }
        if let Some(day) = element.strip_suffix('L') {
            return is(day) && date.day() + 7 > length(date);
        }
        listed(element, weekday, 0, 7) || (weekday == 0 && listed(element, 7, 0, 7))
    })
}

fn date_matches(fields: &[&str], date: NaiveDate) -> bool {
    let [.., month_day, month, weekday] = *fields else {
        panic!("five fields")
    };
    let (in_month, in_week) = (
        day_of_month_matches(month_day, date),
        day_of_week_matches(weekday, date),
    );
    let star = month_day.starts_with('*') || weekday.starts_with('*');
    listed(month, date.month(), 1, 12)
        && if star {
            in_month && in_week
        } else {
            in_month || in_week
        }
}

/// Fields: second, minute, hour, then the date's.
fn time_matches(fields: &[&str], local: NaiveDateTime) -> bool {
    listed(fields[0], local.second(), 0, 59)
        && listed(fields[1], local.minute(), 0, 59)
        && listed(fields[2], local.hour(), 0, 23)
        && date_matches(fields, local.date())
}

/// Every firing after `start` up to `end`, by watching the clock in steps of `step` seconds.
fn watch(
    fields: &[&str],
    zone: Zone,
    start: DateTime<Utc>,
    end: DateTime<Utc>,
    step: i64,
) -> Vec<DateTime<Utc>> {
    let step = TimeDelta::seconds(step);
    let three_hours = TimeDelta::hours(3);
    let wild = fields[..3].iter().any(|field| field.starts_with('*'));
    let wall = |at| zone.local(at).naive_local();
    // Watching begins early enough to know of a change just before the start.
    let mut at = start - TimeDelta::hours(8);
    let mut expected = wall(at);
    // Local times before this one were shown already.
    let mut done = expected;
    let mut firings = Vec::new();
    while at <= end {
        let now = wall(at);
        let jump = now - expected;
        if jump.abs() > three_hours || wild {
            done = now;
        }
        let mut fires = false;
        let mut shown = done;
        while shown <= now {
            fires |= time_matches(fields, shown);
            shown += step;
        }
        done = done.max(shown);
        if fires && at > start {
            firings.push(at);
        }
        at += step;
        expected = now + step;
    }
    firings
}

/// A random list for a field; `stars` says whether it may begin with a star.
fn random_list(random: &mut Rng, min: u32, max: u32, stars: bool) -> String {
    let (a, b) = (random.u32(min..=max), random.u32(min..=max));
    match random.u32(if stars { 0 } else { 3 }..8) {
        0 => "*".to_owned(),
        1 | 2 => format!("*/{}", random.u32(1..=max)),
        3 => format!("{}-{}", a.min(b), a.max(b)),
        4 => format!("{}-{}/{}", a.min(b), a.max(b), random.u32(1..=max)),
        5 => format!("{a},{b}"),
        6 => format!("{a}/{}", random.u32(1..=max)),
        _ => a.to_string(),
    }
}

fn random_month_day(random: &mut Rng) -> String {
    match random.u32(0..8) {
        0 => "L".to_owned(),
        1 => "LW".to_owned(),
        2 => format!("L-{}", random.u32(1..=30)),
        3 => format!("{}W", random.u32(1..=31)),
        4 => format!("{}W,{},L", random.u32(1..=31), random.u32(1..=31)),
        _ => random_list(random, 1, 31, true),
    }
}

fn random_weekday(random: &mut Rng) -> String {
    match random.u32(0..6) {
        0 => format!("{}#{}", random.u32(0..=7), random.u32(1..=5)),
        1 => format!("{}L", random.u32(0..=7)),
        2 => format!(
            "{}#1,{}L,{}",
            random.u32(0..=7),
            random.u32(0..=7),
            random.u32(0..=7)
        ),
        _ => random_list(random, 0, 7, true),
    }
}

#[test]
fn dates_agree_with_looking_at_every_day_of_six_years() {
    let mut random = Rng::with_seed(SEED);
    for _ in 0..600 {
        let (day, month, weekday) = (
            random_month_day(&mut random),
            random_list(&mut random, 1, 12, true),
            random_weekday(&mut random),
        );
        let fields = [day.as_str(), month.as_str(), weekday.as_str()];
        let start = NaiveDate::from_ymd_opt(random.i32(1970..2190), 1, 1).unwrap();
        let end = start + TimeDelta::days(6 * 365);
        let expected: Vec<NaiveDate> = start
            .iter_days()
            .take_while(|date| *date <= end)
            .filter(|d| date_matches(&fields, *d))
            .collect();
        let text = format!("0 0 {day} {month} {weekday}");
        let actual: Vec<NaiveDate> = match Cron::parse(&text) {
            Ok(cron) => {
                let start =
                    start.and_time(chrono::NaiveTime::MIN).and_utc() - TimeDelta::seconds(1);
                let firings = cron
                    .iter_after(start, Zone::UTC)
                    .map(|firing| firing.at.date_naive());
                firings.take_while(|date| *date <= end).collect()
            }
            Err(_) => Vec::new(),
        };
        assert_eq!(actual, expected, "{text} from {start}");
    }
}

/// Zones with all kinds of changes: half an hour, two hours, three hours, at midnight, a skipped
/// date, four a year.
const ZONES: [&str; 17] = [
    "America/New_York",
    "Europe/Berlin",
    "Europe/London",
    "Australia/Lord_Howe",
    "Antarctica/Troll",
    "Antarctica/Casey",
    "Antarctica/Vostok",
    "Africa/Cairo",
    "Africa/Casablanca",
    "America/Sao_Paulo",
    "America/Santiago",
    "America/Havana",
    "Asia/Tehran",
    "Asia/Gaza",
    "Pacific/Apia",
    "Pacific/Kwajalein",
    "Asia/Pyongyang",
];

/// Every change of these zones from 1975 to 2037, to the minute.
fn changes() -> Vec<(Zone, DateTime<Utc>)> {
    let mut found = Vec::new();
    let instant = |seconds| DateTime::from_timestamp(seconds, 0).unwrap();
    for zone in ZONES.map(|name| Zone::parse(name).unwrap()) {
        let offset = |seconds| zone.local(instant(seconds)).offset().local_minus_utc();
        for from in (157_766_400i64..2_145_916_800).step_by(86_400) {
            let (mut low, mut high) = (from, from + 86_400);
            if offset(low) == offset(high) {
                continue;
            }
            while high - low > 60 {
                let middle = low + (high - low) / 120 * 60;
                if offset(middle) == offset(low) {
                    low = middle;
                } else {
                    high = middle;
                }
            }
            found.push((zone, instant(high)));
        }
    }
    found
}

/// Compares walk and watch over a stretch that holds a change of the zone.
fn compare(rounds: u32, step: i64, hours: i64) {
    let mut random = Rng::with_seed(SEED + step.unsigned_abs());
    let changes = changes();
    assert!(changes.len() > 1_000, "{} changes", changes.len());
    for _ in 0..rounds {
        let (zone, change) = changes[random.usize(..changes.len())];
        let stars = random.bool();
        // Times inside gaps and overlaps are what the rule is about: mostly small hours.
        let hour = if random.bool() {
            random_list(&mut random, 0, 3, stars)
        } else {
            random_list(&mut random, 0, 23, stars)
        };
        let second = if step == 60 {
            "0".to_owned()
        } else {
            random_list(&mut random, 0, 59, stars)
        };
        let minute = random_list(&mut random, 0, 59, stars);
        let weekday = if random.bool() {
            "*".to_owned()
        } else {
            random_weekday(&mut random)
        };
        let text = format!("{second} {minute} {hour} * * {weekday}");
        let fields: Vec<&str> = text.split(' ').collect();
        let cron = Cron::parse(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let back = TimeDelta::seconds(random.i64(-3 * 3_600..hours * 1_800));
        let start = change - back;
        let end = start + TimeDelta::hours(hours);
        // Watch on whole steps, from a start that need not be one.
        let whole = DateTime::from_timestamp(start.timestamp().div_euclid(step) * step, 0).unwrap();
        let mut expected = watch(&fields, zone, whole - TimeDelta::seconds(step), end, step);
        expected.retain(|at| *at > start);
        let firings = cron.iter_after(start, zone).map(|firing| firing.at);
        let actual: Vec<DateTime<Utc>> = firings.take_while(|at| *at <= end).collect();
        assert_eq!(
            actual, expected,
            "{text} {zone} from {start}, change at {change}"
        );
    }
}

#[test]
fn firings_agree_with_watching_the_clock_minute_by_minute() {
    compare(1_000, 60, 60);
}

#[test]
fn firings_agree_with_watching_the_clock_second_by_second() {
    compare(100, 1, 6);
}
