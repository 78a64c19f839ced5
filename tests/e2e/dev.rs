//! `wasmcron dev`: from an empty folder to a job running by one command and one file.

use std::path::Path;

use wasmcron_tests::guests;

use crate::harness::{DevProcess, PATIENCE, Signal, cli_in, until};

fn install(guest: &str, file: &Path) {
    let built = guests::component(guest).expect("a guest");
    std::fs::copy(built, file).expect("copied");
}

/// Waits until a job is in force there.
async fn in_force(dir: &Path, job: &str) {
    until(&format!("job {job}"), PATIENCE, async || {
        let (_, _, code) = cli_in(dir, &["job", "show", job]).await;
        (code == 0).then_some(())
    })
    .await;
}

/// One plugin in an empty folder: it can be run at once, from the folder and from elsewhere, its log and
/// its end are told, and Ctrl-C ends all that in good order.
#[tokio::test(flavor = "multi_thread")]
async fn one_plugin_in_an_empty_folder() {
    let (folder, logs) = (
        tempfile::tempdir().expect("a folder"),
        tempfile::tempdir().expect("a folder"),
    );
    let dir = folder.path();
    let mut dev = DevProcess::start(dir, logs.path(), &[]);
    dev.said("wasmcron dev serves").await;
    install("hostile", &dir.join("hostile.wasm"));
    in_force(dir, "hostile").await;
    let deed = ["job", "trigger", "hostile", "--wait", "--params"];
    let log = "{\"do\": \"log\", \"text\": \"a \\u001b[31mred line\", \"count\": 1}";
    let (out, err, code) = cli_in(dir, &[&deed[..], &[log]].concat()).await;
    assert_eq!(code, 0, "{out}{err}");

    let elsewhere = logs.path();
    let shown = dir.display().to_string();
    let fatal = "{\"do\": \"fatal\", \"text\": \"no such table\"}";
    let from_there = [&deed[..], &[fatal, "--dev", &shown]].concat();
    let (_, _, code) = cli_in(elsewhere, &from_there).await;
    assert_eq!(code, 1, "the run failed");
    for words in [
        "started hostile@",
        "info  ",
        "red line",
        "succeeded hostile@",
        "failed hostile@",
        "no such table",
    ] {
        dev.said(words).await;
    }
    dev.signal(Signal::Interrupt);
    assert_eq!(dev.ended().await, Some(0), "{}", dev.err());
    let (out, err) = (dev.out(), dev.err());
    assert!(
        !out.contains('\u{1b}') && !err.contains('\u{1b}'),
        "escapes without a terminal: {out}{err}"
    );
    // What ran is still known to the next session.
    let (out, _, _) = cli_in(dir, &["run", "list", "hostile"]).await;
    assert!(out.contains("failed") && out.contains("succeeded"), "{out}");
}

/// A job file that appears takes the plugin's own job's place, and is followed as it changes.
#[tokio::test(flavor = "multi_thread")]
async fn job_files_are_followed() {
    let (folder, logs) = (
        tempfile::tempdir().expect("a folder"),
        tempfile::tempdir().expect("a folder"),
    );
    let dir = folder.path();
    for name in ["plugins", "jobs"] {
        std::fs::create_dir(dir.join(name)).expect("a folder");
    }
    install("hello", &dir.join("plugins/hello.wasm"));
    let mut dev = DevProcess::start(dir, logs.path(), &["--json"]);
    let ready = dev
        .event("the start", |event| event["event"] == "ready")
        .await;
    let http = ready["http"].as_str().expect("an address");
    assert!(http.starts_with("127.0.0.1:"), "{http}");
    let has = |event: &serde_json::Value, name: &str, schedule: &str| {
        let jobs = event["jobs"].as_array().cloned().unwrap_or_default();
        jobs.iter()
            .any(|job| job["name"] == name && job["schedule"] == schedule)
    };
    dev.event("the plugin's own job", |event| {
        has(event, "hello", "by hand")
    })
    .await;
    let job = dir.join("jobs/often.toml");
    std::fs::write(
        &job,
        "name = \"often\"\nplugin = \"hello\"\nevery = \"300ms\"\n",
    )
    .expect("written");
    dev.event("the job of the file", |event| {
        has(event, "often", "every 300ms") && !has(event, "hello", "by hand")
    })
    .await;
    let ended = dev
        .event("a run by schedule", |event| {
            event["event"] == "ended"
                && event["run"]
                    .as_str()
                    .is_some_and(|run| run.starts_with("often@"))
        })
        .await;
    assert_eq!(ended["state"], "succeeded", "{ended}");
    assert!(ended["took_ms"].is_u64(), "{ended}");
    std::fs::write(
        &job,
        "name = \"often\"\nplugin = \"hello\"\nevery = \"1h\"\n",
    )
    .expect("written");
    dev.event("the changed job", |event| has(event, "often", "every 1h"))
        .await;

    let second = DevProcess::start(dir, folder.path(), &[]).ended().await;
    assert_eq!(second, Some(1), "a folder has one dev");
    dev.signal(Signal::Interrupt);
    assert_eq!(dev.ended().await, Some(0), "{}", dev.err());
}

