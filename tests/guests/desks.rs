//! Checkpoints, offers, state, progress and secrets.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;
use wasmcron_runtime::{
    AttemptEnd, Limits, MigrateError, Runtime, RuntimeConfig, StateWrite, StopReason, Why,
    WriteRefused, boot_millis,
};

use crate::harness::{Attempt, config, hostile, hostile_bytes, run, runtime, summary};

fn last_save(attempt: &crate::harness::Recorder) -> Option<u32> {
    attempt
        .seen()
        .saves
        .last()
        .map(|bytes| u32::from_le_bytes(bytes[..].try_into().unwrap()))
}

#[tokio::test]
async fn a_checkpoint_is_loaded_and_the_newest_own_one_after_a_save() {
    assert_eq!(summary(&run(json!({ "do": "load" })).await), "None");
    let attempt = Attempt::new(json!({ "do": "load" })).await.checkpoint(b"");
    let end = attempt.run().await.end;
    assert!(
        summary(&end).contains("data: []"),
        "empty bytes are a checkpoint: {end:?}"
    );
    let attempt = Attempt::new(json!({ "do": "save-and-load" }))
        .await
        .checkpoint(b"earlier");
    let end = attempt.run().await.end;
    let said = summary(&end);
    assert!(
        said.contains("[109, 105, 110, 101]")
            && said.contains("attempt: 2")
            && said.contains("schema: 3"),
        "{said}"
    );
}

#[tokio::test]
async fn a_refused_save_is_an_error_that_the_guest_sees() {
    for (refused, word) in [
        (WriteRefused::Fenced, "Fenced"),
        (WriteRefused::TooLarge(5), "TooLarge(5)"),
        (
            WriteRefused::Unavailable("store is away".into()),
            "store is away",
        ),
    ] {
        let attempt = Attempt::new(json!({ "do": "checkpoint", "count": 10 })).await;
        *attempt.host.refuse.lock().unwrap() = Some(refused);
        let report = attempt.run().await;
        assert!(summary(&report.end).contains(word), "{:?}", report.end);
        assert_eq!(report.checkpoints_saved, 0);
    }
}

#[tokio::test]
async fn an_offer_is_saved_however_the_attempt_ends() {
    for then in ["yield", "fatal", "panic", "abort", "spin"] {
        let attempt = Attempt::new(json!({ "do": "offer", "count": 1000, "then": then }))
            .await
            .limits(|limits| limits.time = Some(Duration::from_secs(1)));
        let host = attempt.host.clone();
        let report = attempt.run().await;
        assert_eq!(last_save(&host), Some(1000), "{then}: {:?}", report.end);
        assert_eq!(report.offer_lost, None);
        assert!(
            u64::from(report.checkpoints_saved) < 5,
            "offers are coalesced"
        );
    }
    // A success needs no checkpoint any more.
    let attempt = Attempt::new(json!({ "do": "offer", "count": 5 })).await;
    let host = attempt.host.clone();
    assert_eq!(summary(&attempt.run().await.end), "done");
    assert_eq!(last_save(&host), None);
}

#[tokio::test]
async fn an_offer_is_saved_when_the_pod_drains_or_shuts_down() {
    let attempt = Attempt::new(json!({ "do": "offer", "count": 7, "then": "wait" })).await;
    let (host, control) = (attempt.host.clone(), attempt.control());
    let running = attempt.start();
    control.stop(StopReason::Draining);
    assert_eq!(running.await.unwrap().end, AttemptEnd::Yielded);
    assert_eq!(last_save(&host), Some(7));
}

