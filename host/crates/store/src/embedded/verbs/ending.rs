//! How a run ends, and what that lets go on.

use std::borrow::Cow;
use std::sync::Arc;

use wasmcron_core::ids::RunId;
use wasmcron_core::run::RunState;
use wasmcron_core::time::Timestamp;

use super::base::px;
use super::{Call, Names};
use crate::embedded::engine::{Found, Range, Tx};
use crate::embedded::records::{
    Active, Base, BaseRef, Delayed, Expiry, Parked, RunOf, RunRow, Stats,
};
use crate::error::Result;
use crate::runs::Retention;

/// Runs that the end of one takes off its job's list at most.
const SURPLUS_MAX: usize = 100;

/// Why a run is due again that was parked.
pub(super) const ENDED: &str = "the run before it ended";

/// How a run ends.
pub(super) struct End {
    pub(super) state: RunState,
    pub(super) why: Cow<'static, str>,
    /// What never changes about the run; none if that was lost.
    pub(super) base: Option<Arc<Base>>,
    pub(super) keep: Retention,
}

impl End {
    /// Of a run whose end was asked for.
    pub(super) fn cancelled(by: &str, base: Arc<Base>, keep: Retention) -> End {
        End {
            state: RunState::Cancelled,
            why: format!("cancelled by {by}").into(),
            base: Some(base),
            keep,
        }
    }
}

impl<T: Tx> Call<'_, T> {
    /// Makes the job's first parked run due.
    fn release_parked(&mut self, names: &Names) -> Result<()> {
        let all = Range::all(names.job.as_str());
        while let Some((key, found)) = self.tx.scan::<Parked>(&all, 1)?.pop() {
            self.tx.remove::<Parked>(&key)?;
            let run: Option<RunId> = match found {
                Found::Good(parked) => Some(parked.run.clone()),
                Found::Broken { .. } => key.name.get(2..).and_then(|run| run.parse().ok()),
            };
            let Some(run) = run else { continue };
            let next = Names::with(names.job.clone(), &run);
            if let Some(waits) = self.good::<Delayed>(&next.run_key)? {
                let (now, why) = (self.now, ENDED);
                return self.delay_run(&next, Some(now), why, waits.task.clone());
            }
        }
        Ok(())
    }

    /// Gives up the run's place as the active one, and that of one that no register knows any more.
    /// Without an active run nothing holds parked ones up.
    pub(super) fn clear_active(&mut self, names: &Names) -> Result<()> {
        let active = self.active_of(&names.job_key)?;
        if active.is_some_and(|active| active != names.run) {
            return Ok(());
        }
        self.tx.remove::<Active>(&names.job_key)?;
        self.release_parked(names)
    }

    /// Ends a run: its record and what expires with it, and its place as the job's active run. Answers
    /// the job's runs that are more than it keeps: they are off its list.
    pub(super) fn end_run(&mut self, names: &Names, end: End) -> Result<Vec<RunId>> {
        let (now, expires_at) = (self.now, self.now + px(end.keep.age));
        let succeeded = end.state == RunState::Succeeded;
        let (state, why) = (end.state, end.why);
        let base = end.base.map(BaseRef);
        self.change_record(names, |row| {
            row.state = Some(state);
            row.ended_at = Some(now);
            row.why = Some(why);
            row.base = base;
            row.expires_at = Some(expires_at);
        })?;
        self.expire(expires_at, Expiry::Run(names.run.clone()))?;
        if succeeded {
            self.drop_checkpoints(&names.run)?;
        }
        let surplus = self.surplus(names, end.keep.runs.max(1).into())?;
        self.change_stats(names, |stats| {
            let count = match state {
                RunState::Succeeded => &mut stats.succeeded,
                RunState::Failed => &mut stats.failed,
                RunState::TimedOut => &mut stats.timed_out,
                RunState::Cancelled => &mut stats.cancelled,
                RunState::Skipped => &mut stats.skipped,
                _ => &mut stats.lost,
            };
            *count += 1;
        })?;
        self.clear_active(names)?;
        Ok(surplus)
    }

    fn surplus(&mut self, names: &Names, keep: u64) -> Result<Vec<RunId>> {
        let all = Range::all(names.job.as_str());
        let more = self.tx.count::<RunOf>(&all)?.saturating_sub(keep);
        if more == 0 {
            return Ok(Vec::new());
        }
        let more = usize::try_from(more).map_or(SURPLUS_MAX, |more| more.min(SURPLUS_MAX));
        let mut runs = Vec::with_capacity(more);
        for (key, found) in self.tx.scan::<RunOf>(&all, more)? {
            self.tx.remove::<RunOf>(&key)?;
            match found {
                Found::Good(run) => runs.push(run.0.clone()),
                Found::Broken { .. } => runs.extend(key.name.parse()),
            }
        }
        Ok(runs)
    }

    /// Drops what is left of ended runs that their job keeps no more. They are gone at once, and are
    /// taken away as everything that is past.
    pub(super) fn discard(&mut self, runs: Vec<RunId>) -> Result<()> {
        for run in runs {
            let names = Names::of(&run);
            if !self.is_over(&names.run_key)? {
                continue;
            }
            let past = Timestamp::EPOCH;
            self.change_record(&names, |row: &mut RunRow| row.expires_at = Some(past))?;
            self.expire(past, Expiry::Run(run))?;
        }
        Ok(())
    }

    /// Changes a job's statistics.
    pub(super) fn change_stats(
        &mut self,
        names: &Names,
        change: impl FnOnce(&mut Stats),
    ) -> Result<()> {
        let mut stats = self
            .good::<Stats>(&names.job_key)?
            .map_or_else(Stats::default, |stats| *stats);
        change(&mut stats);
        self.tx.put(names.job_key.clone(), stats)
    }
}
