//! A process that ends with its owner.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

/// A running process; killed when dropped.
pub struct Program {
    name: String,
    child: Child,
}

impl Program {
    /// Starts it; what it prints goes to a log file.
    pub fn start(name: &str, command: &mut Command, log: &Path) -> Result<Program> {
        let out = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(log)?;
        command
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out);
        let child = command
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        Ok(Program {
            name: name.to_owned(),
            child,
        })
    }

    /// Starts a server that prints one JSON line with its URL when it is ready; answers that URL.
    pub fn server(name: &str, command: &mut Command) -> Result<(Program, String)> {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        let child = command
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        let mut program = Program {
            name: name.to_owned(),
            child,
        };
        let out = program.child.stdout.take().context("no standard output")?;
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line)?;
        let ready: Value =
            serde_json::from_str(&line).with_context(|| format!("{name} said {line:?}"))?;
        let url = ready["url"]
            .as_str()
            .with_context(|| format!("{name} named no URL"))?
            .to_owned();
        Ok((program, url))
    }

    /// SIGKILL, and the end of it.
    pub fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// SIGTERM.
    pub fn terminate(&self) -> Result<()> {
        let id = self.child.id().to_string();
        let status = Command::new("kill")
            .args(["-TERM", &id])
            .status()
            .context("kill")?;
        if status.success() {
            Ok(())
        } else {
            bail!("{} cannot be told to end", self.name)
        }
    }

    /// Waits for its end, for a bounded time.
    pub fn ended(mut self, limit: Duration) -> Result<ExitStatus> {
        let end = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if Instant::now() >= end {
                bail!("{} did not end within {} s", self.name, limit.as_secs());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended by itself; there is nobody to tell.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
