//! C79: the memory limit holds, and is named.

use std::time::Duration;

use serde_json::json;
use wasmcron_runtime::{AttemptEnd, LoadStage, Runtime, RuntimeConfig};

use crate::harness::{Attempt, config, summary};

const LIMIT: u64 = 16 << 20;

async fn growing(then: &str) -> Attempt {
    Attempt::new(json!({ "do": "grow", "then": then }))
        .await
        .limits(|limits| limits.memory = LIMIT)
}

/// Resident memory of this process, in bytes.
fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = pages.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

#[tokio::test]
async fn c79_a_guest_that_copes_with_a_refusal_is_fine() {
    let report = growing("").await.run().await;
    assert!(summary(&report.end).contains("pages"));
    assert!(
        report.peak_memory <= LIMIT && report.peak_memory > LIMIT - (2 << 20),
        "{}",
        report.peak_memory
    );
}

#[tokio::test]
async fn c79_a_guest_that_aborts_after_a_refusal_names_the_limit() {
    for attempt in [
        growing("abort").await,
        Attempt::new(json!({ "do": "allocate" }))
            .await
            .limits(|limits| limits.memory = LIMIT),
    ] {
        let end = attempt.run().await.end;
        match &end {
            AttemptEnd::LimitExceeded {
                key, limit, found, ..
            } => {
                assert_eq!((*key, *limit), ("limits.memory", LIMIT));
                assert!(*found > LIMIT);
            }
            other => panic!("{other:?}"),
        }
        let message = end.message();
        assert!(
            message.contains("limits.memory") && message.contains("16777216"),
            "{message}"
        );
    }
}

#[tokio::test]
async fn c79_a_panic_about_something_else_stays_a_panic() {
    let end = growing("panic").await.run().await.end;
    assert!(
        matches!(&end, AttemptEnd::Trap(trap) if trap.kind == "panic"),
        "{end:?}"
    );
}

#[tokio::test]
async fn c79_a_guest_that_spins_after_a_refusal_times_out() {
    let limit = Duration::from_millis(300);
    let attempt = growing("spin")
        .await
        .limits(|limits| limits.time = Some(limit));
    assert_eq!(attempt.run().await.end, AttemptEnd::TimedOut { limit });
}

/// The measurement runs in a process of its own: other tests compile and grow beside it.
#[test]
fn c79_the_hosts_memory_is_bounded_too() {
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--ignored", "memory::measured_alone"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(
        child.status.success() && said.contains("1 passed"),
        "{said}"
    );
}

#[tokio::test]
#[ignore = "run by c79_the_hosts_memory_is_bounded_too"]
async fn measured_alone() {
    // Once, so that code and stacks are there.
    let _ = growing("abort").await.run().await.end.message();
    let before = resident();
    for _ in 0..20 {
        let _ = growing("abort").await.run().await.end.message();
    }
    let risen = resident().saturating_sub(before);
    assert!(risen < 20 << 20, "resident memory rose by {risen} bytes");
}

#[tokio::test]
async fn c79_a_memory_that_starts_too_large_is_refused_at_load_with_both_numbers() {
    let runtime = Runtime::new(RuntimeConfig {
        memory_max: LIMIT,
        ..config()
    })
    .unwrap();
    let large = wat::parse_str(
        "(component (core module $m (memory 512)) (core instance (instantiate $m)))",
    )
    .unwrap();
    let error = runtime.load("large", large.into()).await.unwrap_err();
    assert_eq!(error.stage, LoadStage::Limits);
    assert!(
        error.message.contains("33554432") && error.message.contains("16777216"),
        "{error}"
    );
}

#[tokio::test]
async fn c79_a_job_with_too_little_memory_for_its_plugin_says_so() {
    let attempt = Attempt::new(json!({ "do": "ok" })).await;
    let minimum = attempt.plugin.memory_minimum();
    assert!(minimum > 0);
    let end = attempt
        .limits(|limits| limits.memory = minimum / 2)
        .run()
        .await
        .end;
    assert!(
        matches!(end, AttemptEnd::LimitExceeded { key: "limits.memory", limit, found, .. } if limit == minimum / 2 && found >= minimum),
        "{end:?}"
    );
}