/// A first job file for a plugin that is refused leaves the plugin's own job in force, as a later one leaves the
/// last good version; and it is told.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_file_leaves_the_plugins_own_job() {
    let (folder, logs) = (
        tempfile::tempdir().expect("a folder"),
        tempfile::tempdir().expect("a folder"),
    );
    let dir = folder.path();
    install("hello", &dir.join("hello.wasm"));
    let dev = DevProcess::start(dir, logs.path(), &[]);
    in_force(dir, "hello").await;
    std::fs::write(
        dir.join("hello.toml"),
        "name = \"hello\"\nevery = \"soon\"\n",
    )
    .expect("written");
    until("the refusal", PATIENCE, async || {
        let (out, _, _) = cli_in(dir, &["job", "show", "hello"]).await;
        out.contains("refused its latest file").then_some(())
    })
    .await;
    assert!(
        dev.err().contains("the last good version goes on"),
        "{}",
        dev.err()
    );
    let (out, err, code) = cli_in(dir, &["job", "trigger", "hello", "--wait"]).await;
    assert_eq!(code, 0, "it can still be run: {out}{err}");
    std::fs::write(
        dir.join("hello.toml"),
        "name = \"hello\"\nevery = \"300ms\"\n",
    )
    .expect("written");
    dev.said("every 300ms").await;
}

/// A killed dev leaves its run where it was: the next one goes on from its checkpoint.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_dev_goes_on() {
    let (folder, logs) = (
        tempfile::tempdir().expect("a folder"),
        tempfile::tempdir().expect("a folder"),
    );
    let dir = folder.path();
    let (target, server) = crate::harness::jobs::target().await;
    install("stepper", &dir.join("stepper.wasm"));
    let text = crate::harness::jobs::stepper(&server.url(), 30, 100, "");
    std::fs::write(dir.join("steps.toml"), format!("name = \"steps\"\n{text}")).expect("written");
    let mut dev = DevProcess::start(dir, logs.path(), &["--json"]);
    in_force(dir, "steps").await;
    let (_, err, code) = cli_in(dir, &["job", "trigger", "steps"]).await;
    assert_eq!(code, 0, "{err}");
    dev.event("progress", |event| {
        event["event"] == "progress" && event["done"].as_f64() >= Some(8.0)
    })
    .await;
    dev.signal(Signal::Kill);
    dev.ended().await;
    let mut again = DevProcess::start(dir, logs.path(), &["--json"]);
    let ended = again
        .event("the end", |event| event["event"] == "ended")
        .await;
    assert_eq!(ended["state"], "succeeded", "{ended}");
    let resumed = again
        .events()
        .into_iter()
        .find(|event| event["event"] == "started" && event["resumed_from"].as_u64() >= Some(8));
    assert!(resumed.is_some(), "{:?}", again.events());
    let steps: std::collections::BTreeSet<_> = crate::harness::jobs::steps(&target)
        .into_iter()
        .map(|(_, step)| step)
        .collect();
    assert_eq!(steps, (0..30).collect());
    again.signal(Signal::Interrupt);
    assert_eq!(again.ended().await, Some(0));
}

/// On a terminal a key runs a job, and the terminal is afterwards as it was.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn keys_of_a_terminal() {
    use std::process::Stdio;

    use tokio::io::AsyncWriteExt as _;

    let (folder, logs) = (
        tempfile::tempdir().expect("a folder"),
        tempfile::tempdir().expect("a folder"),
    );
    install("hello", &folder.path().join("hello.wasm"));
    let typescript = logs.path().join("typescript");
    // Ctrl-C goes to the shell as well, which would end before it says the code.
    let line = format!(
        "trap : INT; stty -g; {} dev {}; echo code=$?; stty -g",
        wasmcron_tests::host_binary::path().display(),
        folder.path().display()
    );
    // util-linux' `script` gives it a terminal of its own.
    let mut terminal = tokio::process::Command::new("script")
        .args(["--quiet", "--flush", "--command", &line])
        .arg(&typescript)
        .env("SHELL", "/bin/sh")
        .env("TERM", "xterm")
        .env_remove("NO_COLOR")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("start script");
    let mut keys = terminal.stdin.take().expect("its input");
    let shown = || std::fs::read_to_string(&typescript).unwrap_or_default();
    let said = async |words: &str| {
        until(
            &format!("{words:?} on the terminal"),
            PATIENCE,
            async || shown().contains(words).then_some(()),
        )
        .await;
    };
    said("press a job's key").await;
    keys.write_all(b"1").await.expect("typed");
    said("succeeded hello@").await;
    assert!(shown().contains('\u{1b}'), "colours: {}", shown());
    // What Ctrl-C sends: it is still a signal.
    keys.write_all(b"\x03").await.expect("typed");
    said("code=0").await;
    let ended = tokio::time::timeout(PATIENCE, terminal.wait()).await;
    ended.expect("script to end").expect("its status");
    let modes: Vec<String> = shown()
        .lines()
        .filter(|line| line.matches(':').count() > 20)
        .map(|line| line.trim().to_owned())
        .collect();
    assert_eq!(modes.len(), 2, "{}", shown());
    assert_eq!(modes[0], modes[1], "the terminal's modes");
}
