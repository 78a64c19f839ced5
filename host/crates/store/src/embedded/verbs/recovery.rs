//! Finding what stands still, and moving it.

use std::time::Duration;

use wasmcron_core::ids::{JobName, PodAddress, RunId};
use wasmcron_core::run::{Outcome, RunState};
use wasmcron_core::task::Reason;
use wasmcron_core::time::Timestamp;
use wasmcron_core::view::{Hold, LockHolder, RunningEntry, ScheduledEntry};

use super::base::px;
use super::ending::End;
use super::schedule::next_page;
use super::{Call, Names};
use crate::control::Wake;
use crate::embedded::engine::{Found, Key, Range, Record, Tx};
use crate::embedded::records::{
    AttemptEnd, Closer, Delayed, Due, Lock, Quarantined, RunRow, Running, Scheduled, TaskRow,
};
use crate::error::Result;
use crate::leadership::TermRef;
use crate::page::PageCursor;
use crate::recovery::{BURIED, EntryId, Losing, Loss, PLATFORM, Page, Register, Republished, Seen};
use crate::runs::Retention;
use crate::schedule::PAGE_MAX;

/// An entry as the caller saw it.
struct Entry {
    pod: PodAddress,
    task: TaskRow,
    running: Option<std::sync::Arc<Running>>,
}

/// Why an entry is left alone.
enum Spared {
    Gone,
    Changed,
    Alive,
}

