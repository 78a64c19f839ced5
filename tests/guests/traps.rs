//! Guests that break, and what is told of it.

use serde_json::json;
use wasmcron_runtime::{AttemptEnd, Blame, Runtime, RuntimeConfig, Trap};

use crate::harness::{Attempt, config, hostile_bytes, run, summary};

fn trap(end: AttemptEnd) -> Trap {
    assert_eq!(end.blame(), Blame::Guest);
    match end {
        AttemptEnd::Trap(trap) => trap,
        other => panic!("no trap: {other:?}"),
    }
}

#[tokio::test]
async fn c76_a_trap_leaves_nothing_behind() {
    for _ in 0..100 {
        assert_eq!(trap(run(json!({ "do": "trap" })).await).kind, "unreachable");
        assert_eq!(summary(&run(json!({ "do": "ok" })).await), "ok");
    }
}

#[tokio::test]
async fn a_panic_is_told_with_text_and_stack() {
    let trap = trap(run(json!({ "do": "panic", "text": "boom: index 3" })).await);
    assert_eq!(trap.kind, "panic");
    assert!(trap.message.starts_with("panicked at "), "{}", trap.message);
    assert!(trap.message.ends_with("boom: index 3"), "{}", trap.message);
    assert!(
        trap.backtrace
            .is_some_and(|trace| trace.contains("hostile"))
    );
}

#[tokio::test]
async fn a_chatty_guest_does_not_lose_its_panic_text() {
    let attempt = Attempt::new(json!({ "do": "chatty", "count": 2048, "then": "panic" })).await;
    let host = attempt.host.clone();
    let report = attempt.run().await;
    let trap = trap(report.end);
    assert_eq!(trap.kind, "panic");
    assert!(trap.message.ends_with("as asked"), "{}", trap.message);
    assert!(report.log_dropped_lines > 0);
    let kept: usize = host.seen().log.iter().map(|line| line.message.len()).sum();
    assert!(kept < (1 << 20) + (16 << 10), "{kept} bytes of log kept");
}

#[tokio::test]
async fn output_becomes_log_lines_without_terminal_codes() {
    let attempt = Attempt::new(json!({ "do": "chatty", "count": 1 })).await;
    let host = attempt.host.clone();
    assert_eq!(summary(&attempt.run().await.end), "done");
    let lines: Vec<_> = host
        .seen()
        .log
        .into_iter()
        .map(|line| (line.source.as_str(), line.message))
        .collect();
    assert!(
        lines.contains(&(
            "stdout",
            "standard output with \\u{1b}[31mcolour".to_owned()
        )),
        "{lines:?}"
    );
    assert!(
        lines.contains(&("stdout", "an unfinished line".to_owned())),
        "{lines:?}"
    );
    assert!(
        lines
            .iter()
            .any(|(source, line)| *source == "stderr" && line.len() == 1023)
    );
}

#[tokio::test]
async fn exit_and_deep_recursion_are_traps_and_the_host_lives() {
    assert_eq!(trap(run(json!({ "do": "exit" })).await).kind, "exit");
    let deep = trap(run(json!({ "do": "recurse", "count": 0 })).await);
    assert!(
        ["memory-out-of-bounds", "stack-overflow"].contains(&deep.kind.as_str()),
        "{deep:?}"
    );
    assert_eq!(summary(&run(json!({ "do": "ok" })).await), "ok");
}

#[tokio::test]
async fn results_come_back_as_the_guest_gave_them() {
    let fatal = run(json!({ "do": "fatal", "text": "no\nhope\u{1b}[0m" })).await;
    assert_eq!(
        fatal,
        AttemptEnd::Fatal {
            message: "no\\nhope\\u{1b}[0m".into()
        }
    );
    let retry = run(json!({ "do": "retry", "text": "later", "count": 1500 })).await;
    let after = Some(std::time::Duration::from_millis(1500));
    assert_eq!(
        retry,
        AttemptEnd::Retry {
            message: "later".into(),
            after
        }
    );
    assert_eq!(
        run(json!({ "do": "cancelled" })).await,
        AttemptEnd::Cancelled
    );
    assert_eq!(run(json!({ "do": "yield" })).await, AttemptEnd::Yielded);
    let long = run(json!({ "do": "fatal", "text": "x".repeat(100_000) })).await;
    assert!(long.message().len() < 4200);
}

#[tokio::test]
async fn the_call_reaches_the_guest() {
    let end = run(json!({ "do": "call" })).await;
    let call = summary(&end);
    for part in [
        "hostile@2026-01-01T00:00:00Z",
        "00000000000000000042",
        "attempt: 2",
        "Resume",
    ] {
        assert!(call.contains(part), "{part} in {call}");
    }
}

#[tokio::test]
async fn allocation_on_demand_serves_the_same_guests() {
    let pool = None;
    let runtime = Runtime::new(RuntimeConfig { pool, ..config() }).unwrap();
    let plugin = runtime.load("hostile", hostile_bytes()).await.unwrap();
    for (deed, done) in [("ok", true), ("trap", false), ("ok", true)] {
        let attempt = Attempt::of(runtime.clone(), plugin.clone(), &json!({ "do": deed }));
        assert_eq!(
            matches!(attempt.run().await.end, AttemptEnd::Done { .. }),
            done
        );
    }
}
