//! What is refused, in which words, and what is accepted with a warning.

use chrono::DateTime;
use fastrand::Rng;
use wasmcron_core::cron::{Cron, CronError, FieldFault, FieldName, Zone};

use super::{cron, zone};

fn fault(text: &str) -> (FieldName, FieldFault) {
    match Cron::parse(text) {
        Err(CronError::Field { field, fault, .. }) => (field, fault),
        other => panic!("{text}: {other:?}"),
    }
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