impl<T: Tx> Call<'_, T> {
    fn page<R: Record, E>(
        &mut self,
        cursor: Option<&PageCursor>,
        show: impl Fn(&R) -> Option<E>,
        run_of: impl Fn(&R) -> &RunId,
    ) -> Result<Page<E>> {
        let mut range = Range::all("");
        if let Some(cursor) = cursor {
            range = range.after(0, cursor.as_str());
        }
        let found = self.tx.scan::<R>(&range, PAGE_MAX)?;
        let mut page = Page {
            entries: Vec::with_capacity(found.len()),
            corrupt: Vec::new(),
            next: next_page(&found),
        };
        for (key, found) in found {
            let entry = match &found {
                Found::Good(entry) if run_of(entry).as_str() == &*key.name => show(entry),
                _ => None,
            };
            match entry {
                Some(entry) => page.entries.push(entry),
                None => {
                    tracing::warn!(run = &*key.name, what = R::WHAT, "an entry does not decode");
                    page.corrupt.push(EntryId::from(&*key.name));
                }
            }
        }
        Ok(page)
    }

    pub(in crate::embedded) fn scheduled(
        &mut self,
        cursor: Option<&PageCursor>,
    ) -> Result<Page<ScheduledEntry>> {
        let show = |entry: &Scheduled| {
            Some(ScheduledEntry {
                task: entry.task.task(Some(&entry.pod)),
                pod: entry.pod.clone(),
                session: entry.session.clone(),
                delivery: entry.delivery,
                published_at: entry.at,
            })
        };
        self.page(cursor, show, |entry: &Scheduled| &entry.task.base.run)
    }

    pub(in crate::embedded) fn running(
        &mut self,
        cursor: Option<&PageCursor>,
    ) -> Result<Page<RunningEntry>> {
        let show = |entry: &Running| {
            Some(RunningEntry {
                task: entry.task.task(Some(&entry.pod)),
                pod: entry.pod.clone(),
                session: entry.session.clone(),
                fence: entry.fence,
                claimed_at: entry.claimed_at,
                ends_by: entry.ends_by,
                cancel: entry.cancel.clone(),
                progress: entry.progress.clone(),
            })
        };
        self.page(cursor, show, |entry: &Running| &entry.task.base.run)
    }

    /// Who holds some jobs' locks, and whether one of them lasts longer than its attempt asked for.
    pub(in crate::embedded) fn locks(
        &mut self,
        jobs: &[JobName],
    ) -> Result<(Vec<Option<LockHolder>>, bool)> {
        let (mut locks, mut too_long) = (Vec::with_capacity(jobs.len()), false);
        for job in jobs {
            let lock = self.lock(&Key::named(job.as_str()))?;
            locks.push(lock.map(|lock| {
                let (left, longest) = (lock.expires_at.since(self.now), longest(&lock));
                too_long |= left > longest;
                LockHolder {
                    pod: lock.pod.clone(),
                    run: lock.run.clone(),
                    fence: lock.fence,
                    expires_in: left.min(longest),
                }
            }));
        }
        Ok((locks, too_long))
    }

    /// Cuts locks that a clock stepping back made long.
    pub(in crate::embedded) fn cut_locks(&mut self, jobs: &[JobName]) -> Result<()> {
        for job in jobs {
            let key = Key::named(job.as_str());
            if let Some(lock) = self.lock(&key)?
                && lock.expires_at.since(self.now) > longest(&lock)
            {
                let mut cut = Lock::clone(&lock);
                cut.expires_at = self.now + longest(&lock);
                self.tx.put(key, cut)?;
            }
        }
        Ok(())
    }

    pub(in crate::embedded) fn recoveries(&mut self, runs: &[RunId]) -> Result<Vec<u32>> {
        let mut counts = Vec::with_capacity(runs.len());
        for run in runs {
            let record = self.record(&Key::named(run.as_str()))?;
            counts.push(record.map_or(0, |record| self.current_recoveries(&record)));
        }
        Ok(counts)
    }

    pub(in crate::embedded) fn began(&mut self, runs: &[RunId]) -> Result<Vec<Option<Timestamp>>> {
        let began = |run: &RunId| self.began_at(&Key::named(run.as_str()));
        runs.iter().map(began).collect()
    }

    /// Recoveries in the current window.
    pub(super) fn current_recoveries(&self, record: &RunRow) -> u32 {
        match record.recoveries {
            Some((count, since)) if self.now.since(since) <= self.options.recovery_window => count,
            _ => 0,
        }
    }

    /// The entry if it still is as seen, and not alive.
    fn as_seen(&mut self, names: &Names, seen: Seen) -> Result<std::result::Result<Entry, Spared>> {
        match seen {
            Seen::Running(fence) => {
                let Some(entry) = self.good::<Running>(&names.run_key)? else {
                    return Ok(Err(Spared::Gone));
                };
                if entry.fence != fence {
                    return Ok(Err(Spared::Changed));
                }
                if self.holds(names, fence)? {
                    return Ok(Err(Spared::Alive));
                }
                if self.drop_stray::<Running>(names)? {
                    return Ok(Err(Spared::Changed));
                }
                Ok(Ok(Entry {
                    pod: entry.pod.clone(),
                    task: entry.task.clone(),
                    running: Some(entry),
                }))
            }
            Seen::Scheduled(delivery) => {
                let Some(entry) = self.good::<Scheduled>(&names.run_key)? else {
                    return Ok(Err(Spared::Gone));
                };
                if entry.delivery != delivery {
                    return Ok(Err(Spared::Changed));
                }
                if self.tx.contains::<Running>(&names.run_key)? {
                    // It executes: the other entry is a stray.
                    self.tx.remove::<Scheduled>(&names.run_key)?;
                    return Ok(Err(Spared::Changed));
                }
                if self.drop_stray::<Scheduled>(names)? {
                    return Ok(Err(Spared::Changed));
                }
                Ok(Ok(Entry {
                    pod: entry.pod.clone(),
                    task: entry.task.clone(),
                    running: None,
                }))
            }
        }
    }

    fn close_lost(&mut self, names: &Names, running: &Running, outcome: Outcome) -> Result<()> {
        let end = AttemptEnd {
            at: self.now,
            digest: None,
            outcome,
        };
        self.close_attempt(names, running, Closer::Recoverer, end)
    }

    /// Ends a run whose attempt was lost after somebody had asked for its end.
    fn cancel_lost(
        &mut self,
        names: &Names,
        running: &Running,
        by: &str,
        reason: String,
    ) -> Result<()> {
        self.close_lost(names, running, Outcome::Lost { reason })?;
        let end = End::cancelled(by, running.task.base.clone(), self.options.retention);
        let why = end.why.to_string();
        let surplus = self.end_run(names, end)?;
        self.tx.remove::<Running>(&names.run_key)?;
        let facts = [
            ("pod", (&running.pod).into()),
            ("attempt", running.task.attempt.into()),
            ("why", why.into()),
        ];
        self.log("run.finished", Some(&names.job), Some(&names.run), facts)?;
        self.discard(surplus)
    }

    pub(in crate::embedded) fn republish(
        &mut self,
        term: &TermRef,
        run: &RunId,
        seen: Seen,
        to: &PodAddress,
        why: String,
        counted: bool,
    ) -> Result<Republished> {
        if !self.leads(term)? {
            return Ok(Republished::NotLeader);
        }
        let names = Names::of(run);
        let entry = match self.as_seen(&names, seen)? {
            Ok(entry) => entry,
            Err(Spared::Alive) => return Ok(Republished::Alive),
            Err(Spared::Gone | Spared::Changed) => return Ok(Republished::Changed),
        };
        if let Some(running) = &entry.running
            && let Some(by) = &running.cancel
        {
            self.cancel_lost(&names, running, by, why)?;
            return Ok(Republished::Cancelled);
        }
        let Some(session) = self.target_session(to)? else {
            return Ok(Republished::NoPod);
        };
        let delivery = self.next_delivery()?;
        let mut task = entry.task;
        if let Some(running) = &entry.running {
            let reason = why.clone();
            self.close_lost(&names, running, Outcome::Lost { reason })?;
            task.attempt += 1;
            task.reason = Reason::Resume;
            self.tx.remove::<Running>(&names.run_key)?;
        }
        if counted || entry.running.is_some() {
            self.count_recovery(&names)?;
        }
        let said = why.clone();
        self.change_record(&names, |row| row.why = Some(said.into()))?;
        let attempt = task.attempt;
        let scheduled = Scheduled {
            delivery,
            pod: to.clone(),
            session,
            at: self.now,
            task,
        };
        self.push(run, scheduled)?;
        let facts = [
            ("pod", to.into()),
            ("from", (&entry.pod).into()),
            ("attempt", attempt.into()),
            ("delivery", delivery.0.into()),
            ("why", why.into()),
        ];
        self.log("run.recovered", Some(&names.job), Some(run), facts)?;
        Ok(Republished::Republished)
    }

    pub(in crate::embedded) fn lose(
        &mut self,
        term: &TermRef,
        run: &RunId,
        seen: Seen,
        loss: Loss,
    ) -> Result<Losing> {
        if !self.leads(term)? {
            return Ok(Losing::NotLeader);
        }
        let names = Names::of(run);
        let entry = match self.as_seen(&names, seen)? {
            Ok(entry) => entry,
            Err(Spared::Alive) => return Ok(Losing::Alive),
            Err(Spared::Changed) => return Ok(Losing::Changed),
            Err(Spared::Gone) => {
                let record = self.record(&names.run_key)?;
                let repeated = record.is_some_and(|record| {
                    record.state == Some(loss.state) && record.why.as_deref() == Some(&*loss.reason)
                });
                return Ok(if repeated {
                    Losing::Lost
                } else {
                    Losing::Changed
                });
            }
        };
        let reason = loss.reason.clone();
        if let Some(running) = &entry.running {
            let outcome = match loss.state {
                RunState::TimedOut => Outcome::TimedOut { message: reason },
                _ => Outcome::Lost { reason },
            };
            self.close_lost(&names, running, outcome)?;
        }
        if loss.quarantine {
            self.note_change(&names.job)?;
            let hold = Hold {
                by: PLATFORM.to_owned(),
                at: self.now,
                why: loss.reason.clone(),
                digest: loss.digest.clone(),
            };
            self.tx.put(names.job_key.clone(), Quarantined(hold))?;
            self.tx.wake(Wake::Jobs);
        }
        let end = End {
            state: loss.state,
            why: loss.reason.clone().into(),
            base: Some(entry.task.base.clone()),
            keep: loss.retention,
        };
        self.end_run(&names, end)?;
        match entry.running {
            Some(_) => self.tx.remove::<Running>(&names.run_key)?,
            None => self.tx.remove::<Scheduled>(&names.run_key)?,
        };
        let facts = [
            ("pod", (&entry.pod).into()),
            ("attempt", entry.task.attempt.into()),
            ("state", loss.state.as_str().into()),
            ("why", loss.reason.into()),
            ("quarantined", u32::from(loss.quarantine).into()),
        ];
        self.log("run.lost", Some(&names.job), Some(run), facts)?;
        Ok(Losing::Lost)
    }

    pub(in crate::embedded) fn give_up(
        &mut self,
        term: &TermRef,
        run: &RunId,
        loss: Loss,
    ) -> Result<Losing> {
        if !self.leads(term)? {
            return Ok(Losing::NotLeader);
        }
        let names = Names::of(run);
        let Some(entry) = self.good::<Delayed>(&names.run_key)? else {
            let record = self.record(&names.run_key)?;
            let repeated = record.is_some_and(|record| {
                record.state == Some(loss.state) && record.why.as_deref() == Some(&*loss.reason)
            });
            return Ok(if repeated {
                Losing::Lost
            } else {
                Losing::Changed
            });
        };
        let Some(due) = entry.due.filter(|due| *due <= self.now) else {
            return Ok(Losing::Changed);
        };
        let end = End {
            state: loss.state,
            why: loss.reason.clone().into(),
            base: Some(entry.task.base.clone()),
            keep: loss.retention,
        };
        self.end_run(&names, end)?;
        self.tx.remove::<Delayed>(&names.run_key)?;
        self.drop_due(run, Some(due))?;
        let event = match loss.state {
            RunState::Skipped => "firing.missed",
            _ => "run.finished",
        };
        let facts = [
            ("attempt", entry.task.attempt.into()),
            ("state", loss.state.as_str().into()),
            ("why", loss.reason.into()),
        ];
        self.log(event, Some(&names.job), Some(run), facts)?;
        Ok(Losing::Lost)
    }

    pub(in crate::embedded) fn bury(
        &mut self,
        term: &TermRef,
        register: Register,
        id: &str,
        keep: Retention,
    ) -> Result<bool> {
        if !self.leads(term)? {
            return Ok(false);
        }
        let key = Key::named(id);
        let run: Option<RunId> = id.parse().ok();
        let (word, text) = match register {
            Register::Scheduled => ("scheduled", self.text_of::<Scheduled>(&key)?),
            Register::Running => ("running", self.text_of::<Running>(&key)?),
            Register::Delayed => ("delayed", self.text_of::<Delayed>(&key)?),
        };
        let mut stray = false;
        if register == Register::Delayed {
            let due = self.find::<Due>("", id)?;
            if let Some(due) = due {
                stray = self.tx.remove::<Due>(&due)?;
            }
        }
        if text.is_none() && !stray {
            return Ok(false);
        }
        self.bury_text(word, id, text.as_deref().unwrap_or_default())?;
        match register {
            Register::Scheduled => self.tx.remove::<Scheduled>(&key)?,
            Register::Running => self.tx.remove::<Running>(&key)?,
            Register::Delayed => self.tx.remove::<Delayed>(&key)?,
        };
        let Some(run) = run else { return Ok(true) };
        self.lose_buried(&Names::of(&run), register, keep)?;
        Ok(true)
    }

    /// Ends the run of a buried entry. A stray beside a good entry, or of a run that is over, goes
    /// without a trace in the record.
    fn lose_buried(&mut self, names: &Names, register: Register, keep: Retention) -> Result<()> {
        let record = self.record(&names.run_key)?;
        let base = record
            .as_ref()
            .and_then(|record| Some(record.base.as_ref()?.0.clone()));
        if register == Register::Delayed {
            self.unpark(names, base.as_ref().map(|base| base.nominal))?;
        }
        let elsewhere = self.tx.contains::<Running>(&names.run_key)?
            || self.tx.contains::<Scheduled>(&names.run_key)?
            || self.tx.contains::<Delayed>(&names.run_key)?;
        if elsewhere || record.is_some_and(|record| record.state.is_some()) {
            return Ok(());
        }
        let lock = self.lock(&names.job_key)?;
        if lock.is_some_and(|lock| lock.run == names.run) {
            self.tx.remove::<Lock>(&names.job_key)?;
        }
        let end = End {
            state: RunState::Lost,
            why: BURIED.into(),
            base,
            keep,
        };
        self.end_run(names, end)?;
        let facts = [("state", "lost".into()), ("why", BURIED.into())];
        self.log("run.lost", Some(&names.job), Some(&names.run), facts)
    }
}

/// The longest that a lock lasts.
fn longest(lock: &Lock) -> Duration {
    px(Duration::from_millis(u64::try_from(lock.ttl).unwrap_or(0)))
}
