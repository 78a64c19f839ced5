//! Time limits, cancellation, leases, and guests that keep their threads busy.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use serde_json::json;
use wasmcron_runtime::{
    AttemptControl, AttemptEnd, Runtime, RuntimeConfig, StopReason, Why, boot_millis,
};

use crate::harness::{Attempt, PATIENCE, config, hostile_bytes, run, runtime, summary};

const LIMIT: Duration = Duration::from_millis(500);

async fn times_out(attempt: Attempt) {
    let attempt = attempt.limits(|limits| limits.time = Some(LIMIT));
    let report = attempt.run().await;
    assert_eq!(report.end, AttemptEnd::TimedOut { limit: LIMIT });
    assert!(report.wall >= LIMIT, "{:?}", report.wall);
    assert!(
        report.wall < LIMIT + Duration::from_secs(2),
        "{:?}",
        report.wall
    );
}

#[tokio::test]
async fn c77_a_spinning_guest_times_out() {
    times_out(Attempt::new(json!({ "do": "spin" })).await).await;
}

#[tokio::test]
async fn c77_a_sleeping_guest_times_out() {
    times_out(Attempt::new(json!({ "do": "sleep", "count": 60_000 })).await).await;
}

#[tokio::test]
async fn c77_a_guest_in_a_host_call_that_hangs_times_out() {
    let attempt = Attempt::new(json!({ "do": "save", "count": 1 })).await;
    attempt.host.stall.store(true, Ordering::SeqCst);
    let host = attempt.host.clone();
    times_out(attempt).await;
    assert_eq!(host.seen().stalled, 1, "it was in the call");
}

#[tokio::test]
async fn c77_a_guest_that_spins_while_it_is_instantiated_times_out() {
    let attempt = Attempt::new(json!({ "do": "ok" })).await;
    times_out(attempt.grants(|grants| grants.env.push(("SPIN_AT_START".into(), "1".into())))).await;
}

#[tokio::test]
async fn c77_the_guest_is_told_before_its_time_is_over() {
    let attempt = Attempt::new(json!({ "do": "wait-stop" }))
        .await
        .limits(|limits| {
            limits.time = Some(PATIENCE);
            limits.time_notice = Some(PATIENCE);
        });
    let end = attempt.run().await.end;
    assert!(summary(&end).contains("TimeOutNear"), "{end:?}");
}

#[tokio::test(flavor = "current_thread")]
async fn c78_one_busy_guest_thread_is_still_interrupted_and_shared() {
    let runtime = Runtime::new(RuntimeConfig {
        guest_threads: 1,
        ..config()
    })
    .unwrap();
    let plugin = runtime.load("hostile", hostile_bytes()).await.unwrap();
    let deed = |deed: &str| Attempt::of(runtime.clone(), plugin.clone(), &json!({ "do": deed }));
    let busy = deed("spin");
    let control = busy.control();
    let busy = busy.start();
    // Others run on the same thread meanwhile.
    for _ in 0..5 {
        assert_eq!(summary(&deed("ok").run().await.end), "ok");
    }
    assert!(!busy.is_finished());
    control.interrupt(Why::Shutdown);
    assert_eq!(
        busy.await.unwrap().end,
        AttemptEnd::Interrupted { why: Why::Shutdown }
    );
}

/// Host timers on their own threads against two guests that spin on all guest threads.
#[test]
fn c54_busy_guests_do_not_delay_the_hosts_timers() {
    let control_threads = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    control_threads.block_on(async {
        let mut controls = Vec::new();
        let mut busy = Vec::new();
        for _ in 0..2 {
            let attempt = Attempt::new(json!({ "do": "spin" })).await;
            controls.push(attempt.control());
            busy.push(attempt.start());
        }
        let beats = Arc::new(AtomicU32::new(0));
        let counter = beats.clone();
        let heart = tokio::spawn(async move {
            let mut beats = Vec::new();
            for _ in 0..30 {
                let before = Instant::now();
                tokio::time::sleep(Duration::from_millis(20)).await;
                beats.push(before.elapsed());
                counter.fetch_add(1, Ordering::SeqCst);
            }
            beats.sort();
            beats
        });
        let taken = heart.await.unwrap();
        assert_eq!(beats.load(Ordering::SeqCst), 30);
        // On threads shared with the guests the middle one takes 170 ms and more. The latest one
        // depends on what else the machine does; it must stay below the time a lease is renewed in.
        let (middle, latest) = (taken[15], taken[29]);
        assert!(
            middle < Duration::from_millis(100),
            "the middle beat took {middle:?}"
        );
        assert!(
            latest < Duration::from_secs(2),
            "the latest beat took {latest:?}"
        );
        assert!(busy.iter().all(|busy| !busy.is_finished()));
        for control in controls {
            control.interrupt(Why::Cancelled);
        }
        for busy in busy {
            assert_eq!(
                busy.await.unwrap().end,
                AttemptEnd::Interrupted {
                    why: Why::Cancelled
                }
            );
        }
    });
}

