//! Signals that ask a process to leave in good order.

use anyhow::{Context as _, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGTERM, SIGINT and SIGHUP, which no longer end the process by themselves.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// None where whoever started the process wants it to outlive its terminal.
    hangup: Option<Signal>,
}

impl Signals {
    /// Takes them over.
    pub fn listen() -> Result<Self> {
        let hangup = if is_ignored(SignalKind::hangup()) {
            None
        } else {
            Some(signal(SignalKind::hangup()).context("cannot listen for SIGHUP")?)
        };
        Ok(Signals {
            terminate: signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?,
            interrupt: signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?,
            hangup,
        })
    }

    /// The name of the next one.
    pub async fn next(&mut self) -> &'static str {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
            _ = hangup => "SIGHUP",
        }
    }
}

/// Whether the process was started with a signal ignored, as `nohup` does: listening would undo that.
/// Where the system does not tell, none is.
fn is_ignored(kind: SignalKind) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    is_in_mask(&status, kind.as_raw_value())
}

fn is_in_mask(status: &str, number: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (number - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_told_by_their_bits() {
        let status = "Name:\twasmcron\nSigBlk:\tffffffffffffffff\nSigIgn:\t0000000000001001\n";
        assert!(is_in_mask(status, 1) && is_in_mask(status, 13));
        assert!(!is_in_mask(status, 2) && !is_in_mask(status, 15));
        assert!(!is_in_mask("", 1));
    }
}
