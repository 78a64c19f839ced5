//! The registers, the job's active run and its lock.

use std::borrow::Cow;
use std::sync::Arc;

use wasmcron_core::ids::{Fence, PodAddress, RunId};
use wasmcron_core::time::Timestamp;

use super::base::place;
use super::{Call, Names};
use crate::control::Wake;
use crate::embedded::engine::{Key, Range, Record, Tx};
use crate::embedded::records::{
    Active, AttemptEnd, AttemptRow, BaseRef, Checkpoints, Claiming, Closer, Delayed, Due, Kept,
    Lock, Parked, RunOf, RunRow, Running, Scheduled, TaskRow,
};
use crate::error::Result;
use crate::queue::Taken;

/// How many parked runs of a job are looked at in one go.
const PARKED_PAGE: usize = 1_000;

impl<T: Tx> Call<'_, T> {
    /// A run's record, as long as it is kept.
    pub(super) fn record(&mut self, run_key: &Key) -> Result<Option<Arc<RunRow>>> {
        let row = self.good::<RunRow>(run_key)?;
        Ok(row.filter(|row| !row.expires_at.is_some_and(|at| self.is_past(at))))
    }

    /// Whether a run was made before; a record that does not decode is one, too.
    pub(super) fn was_made(&mut self, run_key: &Key) -> Result<bool> {
        match self.good::<RunRow>(run_key)? {
            Some(row) => {
                Ok(row.base.is_some() && !row.expires_at.is_some_and(|at| self.is_past(at)))
            }
            None => self.tx.contains::<RunRow>(run_key),
        }
    }

    /// Whether a run is over.
    pub(super) fn is_over(&mut self, run_key: &Key) -> Result<bool> {
        let record = self.record(run_key)?;
        Ok(record.is_some_and(|record| record.state.is_some()))
    }

    /// When a run's first attempt was claimed.
    pub(super) fn began_at(&mut self, run_key: &Key) -> Result<Option<Timestamp>> {
        Ok(self.record(run_key)?.and_then(|record| record.began))
    }

    /// Changes a run's record, or makes it.
    pub(super) fn change_record(
        &mut self,
        names: &Names,
        change: impl FnOnce(&mut RunRow),
    ) -> Result<()> {
        let mut row = match self.good::<RunRow>(&names.run_key)? {
            Some(row) if row.expires_at.is_some_and(|at| self.is_past(at)) => {
                // Nothing of the run that had this id before is this one's.
                self.drop_run(&names.run, usize::MAX)?;
                RunRow::default()
            }
            Some(row) => RunRow::clone(&row),
            None => RunRow::default(),
        };
        change(&mut row);
        self.tx.put(names.run_key.clone(), row)
    }

    /// Makes the record of a new run.
    pub(super) fn make_record(&mut self, names: &Names, task: &TaskRow) -> Result<()> {
        let now = self.now;
        self.change_record(names, |row| {
            row.base = Some(BaseRef(task.base.clone()));
            row.created_at = Some(now);
        })?;
        let place = Key::new(names.job.as_str(), now.as_millis(), names.run.as_str());
        self.tx.put(place, RunOf(names.run.clone()))
    }

    /// Makes a run wait; without a due time it is parked.
    pub(super) fn delay_run(
        &mut self,
        names: &Names,
        due: Option<Timestamp>,
        why: impl Into<Cow<'static, str>>,
        task: TaskRow,
    ) -> Result<()> {
        let key = &names.run_key;
        if let Some(before) = self.good::<Delayed>(key)?.and_then(|before| before.due) {
            self.tx.remove::<Due>(&due_key(before, &names.run))?;
        }
        if let Some(at) = due {
            self.tx.put(due_key(at, &names.run), Due {})?;
            self.tx.wake(Wake::Due);
        }
        let why = why.into();
        self.tx.put(key.clone(), Delayed { due, why, task })
    }

    /// Takes a run's due time away, wherever it stands; whether there was one.
    pub(super) fn drop_due(&mut self, run: &RunId, due: Option<Timestamp>) -> Result<bool> {
        if let Some(due) = due {
            return self.tx.remove::<Due>(&due_key(due, run));
        }
        let found = self.find::<Due>("", run.as_str())?;
        match found {
            Some(key) => self.tx.remove::<Due>(&key),
            None => Ok(false),
        }
    }

    /// The place of a record by its name, where its order is not known. Reads the whole scope: for
    /// what damage leaves behind.
    pub(super) fn find<R: Record>(&mut self, scope: &str, name: &str) -> Result<Option<Key>> {
        let mut range = Range::all(scope);
        loop {
            let page = self.tx.scan::<R>(&range, PARKED_PAGE)?;
            if let Some((key, _)) = page.iter().find(|(key, _)| &*key.name == name) {
                return Ok(Some(key.clone()));
            }
            match page.last() {
                Some((key, _)) if page.len() == PARKED_PAGE => {
                    range = range.after(key.order, &key.name);
                }
                _ => return Ok(None),
            }
        }
    }

    /// Takes a run off those that are parked.
    pub(super) fn unpark(&mut self, names: &Names, nominal: Option<Timestamp>) -> Result<()> {
        for skippable in [true, false] {
            let name = parked_name(skippable, &names.run);
            let key = match nominal {
                Some(at) => Some(Key::new(names.job.as_str(), at.as_millis(), &name)),
                None => self.find::<Parked>(names.job.as_str(), &name)?,
            };
            if let Some(key) = key {
                self.tx.remove::<Parked>(&key)?;
            }
        }
        Ok(())
    }

    /// Whether a register knows a run.
    fn is_registered(&mut self, run_key: &Key) -> Result<bool> {
        Ok(self.tx.contains::<Running>(run_key)?
            || self.tx.contains::<Scheduled>(run_key)?
            || self.tx.contains::<Delayed>(run_key)?)
    }

    /// The run whose end the job's other runs wait for; one that no register knows holds nobody up.
    pub(super) fn active_of(&mut self, job_key: &Key) -> Result<Option<RunId>> {
        let Some(active) = self.good::<Active>(job_key)? else {
            return Ok(None);
        };
        let known = self.is_registered(&Key::named(active.0.as_str()))?;
        Ok(known.then(|| active.0.clone()))
    }

    /// The job's lock, if somebody holds it.
    pub(super) fn lock(&mut self, job_key: &Key) -> Result<Option<Arc<Lock>>> {
        let lock = self.good::<Lock>(job_key)?;
        Ok(lock.filter(|lock| !self.is_past(lock.expires_at)))
    }

    /// Whether the lock is held by this attempt.
    pub(super) fn holds(&mut self, names: &Names, fence: Fence) -> Result<bool> {
        let lock = self.lock(&names.job_key)?;
        Ok(lock.is_some_and(|lock| lock.run == names.run && lock.fence == fence))
    }

    /// Frees the lock if this attempt holds it.
    pub(super) fn unlock(&mut self, names: &Names, fence: Fence) -> Result<()> {
        if self.holds(names, fence)? {
            self.tx.remove::<Lock>(&names.job_key)?;
        }
        Ok(())
    }

    /// The executing attempt with this fence.
    pub(super) fn attempt(&mut self, names: &Names, fence: Fence) -> Result<Option<Arc<Running>>> {
        let running = self.good::<Running>(&names.run_key)?;
        Ok(running.filter(|running| running.fence == fence))
    }

    /// An entry of a run whose record says that it is over is a stray, and goes: it never runs again.
    pub(super) fn drop_stray<R: Record>(&mut self, names: &Names) -> Result<bool> {
        if !self.is_over(&names.run_key)? {
            return Ok(false);
        }
        self.tx.remove::<R>(&names.run_key)?;
        self.clear_active(names)?;
        Ok(true)
    }

    /// Takes an entry off those that a pod took and did not claim.
    pub(super) fn drop_claiming(&mut self, pod: &PodAddress, taken: &Taken) -> Result<()> {
        let key = Key::new(pod.as_str(), place(taken.delivery.0), taken.run.as_str());
        self.tx.remove::<Claiming>(&key)?;
        Ok(())
    }

    /// The latest of the kept checkpoints.
    pub(super) fn kept(&mut self, run_key: &Key) -> Result<Option<Kept>> {
        let kept = self.good::<Checkpoints>(run_key)?;
        Ok(kept.and_then(|kept| kept.kept.last().cloned()))
    }

    /// Closes an attempt in the record; the latest hundred are kept.
    pub(super) fn close_attempt(
        &mut self,
        names: &Names,
        running: &Running,
        how: Closer,
        end: AttemptEnd,
    ) -> Result<()> {
        let number = running.task.attempt;
        let key = attempt_key(&names.run, number);
        if let Some(begun) = self.good::<AttemptRow>(&key)? {
            let mut row = AttemptRow::clone(&begun);
            row.end = Some(end);
            self.tx.put(key, row)?;
        }
        if let Some(old) = number.checked_sub(ATTEMPTS_MAX) {
            self.tx
                .remove::<AttemptRow>(&attempt_key(&names.run, old))?;
        }
        let (fence, progress) = (running.fence, running.progress.clone());
        self.change_record(names, |row| {
            if row.closed.len() >= CLOSED_MAX {
                row.closed.drain(..=row.closed.len() - CLOSED_MAX);
            }
            row.closed.push((how, fence));
            if progress.is_some() {
                row.progress = progress;
            }
        })
    }

    /// Whether an attempt was closed in this way.
    pub(super) fn was_closed(&mut self, names: &Names, how: Closer, fence: Fence) -> Result<bool> {
        let record = self.record(&names.run_key)?;
        Ok(record.is_some_and(|record| record.closed.contains(&(how, fence))))
    }

    /// Counts an attempt or a delivery that was lost with its pod.
    pub(super) fn count_recovery(&mut self, names: &Names) -> Result<()> {
        let (now, window) = (self.now, super::base::px(self.options.recovery_window));
        self.change_record(names, |row| {
            row.recoveries = match row.recoveries {
                Some((count, since)) if now.since(since) <= window => {
                    Some((count.saturating_add(1), since))
                }
                _ => Some((1, now)),
            };
        })
    }
}

/// Attempts kept in a record.
const ATTEMPTS_MAX: u32 = 100;
/// Closed attempts whose closers are remembered.
const CLOSED_MAX: usize = 16;

/// Where a delayed run stands by its time.
pub(super) fn due_key(due: Timestamp, run: &RunId) -> Key {
    Key::new("", due.as_millis(), run.as_str())
}

/// The name of a parked run: those that may not be skipped stand first among equals.
pub(super) fn parked_name(skippable: bool, run: &RunId) -> String {
    format!("{}|{run}", if skippable { "s" } else { "k" })
}

/// Where an attempt stands.
pub(super) fn attempt_key(run: &RunId, number: u32) -> Key {
    Key::new(run.as_str(), number.into(), "")
}
