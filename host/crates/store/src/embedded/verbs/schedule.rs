//! Definitions, and what the leader decides from.

use std::sync::Arc;
use std::time::Duration;

use wasmcron_core::ids::{DefinitionHash, JobName, RunId};
use wasmcron_core::job::StoredDefinition;
use wasmcron_core::time::Timestamp;
use wasmcron_core::view::{DelayedEntry, Gap, Hold, JobView, Successes};

use super::Call;
use super::base::delay;
use super::entries::due_key;
use crate::control::Wake;
use crate::embedded::engine::{Found, Key, Range, Record, Tx};
use crate::embedded::records::{
    Active, Cursor, Delayed, Due, GapRecord, Paused, Quarantined, Schedule, Stats, Waiting,
};
use crate::error::{Result, StoreError};
use crate::leadership::TermRef;
use crate::page::PageCursor;
use crate::recovery::EntryId;
use crate::schedule::{DueDelayed, Opened, Operated, PAGE_MAX, ViewPage, count_between};

/// How long gaps are kept.
const GAPS_KEPT: Duration = Duration::from_secs(90 * 86_400);
/// Gaps of a job kept.
const GAPS_MAX: u64 = 1_000;
/// Gaps that adding one takes away at most.
const GAPS_DROPPED: usize = 100;

