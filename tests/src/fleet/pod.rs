//! One pod as a process.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use tokio::process::{Child, Command};
use tokio::time::Instant;

use crate::host_binary;

/// How often a condition is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What may be sent to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGKILL.
    Kill,
    /// SIGTERM.
    Terminate,
    /// SIGINT, as Ctrl-C sends it.
    Interrupt,
    /// SIGHUP, as a terminal that is closed sends it.
    Hangup,
    /// SIGSTOP.
    Stop,
    /// SIGCONT.
    Continue,
}

impl Signal {
    /// Sends it to a process that lives.
    ///
    /// # Errors
    /// When there is no such process.
    pub fn send(self, id: u32) -> Result<()> {
        let name = match self {
            Signal::Kill => "-KILL",
            Signal::Terminate => "-TERM",
            Signal::Interrupt => "-INT",
            Signal::Hangup => "-HUP",
            Signal::Stop => "-STOP",
            Signal::Continue => "-CONT",
        };
        let status = std::process::Command::new("kill")
            .args([name, &id.to_string()])
            .status()
            .context("cannot run `kill`")?;
        if !status.success() {
            bail!("kill {name} {id}: {status}");
        }
        Ok(())
    }
}

/// A running `wasmcron serve`; killed when dropped.
#[derive(Debug)]
pub struct PodProcess {
    address: String,
    child: Child,
    log: PathBuf,
    /// How long its log was when it started.
    from: usize,
}

impl PodProcess {
    /// Starts it and does not wait. Its log, which it appends to, lies beside its settings.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn(address: &str, config: &Path) -> Result<PodProcess> {
        let log = config.with_extension("log");
        let output = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&log)
            .with_context(|| format!("cannot open {}", log.display()))?;
        let from = usize::try_from(output.metadata()?.len())?;
        let child = Command::from(host_binary::command())
            .args(["serve", "--config"])
            .arg(config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(output)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start pod {address}"))?;
        Ok(PodProcess {
            address: address.to_owned(),
            child,
            log,
            from,
        })
    }

    /// Waits until it serves; false if it ended before, or does not within some time.
    ///
    /// # Errors
    /// When its status cannot be read.
    pub async fn serves(&mut self, patience: Duration) -> Result<bool> {
        let end = Instant::now() + patience;
        while Instant::now() < end {
            if self.exited()?.is_some() {
                return Ok(false);
            }
            if self.said("\"pod.started\"") {
                return Ok(true);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(false)
    }

    /// Whether it logged a text since it was started.
    #[must_use]
    pub fn said(&self, text: &str) -> bool {
        self.words().contains(text)
    }

    /// Where its HTTP port listens, once it said so.
    #[must_use]
    pub fn http(&self) -> Option<String> {
        let words = self.words();
        let mut lines = words
            .lines()
            .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let started = lines.find(|line| line["message"] == "pod.started")?;
        Some(started["http"].as_str()?.to_owned())
    }

    /// The last lines that it logged since it was started.
    #[must_use]
    pub fn last_words(&self, lines: usize) -> String {
        let words = self.words();
        let all: Vec<&str> = words.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }

    /// Everything that it logged since it was started.
    #[must_use]
    pub fn words(&self) -> String {
        let bytes = std::fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(bytes.get(self.from..).unwrap_or_default()).into_owned()
    }

    /// Its address in the fleet.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Its process.
    ///
    /// # Errors
    /// When it has ended.
    pub fn id(&self) -> Result<u32> {
        let id = self.child.id();
        id.with_context(|| format!("pod {} has ended", self.address))
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// When it has ended.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        signal.send(self.id()?)
    }

    /// How it ended, if it has.
    ///
    /// # Errors
    /// When its status cannot be read.
    pub fn exited(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Waits for its end, for a bounded time.
    ///
    /// # Errors
    /// When it does not end in time.
    pub async fn ended(&mut self, patience: Duration) -> Result<ExitStatus> {
        let ended = tokio::time::timeout(patience, self.child.wait()).await;
        let status = ended.with_context(|| {
            format!(
                "pod {} did not end within {patience:?}; it said last:\n{}",
                self.address,
                self.last_words(10)
            )
        })?;
        Ok(status?)
    }
}
