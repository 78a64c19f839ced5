//! What an operator does by hand: backfills, drains, quarantines, checkpoints.

use std::time::Duration;

use serde_json::Value;
use wasmcron_core::run::RunState;
use wasmcron_core::task::Reason;
use wasmcron_tests::guests;

use crate::harness::{Fleet, Midway, PATIENCE, Signal, Timing, until};

/// Runs a command that must succeed, and reads its JSON.
async fn json(fleet: &Fleet, words: &[&str]) -> Value {
    let (out, err, code) = fleet.cli(&[&["--json"], words].concat()).await;
    assert_eq!(code, 0, "{words:?}: {err}");
    serde_json::from_str(&out).expect("JSON")
}

/// A stretch of the past is filled one run after the other, in order; what has run is left alone.
#[tokio::test(flavor = "multi_thread")]
async fn a_backfill_goes_one_by_one() {
    let fleet = Fleet::new(Timing::Fast).await;
    fleet.install("hostile", "hostile");
    fleet.write_job(
        "fill",
        "plugin = \"hostile\"\nevery = \"1s\"\nenabled = true\n[params]\ndo = \"sleep\"\ncount = 300\n",
    );
    let _pods = [fleet.pod("a").await, fleet.pod("b").await];
    let ran = fleet
        .run_where("fill", "succeeded", |run| run.state == RunState::Succeeded)
        .await;
    json(&fleet, &["job", "pause", "fill"]).await;
    until("nothing to run", PATIENCE, async || {
        let view = fleet.store().job(&"fill".parse().expect("a name")).await;
        view.expect("the job")
            .expect("the job")
            .active
            .is_none()
            .then_some(())
    })
    .await;
    let from = (ran.nominal - Duration::from_secs(4)).to_string();
    let to = ran.nominal.to_string();
    let range = ["job", "backfill", "fill", "--from", &from, "--to", &to];
    let dry = json(&fleet, &[&range[..], &["--dry-run"]].concat()).await;
    let results = |answer: &Value| -> Vec<String> {
        let runs = answer["runs"].as_array().expect("runs");
        let word = |run: &Value| run["result"].as_str().expect("a word").to_owned();
        runs.iter().map(word).collect()
    };
    assert_eq!(results(&dry)[4], "exists", "{dry}");
    assert_eq!(results(&dry)[0], "planned", "{dry}");
    let (_, err, code) = fleet.cli(&[&range[..], &["--max", "2"]].concat()).await;
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("more than 2 firings"), "{err}");
    let future = [
        "job",
        "backfill",
        "fill",
        "--from",
        &from,
        "--to",
        "2199-01-01T00:00:00Z",
    ];
    let (_, err, code) = fleet.cli(&future).await;
    assert!(code == 2 && err.contains("future"), "{err}");

    let done = json(&fleet, &range).await;
    assert_eq!(results(&done)[0], "accepted", "{done}");
    let runs = done["runs"].as_array().expect("runs");
    let mut before = None;
    for made in runs.iter().filter(|run| run["result"] == "accepted") {
        let run = made["run"].as_str().expect("an id").parse().expect("an id");
        let record = fleet.ended(&run).await;
        assert_eq!(
            (record.state, record.reason),
            (RunState::Succeeded, Reason::Backfill)
        );
        let began = record.attempts[0].claimed_at;
        assert!(before.is_none_or(|ended| began >= ended), "{record:?}");
        before = record.ended_at;
    }
    let again = json(&fleet, &range).await;
    assert!(
        results(&again).iter().all(|word| word == "exists"),
        "{again}"
    );
}

/// A pod that an operator drains hands its run over as SIGTERM would make it, and its process ends well.
#[tokio::test(flavor = "multi_thread")]
async fn a_drained_pod_hands_over_and_ends() {
    let mut midway = Midway::start(Timing::Fast, &["a", "b"], 40, 50, "").await;
    let pod = midway.victim().await;
    let address = pod.address().to_owned();
    let fleet = &midway.fleet;
    let (_, err, code) = fleet.cli(&["pod", "drain", "nobody"]).await;
    assert!(code == 1 && err.contains("nobody"), "{err}");
    let answer = json(fleet, &["pod", "drain", &address, "--wait"]).await;
    assert_eq!(answer["result"], "left", "{answer}");
    assert_eq!(pod.ended().await, Some(0));
    let record = fleet.ended(&midway.run).await;
    assert_eq!(record.state, RunState::Succeeded, "{record:?}");
    assert_eq!(
        (record.attempts.len(), record.recoveries),
        (2, 0),
        "{record:?}"
    );
    assert_eq!(midway.steps().len(), 40, "nothing is done twice");
    let _again = fleet.pod(&address).await;
    fleet.live(2).await;
}

