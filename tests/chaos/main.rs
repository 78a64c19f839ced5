//! Short drills with fixed seeds. `cargo xtask chaos` and `cargo xtask load` are the long ones.

#![allow(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test that cannot go on fails where it stands; what it prints is shown then"
)]

use std::time::Duration;

use tokio::sync::Mutex;
use wasmcron_tests::fleet::Timing;
use wasmcron_tests::{chaos, load};

/// Drills one after the other: they measure how long takeovers take.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

/// The seed whose first minute has every kind of fault.
const SEED: u64 = 1;

fn say(line: &str) {
    println!("{line}");
}

/// Every promise is kept through a minute of kills, freezes, cuts and outages.
#[tokio::test(flavor = "multi_thread")]
async fn a_minute_of_chaos() {
    let _turn = ONE_AT_A_TIME.lock().await;
    let options = chaos::Options::new(SEED, Duration::from_secs(60));
    let outcome = chaos::run(&options, say).await.expect("a verdict");
    let report = chaos::report(&outcome);
    println!("{report}");
    let counted = &outcome.verdict.counted;
    assert!(outcome.verdict.violations.is_empty(), "{report}");
    assert!(counted.firings > 100 && counted.rerun > 0, "{report}");
    assert!(!outcome.figures.takeovers.is_empty(), "{report}");
}

/// The settlement article's load, for a minute: nothing missed, nothing doubled, taken over in time.
#[tokio::test(flavor = "multi_thread")]
async fn a_minute_of_load() {
    let _turn = ONE_AT_A_TIME.lock().await;
    let options = load::Options {
        timing: Timing::Fast,
        takeover: Duration::from_secs(5),
        ..load::Options::new(Duration::from_secs(60))
    };
    let (counted, outcome) = load::run(&options, say).await.expect("a verdict");
    let report = chaos::report(&outcome);
    println!("{}\n{report}", counted.table());
    assert!(counted.passes(), "{}\n{report}", counted.table());
}
