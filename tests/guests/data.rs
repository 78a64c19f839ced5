//! C84: guests that hand over huge or broken data.

use serde_json::json;
use wasmcron_runtime::AttemptEnd;

use crate::harness::{Attempt, run, summary};

fn over_the_payload(end: &AttemptEnd) {
    match end {
        AttemptEnd::LimitExceeded { key, trap, .. } => {
            assert_eq!(*key, "limits.checkpoint");
            assert!(trap.message.contains("too much data"), "{trap}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn c84_a_gigabyte_of_log_is_not_copied() {
    let attempt = Attempt::new(json!({ "do": "log-huge", "count": 1024 }))
        .await
        .limits(|limits| limits.memory = 3 << 30);
    over_the_payload(&attempt.run().await.end);
}

#[tokio::test]
async fn c84_ten_million_empty_fields_are_not_copied() {
    let attempt = Attempt::new(json!({ "do": "log-fields", "count": 10_000_000 }))
        .await
        .limits(|limits| limits.memory = 1 << 30);
    over_the_payload(&attempt.run().await.end);
}

#[tokio::test]
async fn c84_bytes_that_are_no_text_are_a_trap() {
    let attempt = Attempt::new(json!({ "do": "log-broken-text" })).await;
    let host = attempt.host.clone();
    let end = attempt.run().await.end;
    assert!(
        matches!(&end, AttemptEnd::Trap(trap) if trap.message.contains("utf-8")),
        "{end:?}"
    );
    assert!(host.seen().log.is_empty());
}

#[tokio::test]
async fn c84_a_checkpoint_of_one_byte_too_many_is_an_error_that_the_guest_sees() {
    let save = |count: u32| async move {
        let attempt = Attempt::new(json!({ "do": "checkpoint", "count": count }))
            .await
            .limits(|limits| limits.checkpoint = 100_000);
        let host = attempt.host.clone();
        let end = attempt.run().await.end;
        (summary(&end).to_owned(), host.seen().saves.len())
    };
    assert_eq!(save(100_000).await, ("Ok(())".to_owned(), 1));
    let (answer, saves) = save(100_001).await;
    assert!(answer.contains("TooLarge(100000)"), "{answer}");
    assert_eq!(saves, 0);
}

#[tokio::test]
async fn c84_log_lines_are_capped_and_what_was_dropped_is_counted() {
    let attempt = Attempt::new(json!({ "do": "log-flood", "count": 100_000 }))
        .await
        .limits(|limits| limits.log = 10_000);
    let host = attempt.host.clone();
    let report = attempt.run().await;
    assert_eq!(summary(&report.end), "flooded");
    let log = host.seen().log;
    let (last, kept) = log.split_last().unwrap();
    assert_eq!(kept.len() as u64 + report.log_dropped_lines, 100_000);
    assert!(kept.iter().map(|line| line.message.len()).sum::<usize>() < 10_100);
    assert_eq!(last.source.as_str(), "host");
    assert!(
        last.message.contains(&report.log_dropped_lines.to_string()),
        "{}",
        last.message
    );
}

#[tokio::test]
async fn c84_the_rate_of_log_lines_is_capped() {
    let attempt = Attempt::new(json!({ "do": "log-flood", "count": 20_000 }))
        .await
        .limits(|limits| limits.log_rate = 10);
    let report = attempt.run().await;
    assert!(
        report.log_dropped_lines > 10_000,
        "{}",
        report.log_dropped_lines
    );
}

#[tokio::test]
async fn c84_line_feeds_and_escapes_are_made_visible() {
    let attempt =
        Attempt::new(json!({ "do": "log", "text": "a\nforged: line\r\u{1b}[2J\u{202e}" })).await;
    let host = attempt.host.clone();
    let _ = attempt.run().await.end.message();
    let line = host.seen().log.remove(0);
    let expected = "a\\nforged: line\\r\\u{1b}[2J\\u{202e}";
    assert_eq!(line.message, expected);
    assert_eq!(line.fields, [("field".to_owned(), expected.to_owned())]);
}

#[tokio::test]
async fn c84_long_lines_are_cut() {
    let attempt = Attempt::new(json!({ "do": "log", "text": "x".repeat(50_000) }))
        .await
        .limits(|limits| limits.log_line = 1000);
    let host = attempt.host.clone();
    let report = attempt.run().await;
    let line = host.seen().log.remove(0);
    assert!(line.message.len() < 1010 && line.message.ends_with('…'));
    assert!(
        report.log_dropped_bytes > 90_000,
        "{}",
        report.log_dropped_bytes
    );
}

#[tokio::test]
async fn resources_that_are_never_let_go_of_hit_their_limit() {
    for deed in ["leak-pollables", "leak-requests"] {
        let end = run(json!({ "do": deed })).await;
        assert!(
            matches!(
                end,
                AttemptEnd::LimitExceeded {
                    key: "limits.resources",
                    ..
                }
            ),
            "{end:?}"
        );
    }
}
