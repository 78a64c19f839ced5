//! `config check` where something is not there yet.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use std::process::Command;

/// A folder of jobs that is missing is made by `serve`, so it is worth a remark and no error.
#[test]
fn a_folder_of_jobs_that_is_missing_is_a_remark() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = "plugins.directory = \"p\"\njobs.directory = \"cron\"\n";
    std::fs::write(dir.path().join("wasmcron.toml"), config).expect("written");
    let check = || {
        let output = Command::new(env!("CARGO_BIN_EXE_wasmcron"))
            .current_dir(dir.path())
            .env_clear()
            .args(["config", "check"])
            .output();
        let output = output.expect("the program runs");
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        (
            output.status.code(),
            text(output.stdout),
            text(output.stderr),
        )
    };
    let (code, out, err) = check();
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(
        err.contains("warning: jobs.directory: there is no") && err.contains("`serve` makes it"),
        "{err}"
    );
    assert!(out.contains("ok: 0 job(s)"), "{out}");
    std::fs::write(dir.path().join("cron"), "").expect("written");
    let (code, out, err) = check();
    assert_eq!(code, Some(2), "a file is no folder: {out}{err}");
}