#[tokio::test]
async fn an_offer_is_saved_at_the_interval_while_the_guest_goes_on() {
    let runtime = Runtime::new(RuntimeConfig {
        offer_interval: Duration::from_millis(20),
        ..config()
    })
    .unwrap();
    let plugin = runtime.load("hostile", hostile_bytes()).await.unwrap();
    for (why, then) in [(Why::Shutdown, "spin"), (Why::Cancelled, "wait")] {
        let attempt = Attempt::of(
            runtime.clone(),
            plugin.clone(),
            &json!({ "do": "offer", "count": 3, "then": then }),
        );
        let (host, control) = (attempt.host.clone(), attempt.control());
        let running = attempt.start();
        host.until(|seen| seen.saves.last().is_some_and(|bytes| bytes[0] == 3))
            .await;
        control.interrupt(why);
        assert_eq!(running.await.unwrap().end, AttemptEnd::Interrupted { why });
    }
}

#[tokio::test]
async fn without_the_right_to_the_run_nothing_is_saved() {
    for lose in ["lease", "lock"] {
        let attempt = Attempt::new(json!({ "do": "offer", "count": 3, "then": "wait" })).await;
        let (host, control) = (attempt.host.clone(), attempt.control());
        let expected = if lose == "lease" {
            control.extend_lease(boot_millis() + 300);
            AttemptEnd::LeaseLost
        } else {
            control.interrupt(Why::LockLost);
            AttemptEnd::Interrupted { why: Why::LockLost }
        };
        assert_eq!(attempt.run().await.end, expected);
        assert!(host.seen().saves.is_empty(), "{lose}");
    }
}

#[tokio::test]
async fn a_last_save_that_hangs_does_not_hold_the_attempt() {
    let runtime = Runtime::new(RuntimeConfig {
        flush_time: Duration::from_millis(100),
        ..config()
    })
    .unwrap();
    let plugin = runtime.load("hostile", hostile_bytes()).await.unwrap();
    let attempt = Attempt::of(
        runtime,
        plugin,
        &json!({ "do": "offer", "count": 3, "then": "fatal" }),
    );
    attempt.host.stall.store(true, Ordering::SeqCst);
    let report = attempt.run().await;
    assert!(matches!(report.end, AttemptEnd::Fatal { .. }));
    assert!(
        report
            .offer_lost
            .is_some_and(|why| why.contains("did not answer"))
    );
}

#[tokio::test]
async fn an_offer_that_is_too_large_is_dropped_and_said() {
    let attempt = Attempt::new(json!({ "do": "offer-large", "count": 1001, "then": "yield" }))
        .await
        .limits(|limits| limits.checkpoint = 1000);
    let host = attempt.host.clone();
    assert_eq!(attempt.run().await.end, AttemptEnd::Yielded);
    let seen = host.seen();
    assert!(seen.saves.is_empty());
    assert!(
        seen.log[0]
            .message
            .contains("`limits.checkpoint` allows 1000"),
        "{:?}",
        seen.log
    );
}

#[tokio::test]
async fn state_writes_wait_for_success_unless_they_are_now() {
    let script = json!([
        ["get", "a"],
        ["set", "a", "1", "on-success"],
        ["get", "a"],
        ["set", "b", "2", "now"],
        ["get", "b"],
        ["set", "c", "3", "on-success"],
        ["delete", "c", "on-success"],
        ["get", "c"],
        ["set", "d", "4", "on-success"],
        ["set", "d", "5", "now"],
        ["get", "d"]
    ]);
    let attempt = Attempt::new(json!({ "do": "state", "script": script })).await;
    let host = attempt.host.clone();
    let report = attempt.run().await;
    assert_eq!(
        summary(&report.end),
        "Ok(None); Ok(()); Ok(Some(\"1\")); Ok(()); Ok(Some(\"2\")); Ok(()); Ok(()); Ok(None); Ok(()); Ok(()); Ok(Some(\"5\"))"
    );
    let state = host.seen().state;
    assert_eq!(state.keys().collect::<Vec<_>>(), ["b", "d"]);
    let write = |key: &str, value: Option<&'static str>| StateWrite {
        key: key.into(),
        value: value.map(|value| value.as_bytes().into()),
    };
    assert_eq!(
        report.on_success_state,
        [write("a", Some("1")), write("c", None)]
    );
}

