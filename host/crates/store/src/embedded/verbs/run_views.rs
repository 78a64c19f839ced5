//! Records of runs as people see them.

use wasmcron_core::ids::{JobName, RunId};
use wasmcron_core::run::{AttemptRecord, RunRecord, RunState};

use super::base::corrupt;
use super::{Call, Names};
use crate::embedded::engine::{Found, Key, Range, Tx};
use crate::embedded::records::{AttemptRow, Base, Delayed, RunOf, RunRow, Running, Scheduled};
use crate::error::Result;
use crate::schedule::PAGE_MAX;

/// Attempts of a run that are shown at most.
const ATTEMPTS_SHOWN: usize = 1_000;

impl<T: Tx> Call<'_, T> {
    pub(in crate::embedded) fn run(&mut self, run: &RunId) -> Result<Option<RunRecord>> {
        let names = Names::of(run);
        // A record that does not decode is told so; one that expired is none.
        let row = self.tx.get::<RunRow>(&names.run_key)?;
        let row = row.filter(|row| !row.expires_at.is_some_and(|at| self.is_past(at)));
        let running = if self.tx.contains::<Running>(&names.run_key)? {
            Some(self.good::<Running>(&names.run_key)?)
        } else {
            None
        };
        let whereabouts = self.whereabouts(&names, running.is_some())?;
        if row.is_none() && whereabouts.is_none() {
            return Ok(None);
        }
        // What a run that had this id left behind, and was not swept yet, is not this one's.
        let attempts = match row {
            Some(_) => self.attempts(run)?,
            None => Vec::new(),
        };
        let row = row.unwrap_or_default();
        let base = row.base.as_ref().map(|base| base.0.clone());
        let base = base.unwrap_or_else(|| Base::unknown(run).into());
        let (state, waits) = match row.state {
            Some(state) => (state, None),
            None => whereabouts.unwrap_or_else(|| {
                let why = "the store has no entry of it".to_owned();
                (RunState::Lost, Some(why))
            }),
        };
        let why = waits.or_else(|| row.why.as_deref().map(str::to_owned));
        let progress = running
            .flatten()
            .and_then(|running| running.progress.clone())
            .or_else(|| row.progress.clone());
        Ok(Some(RunRecord {
            run: run.clone(),
            job: names.job,
            nominal: base.nominal,
            reason: base.reason,
            state,
            created_at: row.created_at.unwrap_or(base.nominal),
            ended_at: row.ended_at,
            why: why.filter(|why| !why.is_empty()),
            recoveries: self.current_recoveries(&row),
            of: base.of.clone(),
            attempts,
            progress,
            params: base.params.clone(),
        }))
    }

    /// Where a run is, and why it waits; none if no register knows it. The registers are the
    /// authority: a record only says how a run ended.
    fn whereabouts(
        &mut self,
        names: &Names,
        runs: bool,
    ) -> Result<Option<(RunState, Option<String>)>> {
        if runs {
            return Ok(Some((RunState::Running, None)));
        }
        if self.tx.contains::<Scheduled>(&names.run_key)? {
            return Ok(Some((RunState::Scheduled, None)));
        }
        if !self.tx.contains::<Delayed>(&names.run_key)? {
            return Ok(None);
        }
        let entry = self.good::<Delayed>(&names.run_key)?;
        Ok(Some(match entry {
            Some(entry) if entry.due.is_some() => (RunState::Delayed, Some(entry.why.to_string())),
            Some(entry) => (RunState::Parked, Some(entry.why.to_string())),
            None => (RunState::Delayed, None),
        }))
    }

    fn attempts(&mut self, run: &RunId) -> Result<Vec<AttemptRecord>> {
        let found = self
            .tx
            .scan::<AttemptRow>(&Range::all(run.as_str()), ATTEMPTS_SHOWN)?;
        let one = |(key, found): (Key, Found<AttemptRow>)| match found {
            Found::Good(row) => Ok(attempt_of(u32::try_from(key.order).unwrap_or(0), &row)),
            Found::Broken { message, .. } => Err(corrupt::<AttemptRow>(&key, message)),
        };
        found.into_iter().map(one).collect()
    }

    pub(in crate::embedded) fn runs(
        &mut self,
        job: &JobName,
        limit: usize,
    ) -> Result<Vec<RunRecord>> {
        let latest = Range::all(job.as_str()).backwards();
        let mut records = Vec::new();
        for (key, _) in self.tx.scan::<RunOf>(&latest, limit.clamp(1, PAGE_MAX))? {
            if let Ok(run) = key.name.parse() {
                records.extend(self.run(&run)?);
            }
        }
        Ok(records)
    }
}

fn attempt_of(number: u32, row: &AttemptRow) -> AttemptRecord {
    let end = row.end.as_ref();
    AttemptRecord {
        attempt: number,
        pod: row.pod.clone(),
        fence: row.fence,
        reason: row.reason,
        // The version that ended it, where that was another than it began with.
        digest: end
            .and_then(|end| end.digest.clone())
            .or_else(|| row.digest.clone()),
        claimed_at: row.claimed_at,
        ended_at: end.map(|end| end.at),
        resumed_from: row.resumed_from,
        outcome: end.map(|end| end.outcome.clone()),
    }
}