/// A quarantine names the plugin version that caused it, is listed and released; another version of the
/// plugin ends it by itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_plugin_version_ends_a_quarantine() {
    let fleet = Fleet::new(Timing::Defaults).await;
    fleet.install("hostile", "hostile");
    let text = "plugin = \"hostile\"\nresumable = true\n[params]\ndo = \"ignore-stop\"\n";
    fleet.write_job("poison", text);
    let limit = "recovery.max_recoveries = 1";
    let mut pod = fleet.pod_with("a", limit).await;
    fleet.opened(&["poison"]).await;
    let empty = json(&fleet, &["quarantine", "list"]).await;
    assert_eq!(empty["quarantined"], serde_json::json!([]));
    // By hand, without a version: only a person ends it.
    let hold = "1700000000000|{\"by\":\"ann\",\"why\":\"a test\"}";
    let key = "{distributed_scheduler}:quarantined";
    fleet
        .redis_command::<i64>(&["HSET", key, "poison", hold])
        .await;
    for expected in ["released", "unchanged"] {
        let answer = json(&fleet, &["quarantine", "release", "poison"]).await;
        assert_eq!(answer["result"], expected);
    }
    let run = fleet.trigger("poison", "{}").await;
    for attempt in [1, 2] {
        fleet.attempt(&run, attempt).await;
        pod.kill().await;
        pod = fleet.pod_with("a", limit).await;
    }
    let record = fleet.ended(&run).await;
    assert_eq!(record.state, RunState::Lost, "{record:?}");
    let list = json(&fleet, &["quarantine", "list"]).await;
    let held = &list["quarantined"][0];
    assert_eq!(held["job"], "poison", "{list}");
    assert!(held["digest"].is_string(), "{list}");
    let newer = guests::retagged(&guests::bytes("hostile").expect("a guest"), "newer");
    fleet.write_plugin("hostile", &newer);
    until("the end of the quarantine", PATIENCE, async || {
        let held = fleet.store().quarantined().await.expect("quarantined");
        held.is_empty().then_some(())
    })
    .await;
}

/// The kept checkpoints of a run are listed and exported; a run that waits is sent back to one of them.
#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_is_exported_and_rewound() {
    let mut midway = Midway::start(Timing::Fast, &["a"], 30, 60, "").await;
    let run = midway.run.clone();
    let pod = midway.victim().await;
    let fleet = &midway.fleet;
    let words = ["checkpoint", "rewind", run.as_str(), "--seq", "1"];
    let (_, err, code) = fleet.cli(&words).await;
    assert!(code == 1 && err.contains("executing"), "{err}");
    pod.signal(Signal::Terminate);
    assert_eq!(pod.ended().await, Some(0));
    let list = json(fleet, &["checkpoint", "list", run.as_str()]).await;
    let kept = list["checkpoints"].as_array().expect("a list");
    assert_eq!(kept.len(), 3, "{list}");
    let oldest = kept[2]["seq"].as_u64().expect("a sequence");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("checkpoint");
    let seq = oldest.to_string();
    let export = [
        "checkpoint",
        "export",
        run.as_str(),
        "--seq",
        &seq,
        "--output",
    ];
    json(
        fleet,
        &[&export[..], &[file.to_str().expect("a path")]].concat(),
    )
    .await;
    assert!(!std::fs::read(&file).expect("the file").is_empty());
    let answer = json(
        fleet,
        &["checkpoint", "rewind", run.as_str(), "--seq", &seq],
    )
    .await;
    assert_eq!(answer["result"], "rewound");
    let _b = fleet.pod("b").await;
    let record = fleet.ended(&run).await;
    assert_eq!(record.state, RunState::Succeeded, "{record:?}");
    assert_eq!(record.attempts[1].resumed_from, Some(oldest), "{record:?}");
    assert_eq!(midway.distinct_steps(), (0..30).collect());
}

/// A paused job runs when somebody asks for it, who is told that it is paused.
#[tokio::test(flavor = "multi_thread")]
async fn a_trigger_says_what_holds_its_job_back() {
    let fleet = Fleet::new(Timing::Fast).await;
    fleet.install("hello", "hello");
    fleet.write_job("tick", &crate::harness::jobs::hello("every = \"1s\""));
    let _pod = fleet.pod("a").await;
    fleet
        .run_where("tick", "succeeded", |run| run.state == RunState::Succeeded)
        .await;
    json(&fleet, &["job", "pause", "tick", "--why", "a test"]).await;
    let (_, err, code) = fleet.cli(&["job", "trigger", "tick", "--wait"]).await;
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("tick is paused since"), "{err}");
    assert!(err.contains("(a test)"), "{err}");
}