impl<T: Tx> Call<'_, T> {
    pub(in crate::embedded) fn view(&mut self, cursor: Option<&PageCursor>) -> Result<ViewPage> {
        let mut range = Range::all("");
        if let Some(cursor) = cursor {
            range = range.after(0, cursor.as_str());
        }
        let found = self.tx.scan::<Schedule>(&range, PAGE_MAX)?;
        let mut page = ViewPage {
            jobs: Vec::with_capacity(found.len()),
            corrupt: Vec::new(),
            next: next_page(&found),
        };
        for (key, found) in found {
            match (found, key.name.parse()) {
                (Found::Good(schedule), Ok(job)) => {
                    page.jobs.push(self.job_view(&key, job, &schedule)?);
                }
                (Found::Broken { message, .. }, _) => {
                    tracing::warn!(
                        job = &*key.name,
                        message,
                        "a stored definition does not decode"
                    );
                    page.corrupt.push(key.name.to_string());
                }
                (_, Err(_)) => page.corrupt.push(key.name.to_string()),
            }
        }
        Ok(page)
    }

    pub(in crate::embedded) fn job(&mut self, job: &JobName) -> Result<Option<JobView>> {
        let key = Key::named(job.as_str());
        match self.tx.get::<Schedule>(&key)? {
            Some(schedule) => self.job_view(&key, job.clone(), &schedule).map(Some),
            None => Ok(None),
        }
    }

    fn job_view(&mut self, key: &Key, job: JobName, schedule: &Schedule) -> Result<JobView> {
        let cursor = self.good::<Cursor>(key)?;
        let stats = self.good::<Stats>(key)?;
        let stats = stats.map_or_else(Stats::default, |stats| *stats);
        let average = stats.successes_ms.checked_div(stats.successes);
        Ok(JobView {
            job,
            stored: StoredDefinition::clone(&schedule.0),
            cursor: cursor.map_or(schedule.0.since, |cursor| cursor.0),
            paused: self.stop::<Paused>(key, |paused| paused.0.clone())?,
            quarantined: self.stop::<Quarantined>(key, |held| held.0.clone())?,
            active: self.good::<Active>(key)?.map(|active| active.0.clone()),
            waiting: self.good::<Waiting>(key)?.map(|waiting| waiting.0.clone()),
            successes: Successes {
                count: stats.successes,
                average: Duration::from_millis(average.unwrap_or(0)),
            },
        })
    }

    /// A stop; one whose reason does not decode still stops.
    fn stop<R: Record>(&mut self, key: &Key, hold: fn(&R) -> Hold) -> Result<Option<Hold>> {
        match self.tx.get::<R>(key) {
            Ok(found) => Ok(found.map(|found| hold(&found))),
            Err(StoreError::Corrupt { .. }) => Ok(Some(Hold {
                by: "?".into(),
                at: Timestamp::EPOCH,
                why: self.text_of::<R>(key)?.unwrap_or_default(),
                digest: None,
            })),
            Err(error) => Err(error),
        }
    }

    /// Keeps a gap; the oldest go.
    pub(super) fn add_gap(&mut self, job: &JobName, gap: Gap) -> Result<()> {
        let scope = job.as_str();
        let name = format!("{},{},{}", gap.from.as_millis(), gap.count, gap.why);
        self.tx
            .put(Key::new(scope, gap.to.as_millis(), &name), GapRecord(gap))?;
        let old = (self.now - GAPS_KEPT).as_millis();
        let all = Range::all(scope);
        self.remove_first::<GapRecord>(&all.clone().up_to(old - 1), GAPS_DROPPED)?;
        let more = self.tx.count::<GapRecord>(&all)?.saturating_sub(GAPS_MAX);
        if more > 0 {
            let more = usize::try_from(more).map_or(GAPS_DROPPED, |more| more.min(GAPS_DROPPED));
            self.remove_first::<GapRecord>(&all, more)?;
        }
        Ok(())
    }

    pub(in crate::embedded) fn open(
        &mut self,
        term: &TermRef,
        job: &JobName,
        was: Option<&DefinitionHash>,
        stored: Arc<StoredDefinition>,
    ) -> Result<Opened> {
        if !self.leads(term)? {
            return Ok(Opened::NotLeader);
        }
        let key = Key::named(job.as_str());
        let known = self.good::<Schedule>(&key)?;
        let cursor = self.good::<Cursor>(&key)?.map(|cursor| cursor.0);
        if let (Some(known), Some(cursor)) = (&known, cursor)
            && known.0.hash == stored.hash
            && known.0.since == stored.since
        {
            return Ok(Opened::Opened { cursor });
        }
        if known.as_ref().map(|known| &known.0.hash) != was {
            return Ok(Opened::Changed);
        }
        self.note_change(job)?;
        // A cursor in the future would answer times that nobody decided.
        let from = stored.since.min(self.now);
        if let Some(cursor) = cursor
            && cursor < from
        {
            let why = self.why_unanswered(&key, known.as_deref())?;
            let gap = Gap {
                from: cursor + Duration::from_millis(1),
                to: from,
                count: known.map_or(0, |known| count_between(&known.0, cursor, from)),
                why: why.into(),
            };
            self.add_gap(job, gap)?;
        }
        let cursor = cursor.map_or(from, |cursor| cursor.max(from));
        let facts = [
            ("hash", stored.hash.to_string().into()),
            ("cursor", cursor.into()),
        ];
        self.tx.put(key.clone(), Schedule(stored))?;
        self.tx.put(key, Cursor(cursor))?;
        self.log("job.opened", Some(job), None, facts)?;
        Ok(Opened::Opened { cursor })
    }

    /// Why a job's nominal times had no answer before its definition changed.
    fn why_unanswered(&mut self, key: &Key, known: Option<&Schedule>) -> Result<&'static str> {
        Ok(if known.is_some_and(|known| !known.0.definition.enabled) {
            "disabled"
        } else if self.tx.contains::<Paused>(key)? {
            "paused"
        } else if self.tx.contains::<Quarantined>(key)? {
            "quarantined"
        } else {
            "schedule changed"
        })
    }

    pub(in crate::embedded) fn due_delayed(&mut self, limit: usize) -> Result<DueDelayed> {
        let limit = limit.clamp(1, PAGE_MAX);
        let mut found = self.tx.scan::<Due>(&Range::all(""), limit + 1)?;
        let now = self.now.as_millis();
        let due = found
            .iter()
            .take(limit)
            .take_while(|(key, _)| key.order <= now)
            .count();
        let mut answer = DueDelayed {
            now: self.now,
            entries: Vec::with_capacity(due),
            corrupt: Vec::new(),
            next: found
                .get(due)
                .map(|(key, _)| Timestamp::from_millis(key.order)),
        };
        found.truncate(due);
        for (at, _) in found {
            let key = Key::named(&at.name);
            match self.good::<Delayed>(&key)? {
                Some(entry) if *entry.task.base.run.as_str() == *at.name => {
                    // A run that waits for another time by now is not due at this one.
                    if entry.due.map(Timestamp::as_millis) == Some(at.order) {
                        answer.entries.push(delayed_entry(&entry));
                    }
                }
                _ => {
                    tracing::warn!(run = &*at.name, "a delayed run does not decode");
                    answer.corrupt.push(EntryId::from(&*at.name));
                }
            }
        }
        Ok(answer)
    }

    pub(in crate::embedded) fn explain_delayed(
        &mut self,
        term: &TermRef,
        run: &RunId,
        why: String,
        look_again_in: Duration,
    ) -> Result<()> {
        if !self.leads(term)? {
            return Ok(());
        }
        let key = Key::named(run.as_str());
        let Some(entry) = self.good::<Delayed>(&key)? else {
            return Ok(());
        };
        let mut entry = Delayed::clone(&entry);
        if let Some(due) = entry.due
            && due <= self.now
        {
            let later = self.now + delay(look_again_in);
            self.tx.remove::<Due>(&due_key(due, run))?;
            self.tx.put(due_key(later, run), Due {})?;
            entry.due = Some(later);
        }
        entry.why = why.into();
        self.tx.put(key, entry)
    }

    pub(in crate::embedded) fn set_waiting(
        &mut self,
        term: &TermRef,
        job: &JobName,
        waiting: Option<wasmcron_core::view::Waiting>,
    ) -> Result<()> {
        if !self.leads(term)? {
            return Ok(());
        }
        let key = Key::named(job.as_str());
        match waiting {
            Some(waiting) => self.tx.put(key, Waiting(waiting)),
            None => self.tx.remove::<Waiting>(&key).map(drop),
        }
    }

    pub(in crate::embedded) fn retire(
        &mut self,
        term: &TermRef,
        job: &JobName,
    ) -> Result<Operated> {
        if !self.leads(term)? {
            return Ok(Operated::Unchanged);
        }
        let key = Key::named(job.as_str());
        if !self.tx.remove::<Schedule>(&key)? {
            return Ok(Operated::UnknownJob);
        }
        self.note_change(job)?;
        self.tx.remove::<Cursor>(&key)?;
        self.tx.remove::<Waiting>(&key)?;
        self.tx.remove::<Paused>(&key)?;
        self.tx.remove::<Quarantined>(&key)?;
        self.remove_all::<GapRecord>(job.as_str())?;
        self.log("job.retired", Some(job), None, [])?;
        self.tx.wake(Wake::Jobs);
        Ok(Operated::Done)
    }
}

/// A delayed run as it is shown.
pub(super) fn delayed_entry(entry: &Delayed) -> DelayedEntry {
    DelayedEntry {
        task: entry.task.task(None),
        due: entry.due,
        why: entry.why.to_string(),
    }
}

/// Where the page after this one begins.
pub(super) fn next_page<R>(found: &[(Key, Found<R>)]) -> Option<PageCursor> {
    let last = found.last().filter(|_| found.len() == PAGE_MAX);
    last.map(|(key, _)| PageCursor::new(&*key.name))
}
