//! What `wasmcron new` writes builds and passes its tests, outside this checkout.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may panic"
)]

use std::io::BufRead as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Cargo in the project, with build products kept in one place so that a second run is fast. Without
/// the flags and wrappers of the build that runs this test.
fn cargo(project: &Path) -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(project);
    for variable in [
        "RUSTFLAGS",
        "CARGO_ENCODED_RUSTFLAGS",
        "CARGO_BUILD_TARGET",
        "RUSTC_WORKSPACE_WRAPPER",
    ] {
        cargo.env_remove(variable);
    }
    cargo.env(
        "CARGO_TARGET_DIR",
        Path::new(env!("CARGO_TARGET_TMPDIR")).join("new-project"),
    );
    cargo
}

fn succeed(command: &mut Command) {
    let output = command.output().expect("the program runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{command:?}\n{text}\n{}",
        String::from_utf8_lossy(&output.stdout)
    );
}

/// Without the network where the versions are at hand, else with it.
fn build(project: &Path, args: &[&str]) {
    let offline = cargo(project)
        .args(args)
        .arg("--offline")
        .output()
        .expect("cargo runs");
    if !offline.status.success() {
        succeed(cargo(project).args(args));
    }
}

fn has_guest_target() -> bool {
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output();
    sysroot.is_ok_and(|out| {
        Path::new(String::from_utf8_lossy(&out.stdout).trim())
            .join("lib/rustlib/wasm32-wasip2")
            .is_dir()
    })
}

#[test]
fn a_new_project_passes_its_tests_and_is_accepted_as_a_plugin() {
    let dir = tempfile::tempdir().expect("a directory");
    let project = dir.path().join("fresh-job");
    let wasmcron = env!("CARGO_BIN_EXE_wasmcron");
    succeed(
        Command::new(wasmcron)
            .current_dir(dir.path())
            .args(["new", "fresh-job"]),
    );
    // The versions that this checkout was tested with.
    std::fs::copy(checkout().join("Cargo.lock"), project.join("Cargo.lock"))
        .expect("the lock file");
    build(&project, &["test", "--quiet"]);

    let job = dir.path().join("jobs");
    std::fs::create_dir(&job).expect("jobs");
    std::fs::copy(project.join("fresh-job.toml"), job.join("fresh-job.toml"))
        .expect("the job file");
    succeed(
        Command::new(wasmcron)
            .current_dir(dir.path())
            .args(["config", "check"]),
    );

    if !has_guest_target() {
        eprintln!(
            "not built for wasm32-wasip2: this Rust lacks the target (`rustup target add wasm32-wasip2`)"
        );
        return;
    }
    build(&project, &["plugin", "--quiet"]);
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("new-project");
    let component = target.join("wasm32-wasip2/guest/fresh_job.wasm");
    succeed(
        Command::new(wasmcron)
            .current_dir(dir.path())
            .args(["plugin", "check"])
            .arg(&component)
            .args(["--params", "{\"steps\":3}"]),
    );
    runs_in_dev(&project, &target);
}

/// How long a line is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// Killed when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `wasmcron dev` in the project finds what `cargo plugin` built and the project's own job file.
fn runs_in_dev(project: &Path, target: &Path) {
    let wasmcron = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wasmcron"));
        command.current_dir(project).env("CARGO_TARGET_DIR", target);
        command.env_remove("WASMCRON_STORE");
        command
    };
    let mut dev = Running(
        wasmcron()
            .arg("dev")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("dev starts"),
    );
    let out = dev.0.stdout.take().expect("its output");
    let (line, lines) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for said in std::io::BufReader::new(out).lines().map_while(Result::ok) {
            // Nobody listens once the job was seen.
            let _ = line.send(said);
        }
    });
    loop {
        let said = lines.recv_timeout(PATIENCE).expect("a line of dev");
        if said.contains("fresh-job") && said.contains("job, */5 * * * * UTC") {
            break;
        }
    }
    let job = wasmcron()
        .args(["job", "trigger", "fresh-job", "--wait"])
        .output()
        .expect("it runs");
    let text = String::from_utf8_lossy(&job.stdout);
    assert!(text.contains("succeeded: 10 steps"), "{job:?}");
    succeed(Command::new("kill").args(["-INT", &dev.0.id().to_string()]));
    assert_eq!(dev.0.wait().expect("its end").code(), Some(0));
}
