//! What ends at a time: it is gone for every verb from then on, and is taken away by and by.

use wasmcron_core::ids::RunId;
use wasmcron_core::time::Timestamp;

use super::Call;
use crate::embedded::engine::{Found, Key, Range, Tx};
use crate::embedded::records::{
    AttemptRow, CheckpointBytes, Checkpoints, Expiry, Idempotency, Line, RunOf, RunRow,
};
use crate::error::Result;

/// Expiries that one verb looks at.
const SWEEP_MAX: usize = 4;
/// Log lines or attempts of a run that one verb takes away.
const SWEEP_ROWS: usize = 100;

impl<T: Tx> Call<'_, T> {
    /// Takes a little of what is past away.
    pub(super) fn sweep(&mut self) -> Result<()> {
        let past = Range::all("").up_to(self.now.as_millis() - 1);
        for (key, found) in self.tx.scan::<Expiry>(&past, SWEEP_MAX)? {
            let done = match found {
                Found::Good(expiry) => match &*expiry {
                    Expiry::Run(run) => self.sweep_run(run)?,
                    Expiry::Idempotency(name) => self.sweep_key(name)?,
                },
                Found::Broken { .. } => true,
            };
            if done {
                self.tx.remove::<Expiry>(&key)?;
            }
        }
        Ok(())
    }

    fn sweep_key(&mut self, name: &str) -> Result<bool> {
        let key = Key::named(name);
        let kept = self.good::<Idempotency>(&key)?;
        if kept.is_none_or(|kept| self.is_past(kept.expires_at)) {
            self.tx.remove::<Idempotency>(&key)?;
        }
        Ok(true)
    }

    fn sweep_run(&mut self, run: &RunId) -> Result<bool> {
        let kept = self.good::<RunRow>(&Key::named(run.as_str()))?;
        if kept.is_some_and(|row| !row.expires_at.is_some_and(|at| self.is_past(at))) {
            // It ended once more, or was made anew.
            return Ok(true);
        }
        self.drop_run(run, SWEEP_ROWS)
    }

    /// Drops what is left of a run, so many rows of a kind at most; whether nothing is left.
    pub(super) fn drop_run(&mut self, run: &RunId, rows: usize) -> Result<bool> {
        let all = Range::all(run.as_str());
        if self.remove_first::<Line>(&all, rows)? == rows
            || self.remove_first::<AttemptRow>(&all, rows)? == rows
        {
            return Ok(false);
        }
        self.drop_checkpoints(run)?;
        let key = Key::named(run.as_str());
        // Its place on its job's list hangs on when it was made, which nothing else tells: a run made
        // anew must not stand there twice.
        let row = self.good::<RunRow>(&key)?;
        if let Some(created_at) = row.and_then(|row| row.created_at) {
            let job = run.job();
            let place = Key::new(job.as_str(), created_at.as_millis(), run.as_str());
            self.tx.remove::<RunOf>(&place)?;
        }
        self.tx.remove::<RunRow>(&key)?;
        Ok(true)
    }

    /// Drops a run's checkpoints; whether there were some.
    pub(super) fn drop_checkpoints(&mut self, run: &RunId) -> Result<bool> {
        self.remove_all::<CheckpointBytes>(run.as_str())?;
        self.tx.remove::<Checkpoints>(&Key::named(run.as_str()))
    }

    /// Notes when something ends.
    pub(super) fn expire(&mut self, at: Timestamp, expiry: Expiry) -> Result<()> {
        let name = match &expiry {
            Expiry::Run(run) => format!("run|{run}"),
            Expiry::Idempotency(key) => format!("key|{key}"),
        };
        self.tx.put(Key::new("", at.as_millis(), &name), expiry)
    }
}