#[tokio::test]
async fn a_failed_run_changes_no_state_later() {
    let script = json!([["set", "a", "1", "on-success"]]);
    let report = Attempt::new(json!({ "do": "state", "script": script, "then": "fatal" }))
        .await
        .run()
        .await;
    assert!(matches!(report.end, AttemptEnd::Fatal { .. }));
    assert!(report.on_success_state.is_empty());
}

#[tokio::test]
async fn state_has_limits() {
    let long = "x".repeat(2000);
    for when in ["now", "on-success"] {
        let attempt = Attempt::new(json!({ "do": "state", "script": [["set", "a", long, when]] }))
            .await
            .limits(|limits| limits.state = 1000);
        let end = attempt.run().await.end;
        assert!(summary(&end).contains("TooLarge(1000)"), "{end:?}");
    }
    let end = run(json!({ "do": "state", "script": [["set", "k".repeat(129), "v", "now"]] })).await;
    assert!(
        matches!(&end, AttemptEnd::Trap(trap) if trap.message.contains("129 bytes; 1 to 128")),
        "{end:?}"
    );
}

#[tokio::test]
async fn progress_is_throttled_and_the_last_report_arrives() {
    let attempt = Attempt::new(json!({ "do": "progress", "count": 10_000 })).await;
    let host = attempt.host.clone();
    assert_eq!(summary(&attempt.run().await.end), "reported");
    let reports = host.seen().progress;
    assert!(reports.len() < 1000, "{}", reports.len());
    let last = reports.last().unwrap();
    assert!((last.done - 10_000.0).abs() < f64::EPSILON && last.total.is_some());
}

#[tokio::test]
async fn only_granted_secrets_and_variables_are_there() {
    let ask = |name: &'static str| async move {
        let attempt = Attempt::new(json!({ "do": "secret", "name": name }))
            .await
            .grants(|grants| grants.secrets = ["token".to_owned(), "gone".to_owned()].into());
        let host = attempt.host.clone();
        let end = attempt.run().await.end;
        assert!(host.seen().log.is_empty(), "secrets are not logged");
        summary(&end).to_owned()
    };
    assert_eq!(ask("token").await, "Ok(\"s3cret\")");
    assert!(ask("other").await.contains("NotGranted"));
    assert!(ask("gone").await.contains("no value"));

    assert_eq!(summary(&run(json!({ "do": "env" })).await), "[]");
    let attempt = Attempt::new(json!({ "do": "env" })).await;
    let end = attempt
        .grants(|grants| grants.env.push(("REGION".into(), "eu".into())))
        .run()
        .await
        .end;
    assert_eq!(summary(&end), "[(\"REGION\", \"eu\")]");
    assert_eq!(summary(&run(json!({ "do": "args" })).await), "[]");
}

#[tokio::test]
async fn checkpoints_of_older_formats_are_translated_or_refused() {
    let plugin = hostile().await;
    assert!(plugin.supports_migration());
    let limits = Limits {
        time: Some(Duration::from_millis(500)),
        ..Limits::default()
    };
    let migrate = |schema| {
        let (plugin, limits) = (plugin.clone(), limits.clone());
        async move {
            runtime()
                .migrate_checkpoint(&plugin, schema, "old".into(), &limits)
                .await
        }
    };
    assert_eq!(migrate(1).await, Ok("old!".into()));
    assert_eq!(
        migrate(2).await,
        Err(MigrateError::Refused("schema 2 is too old".into()))
    );
    for (schema, word) in [
        (7, "no idea of schema 7"),
        (8, "time limit"),
        (9, "limits.checkpoint"),
    ] {
        match migrate(schema).await {
            Err(MigrateError::Failed(why)) => assert!(why.contains(word), "{why}"),
            other => panic!("{other:?}"),
        }
    }
}