#[tokio::test]
async fn a_guest_that_ignores_stop_is_interrupted() {
    let attempt = Attempt::new(json!({ "do": "ignore-stop" })).await;
    let control = attempt.control();
    let running = attempt.start();
    control.stop(StopReason::Cancelled);
    control.interrupt(Why::Cancelled);
    assert_eq!(
        running.await.unwrap().end,
        AttemptEnd::Interrupted {
            why: Why::Cancelled
        }
    );
}

#[tokio::test]
async fn a_guest_that_waits_hears_the_stop() {
    for (reason, heard) in [
        (StopReason::Draining, "Draining"),
        (StopReason::Cancelled, "Cancelled"),
        (StopReason::Reload, "Reload"),
        (StopReason::LockLost, "LockLost"),
    ] {
        let attempt = Attempt::new(json!({ "do": "wait-stop" })).await;
        let control = attempt.control();
        let running = attempt.start();
        control.stop(reason);
        let end = running.await.unwrap().end;
        assert!(summary(&end).contains(heard), "{end:?}");
    }
}

#[tokio::test]
async fn without_its_lease_a_guest_ends_wherever_it_is() {
    for deed in [
        json!({ "do": "spin" }),
        json!({ "do": "sleep", "count": 60_000 }),
    ] {
        let attempt = Attempt::new(deed).await;
        attempt.control().extend_lease(boot_millis() + 200);
        assert_eq!(attempt.run().await.end, AttemptEnd::LeaseLost);
    }
}

#[tokio::test]
async fn a_lease_that_is_extended_in_time_holds() {
    let attempt = Attempt::new(json!({ "do": "sleep", "count": 600 })).await;
    let control = attempt.control();
    control.extend_lease(boot_millis() + 300);
    let running = attempt.start();
    let keeper = tokio::spawn(async move {
        loop {
            control.extend_lease(boot_millis() + 300);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    assert_eq!(summary(&running.await.unwrap().end), "slept");
    keeper.abort();
}

#[tokio::test]
async fn an_attempt_whose_lease_is_over_never_begins() {
    let attempt = Attempt::new(json!({ "do": "save", "count": 1 })).await;
    attempt
        .control()
        .extend_lease(boot_millis().saturating_sub(1));
    let host = attempt.host.clone();
    assert_eq!(attempt.run().await.end, AttemptEnd::LeaseLost);
    assert!(host.seen().saves.is_empty());
}

#[tokio::test]
async fn dropping_the_future_ends_the_guest() {
    let attempt = Attempt::new(json!({ "do": "save-until-stop" })).await;
    let host = attempt.host.clone();
    let running = attempt.start();
    host.until(|seen| seen.saves.len() > 3).await;
    running.abort();
    assert!(running.await.is_err_and(|error| error.is_cancelled()));
    // The host is let go of, so the guest is gone.
    let gone = async {
        while Arc::strong_count(&host) > 1 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, gone)
        .await
        .expect("the guest to end");
}

#[tokio::test]
async fn an_attempt_may_be_awaited_from_any_runtime() {
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        let other = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        send.send(other.block_on(run(json!({ "do": "ok" }))))
            .unwrap();
    });
    let end = tokio::task::spawn_blocking(move || receive.recv().unwrap())
        .await
        .unwrap();
    assert_eq!(summary(&end), "ok");
    drop((runtime(), AttemptControl::new()));
}
