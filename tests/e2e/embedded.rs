//! Pods that meet in a file: no server runs.

use std::os::unix::fs::PermissionsExt as _;

use wasmcron_core::run::RunState;

use crate::harness::{Fleet, Midway, PATIENCE, PodProcess, Signal, Timing, cli_in, jobs, until};

/// Three pods share a file. The one that executes dies: another goes on from the last checkpoint.
#[tokio::test(flavor = "multi_thread")]
async fn three_pods_on_one_file_one_dies() {
    let fleet = Fleet::on_file(Timing::Fast).await;
    let mut midway = Midway::on(fleet, &["a", "b", "c"], 30, 100, "").await;
    let victim = midway.victim().await;
    let dead = victim.address().to_owned();
    victim.kill().await;
    let record = midway.fleet.attempt(&midway.run, 2).await;
    assert_ne!(record.attempts[1].pod.as_str(), dead);
    assert!(
        record.attempts[1].resumed_from.is_some_and(|seq| seq >= 5),
        "{record:?}"
    );
    let record = midway.fleet.ended(&midway.run).await;
    assert_eq!(record.state, RunState::Succeeded, "{record:?}");
    assert_eq!(midway.distinct_steps(), (0..30).collect());
    // One step may have been under way when its pod died.
    let twice = midway.steps().len() - 30;
    assert!(twice <= 1, "{twice} steps were made twice");
}

/// The only pod dies and is started again on the same file: nothing else remembers the run.
#[tokio::test(flavor = "multi_thread")]
async fn the_only_pod_dies_and_comes_back() {
    let fleet = Fleet::on_file(Timing::Fast).await;
    let mut midway = Midway::on(fleet, &["a"], 20, 100, "").await;
    midway.victim().await.kill().await;
    let before = midway.steps().len();
    let _again = midway.fleet.pod("a").await;
    let record = midway.fleet.ended(&midway.run).await;
    assert_eq!(record.state, RunState::Succeeded, "{record:?}");
    assert!(record.attempts.len() >= 2, "{record:?}");
    let from = record.attempts[1].resumed_from.expect("a checkpoint");
    assert!(
        usize::try_from(from).is_ok_and(|from| from + 1 >= before),
        "{before} steps were done, and it went on from {from}"
    );
    assert_eq!(midway.distinct_steps(), (0..20).collect());
}

/// What a pod that was ended well leaves behind is one file, and another pod takes the job up there.
#[tokio::test(flavor = "multi_thread")]
async fn serve_needs_no_store_to_be_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    // Without a pod there is no store, and none is made for asking.
    let (_, err, code) = cli_in(path, &["job", "list"]).await;
    assert_eq!(code, 1);
    assert!(
        err.contains("sqlite://wasmcron.db") && err.contains("wasmcron serve"),
        "{err}"
    );
    assert!(!path.join("wasmcron.db").exists());

    for name in ["plugins", "jobs"] {
        std::fs::create_dir(path.join(name)).expect("a folder");
    }
    let hello = wasmcron_tests::guests::component("hello").expect("a guest");
    std::fs::copy(hello, path.join("plugins/hello.wasm")).expect("copied");
    std::fs::write(path.join("jobs/hello.toml"), "name = \"hello\"\n").expect("written");
    let config = path.join("wasmcron.toml");
    std::fs::write(&config, "log.format = \"json\"\n").expect("written");
    let pod = PodProcess::start("unnamed", &config).await;
    let log = pod.log_text();
    for words in [
        "store.opened",
        "sqlite://",
        "wasmcron.db",
        "durable on this machine",
        "several machines move to Redis",
    ] {
        assert!(log.contains(words), "{words} in {log}");
    }
    // The command line finds the same file by the same configuration, from anywhere.
    let config = config.display().to_string();
    until("the job", PATIENCE, async || {
        let (_, _, code) = cli_in(path, &["job", "show", "hello"]).await;
        (code == 0).then_some(())
    })
    .await;
    let elsewhere = std::env::temp_dir();
    let trigger = ["--config", &config, "job", "trigger", "hello", "--wait"];
    let (out, err, code) = cli_in(&elsewhere, &trigger).await;
    assert_eq!(code, 0, "{out}{err}");
    assert!(out.contains("succeeded: hello from hello"), "{out}");

    pod.signal(Signal::Terminate);
    assert_eq!(pod.ended().await, Some(0));
    let (out, err, code) = cli_in(path, &["run", "list", "hello"]).await;
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("succeeded"), "what happened is kept: {out}");
}

/// A file that is no store, and one that cannot be written, end the start with the file's name.
#[tokio::test(flavor = "multi_thread")]
async fn files_that_are_no_store_are_refused() {
    let fleet = Fleet::on_file(Timing::Fast).await;
    let at = |name: &str| fleet.folder().join(name);
    let garbage = b"this is a letter to my aunt, and it is longer than a header of SQLite, which has a hundred bytes".repeat(4);
    std::fs::write(at("letter.db"), &garbage).expect("written");
    std::fs::create_dir(at("folder.db")).expect("made");
    std::fs::create_dir(at("locked")).expect("made");
    let mode = |mode| std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(at("locked"), mode(0o500)).expect("locked");
    let mut cases = vec![
        ("letter.db", "no SQLite database"),
        ("folder.db", "folder.db"),
        ("none/at/all.db", "all.db"),
    ];
    // Nobody may make a file there, root neither.
    if cfg!(target_os = "linux") {
        cases.push(("/proc/wasmcron.db", "/proc/wasmcron.db"));
    }
    // Permissions do not bind root.
    if std::fs::write(at("locked/probe"), "").is_err() {
        cases.push(("locked/w.db", "locked/w.db"));
    }
    for (name, words) in cases {
        let url = format!("sqlite://{}", at(name).display());
        let began = std::time::Instant::now();
        let (_, err, code) = cli_in(fleet.folder(), &["serve", "--store", &url]).await;
        assert_eq!(code, 1, "{name}: {err}");
        assert!(err.contains(&url) && err.contains(words), "{name}: {err}");
        assert!(began.elapsed() < PATIENCE, "{name}: {:?}", began.elapsed());
    }
    assert_eq!(
        std::fs::read(at("letter.db")).expect("it"),
        garbage,
        "nothing was written over it"
    );
    let (_, err, code) = cli_in(
        fleet.folder(),
        &["job", "list", "--store", "sqlite://letter.db"],
    )
    .await;
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("letter.db"), "{err}");
}

/// A firing is answered once although three pods look at one file.
#[tokio::test(flavor = "multi_thread")]
async fn each_time_fires_once() {
    let fleet = Fleet::on_file(Timing::Fast).await;
    fleet.install("hello", "hello");
    fleet.write_job("tick", &jobs::hello("every = \"300ms\""));
    let _pods = [
        fleet.pod("a").await,
        fleet.pod("b").await,
        fleet.pod("c").await,
    ];
    let name = "tick".parse().expect("a name");
    let runs = until("ten runs", PATIENCE, async || {
        let runs = fleet.store().runs(&name, 100).await.expect("runs");
        (fleet.count("tick", RunState::Succeeded).await >= 10).then_some(runs)
    })
    .await;
    let mut times: Vec<_> = runs.iter().map(|run| run.nominal.as_millis()).collect();
    let all = times.len();
    times.sort_unstable();
    times.dedup();
    assert_eq!(times.len(), all, "{runs:?}");
    let leader = fleet.leader().await;
    assert!(["a", "b", "c"].contains(&leader.as_str()));
}
