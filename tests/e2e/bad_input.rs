//! What is wrong is refused with file, line or key, found and accepted; the rest keeps running.

use wasmcron_core::run::{Outcome, RunState};

use crate::harness::{Fleet, PATIENCE, Timing, jobs, until};

/// A job file that breaks leaves the last good version in force, and its neighbours alone. (C101)
#[tokio::test(flavor = "multi_thread")]
async fn c101_a_bad_job_file_leaves_the_old_one_in_force() {
    let fleet = Fleet::new(Timing::Fast).await;
    fleet.install("hello", "hello");
    fleet.write_job("tick", &jobs::hello("every = \"400ms\""));
    fleet.write_job("never", &jobs::hello("cron = \"0 0 30 2 *\""));
    fleet.write_job("other", &jobs::hello("every = \"400ms\""));
    let pod = fleet.pod("a").await;
    fleet
        .run_where("tick", "succeeded", |run| run.state == RunState::Succeeded)
        .await;
    assert_eq!(
        pod.metric("reload_failed_total{kind=\"job\"}").await,
        1.0,
        "30 February is refused"
    );
    for (n, broken) in [
        "corn = \"* * * * *\"",
        "every = \"10\"",
        "every = \"400ms\"\nevery = \"1s\"",
    ]
    .iter()
    .enumerate()
    {
        fleet.write_job("tick", &jobs::hello(broken));
        until("the refusal", PATIENCE, async || {
            (pod.metric("reload_failed_total{kind=\"job\"}").await >= 2.0 + n as f64).then_some(())
        })
        .await;
    }
    let now = fleet.now().await;
    for job in ["tick", "other"] {
        fleet
            .run_where(job, "is later", |run| {
                run.nominal > now && run.state.is_ended()
            })
            .await;
    }
    let log = pod.log_text();
    for words in [
        "tick.toml:3",
        "corn",
        "cron",
        "duplicate key",
        "never.toml",
        "never fires",
    ] {
        assert!(log.contains(words), "{words} in the log");
    }
}

/// A pod tells the fleet which files it refused, so that `job show` and `job list` say so from anywhere, also of
/// a job that never was in force; and no more once the file is mended.
#[tokio::test(flavor = "multi_thread")]
async fn refused_files_are_told_from_anywhere() {
    let fleet = Fleet::new(Timing::Fast).await;
    fleet.install("hello", "hello");
    fleet.write_job("tick", &jobs::hello("cron = \"@daily\""));
    let _pod = fleet.pod("a").await;
    fleet.opened(&["tick"]).await;
    fleet.write_job("tick", &jobs::hello("corn = \"@hourly\""));
    fleet.write_job("never", &jobs::hello("cron = \"0 0 30 2 *\""));
    let shows = async |job: &str, words: &str| {
        until(&format!("{words:?} of {job}"), PATIENCE, async || {
            let (out, err, _) = fleet.cli(&["job", "show", job]).await;
            format!("{out}{err}").contains(words).then_some(())
        })
        .await;
    };
    shows("tick", "Pod a refused its latest file").await;
    shows("tick", "did you mean `cron`").await;
    shows("never", "pod a refused its file").await;
    let (out, _, code) = fleet.cli(&["job", "show", "tick", "--json"]).await;
    let shown: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(
        (code, &shown["refused"][0]["pod"]),
        (0, &"a".into()),
        "{out}"
    );
    let schedule = shown["schedule"].as_str().unwrap_or_default();
    assert!(
        schedule.contains("@daily"),
        "the last good version goes on: {out}"
    );
    let (_, err, _) = fleet.cli(&["job", "list"]).await;
    assert!(err.contains("refused the file of job never"), "{err}");
    fleet.write_job("tick", &jobs::hello("cron = \"@hourly\""));
    until("the mended file to be taken", PATIENCE, async || {
        let (out, _, _) = fleet.cli(&["job", "show", "tick"]).await;
        (out.contains("@hourly") && !out.contains("refused")).then_some(())
    })
    .await;
}

/// Parameters that the plugin's schema refuses: in the file, and by hand.
#[tokio::test(flavor = "multi_thread")]
async fn parameters_against_the_plugins_schema() {
    let fleet = Fleet::new(Timing::Fast).await;
    fleet.install("hostile", "hostile");
    fleet.install("hello", "hello");
    fleet.write_job("good", "plugin = \"hostile\"\n[params]\ndo = \"ok\"\n");
    fleet.write_job(
        "bad",
        "plugin = \"hostile\"\nevery = \"1s\"\n[params]\ndo = 7\n",
    );
    let pod = fleet.pod("a").await;
    fleet.opened(&["good"]).await;
    assert!(
        fleet
            .store()
            .job(&"bad".parse().expect("a name"))
            .await
            .expect("it")
            .is_none()
    );
    let log = pod.log_text();
    assert!(
        log.contains("bad.toml") && log.contains("/do"),
        "the file and the key are named"
    );
    let run = fleet.trigger("good", "{\"do\": 7}").await;
    let record = fleet.ended(&run).await;
    assert_eq!(record.state, RunState::Failed);
    let Some(Outcome::Failed { message, retry, .. }) = &record.attempts[0].outcome else {
        panic!("{record:?}")
    };
    assert!(message.contains("/do") && !retry, "{message}");
    let run = fleet.trigger("good", "{}").await;
    assert_eq!(fleet.ended(&run).await.state, RunState::Succeeded);
}

/// A guest's failure carries what a person needs, and hurts nobody else.
#[tokio::test(flavor = "multi_thread")]
async fn failures_say_what_happened() {
    let fleet = Fleet::new(Timing::Fast).await;
    fleet.install("hostile", "hostile");
    fleet.write_job(
        "deed",
        "plugin = \"hostile\"\ntimeout = \"500ms\"\n[params]\ndo = \"ok\"\n",
    );
    let _pod = fleet.pod("a").await;
    fleet.opened(&["deed"]).await;
    let table = [
        (
            "{\"do\": \"panic\", \"text\": \"boom at row 7\"}",
            RunState::Failed,
            "boom at row 7",
        ),
        ("{\"do\": \"trap\"}", RunState::Failed, "unreachable"),
        (
            "{\"do\": \"fatal\", \"text\": \"no such table\"}",
            RunState::Failed,
            "no such table",
        ),
        ("{\"do\": \"spin\"}", RunState::TimedOut, "timeout"),
        (
            "{\"do\": \"sleep\", \"count\": 60000}",
            RunState::TimedOut,
            "timeout",
        ),
        ("{\"do\": \"ok\"}", RunState::Succeeded, ""),
    ];
    for (params, state, words) in table {
        let run = fleet.trigger("deed", params).await;
        let record = fleet.ended(&run).await;
        assert_eq!(record.state, state, "{params}: {record:?}");
        let message = record.attempts[0]
            .outcome
            .as_ref()
            .expect("an outcome")
            .message();
        assert!(message.contains(words), "{params}: {message}");
    }
}

/// Settings that contradict each other end the start, naming the keys.
#[tokio::test(flavor = "multi_thread")]
async fn settings_are_checked_before_anything_starts() {
    let fleet = Fleet::new(Timing::Fast).await;
    let file = fleet.plugins().join("bad.toml");
    std::fs::write(&file, "[lock]\nttl = \"2s\"\nrenewal = \"3s\"\n").expect("write");
    let (_, err, code) = fleet
        .cli(&["serve", "--config", &file.display().to_string()])
        .await;
    assert_ne!(code, 0);
    assert!(
        err.contains("lock.ttl") && err.contains("lock.renewal"),
        "{err}"
    );
}
