//! One `wasmcron dev` as a process.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;
use tokio::process::{Child, Command};
use wasmcron_tests::host_binary;

use super::pod::Signal;
use super::wait::{PATIENCE, until};

/// A running `wasmcron dev`, its outputs in files; killed when dropped.
pub struct DevProcess {
    child: Child,
    out: PathBuf,
    err: PathBuf,
}

impl DevProcess {
    /// Starts it on a folder; its outputs go below `logs`.
    pub fn start(folder: &Path, logs: &Path, arguments: &[&str]) -> DevProcess {
        let (out, err) = (logs.join("dev.out"), logs.join("dev.err"));
        let create = |path: &Path| std::fs::File::create(path).expect("a file");
        let child = Command::from(host_binary::command())
            .arg("dev")
            .arg(folder)
            .args(arguments)
            .env("XDG_CACHE_HOME", super::cache())
            .env_remove("WASMCRON_STORE")
            .env_remove("WASMCRON_CONFIG")
            .stdin(Stdio::null())
            .stdout(create(&out))
            .stderr(create(&err))
            .kill_on_drop(true)
            .spawn()
            .expect("start dev");
        DevProcess { child, out, err }
    }

    /// What it printed so far.
    pub fn out(&self) -> String {
        std::fs::read_to_string(&self.out).unwrap_or_default()
    }

    /// What it said on standard error so far.
    pub fn err(&self) -> String {
        std::fs::read_to_string(&self.err).unwrap_or_default()
    }

    /// What it printed, as values; the last line may still be written.
    pub fn events(&self) -> Vec<Value> {
        let out = self.out();
        out.lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    }

    /// Waits until it printed an event as asked for.
    pub async fn event(&mut self, what: &str, asked: impl Fn(&Value) -> bool) -> Value {
        until(what, PATIENCE, async || {
            let ended = self.child.try_wait().expect("its status");
            assert!(ended.is_none(), "dev ended: {ended:?}\n{}", self.err());
            self.events().into_iter().find(|event| asked(event))
        })
        .await
    }

    /// Waits until it printed these words.
    pub async fn said(&self, words: &str) {
        until(&format!("{words:?} of dev"), PATIENCE, async || {
            self.out().contains(words).then_some(())
        })
        .await;
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        signal.send(&self.child);
    }

    /// Waits for its end; answers its exit code.
    pub async fn ended(&mut self) -> Option<i32> {
        let ended = tokio::time::timeout(PATIENCE, self.child.wait()).await;
        ended.expect("dev to end").expect("its status").code()
    }
}
