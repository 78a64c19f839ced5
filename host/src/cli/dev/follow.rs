//! Follows what happens in the store: which runs began, what they log, how far they are, how they end.
//!
//! The execution log only says which runs to look at; what is told comes from their records and logs, so
//! that it is the same for a pod of this process and of another.

use std::collections::{BTreeMap, VecDeque};

use wasmcron_core::ids::RunId;
use wasmcron_core::run::{Progress, RunRecord};
use wasmcron_core::time::Timestamp;
use wasmcron_store::runs::LogLine;
use wasmcron_store::{Result, Store};

use super::event::{Event, JobEntry};
use crate::cli::logs::Place;
use crate::cli::text;

/// Entries of the execution log in one request.
const PAGE: usize = 500;
/// Ended runs that are remembered: later entries of the execution log name them again.
const ENDED_MAX: usize = 1_000;

/// How far the store was followed.
pub struct Follower {
    after: Option<String>,
    since: Timestamp,
    open: BTreeMap<RunId, Watched>,
    ended: VecDeque<RunId>,
    jobs: Option<Vec<JobEntry>>,
}

/// What was told of a run.
#[derive(Default)]
struct Watched {
    place: Place,
    told: Told,
}

/// What was told of a run, but for its log.
#[derive(Default)]
struct Told {
    attempts: u32,
    /// Why it waited at the last look, and whether that was told.
    waits: Option<(String, bool)>,
    progress: Option<Progress>,
}

impl Follower {
    /// Follows from now on.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn start(store: &dyn Store) -> Result<Follower> {
        let since = store.now().await?;
        let mut after = None;
        loop {
            let page = store.execution_log(after.as_deref(), PAGE).await?;
            match page.last() {
                Some(last) => after = Some(last.id.clone()),
                None => break,
            }
        }
        Ok(Follower {
            after,
            since,
            open: BTreeMap::new(),
            ended: VecDeque::new(),
            jobs: None,
        })
    }

    /// What happened since the last look.
    ///
    /// # Errors
    /// When the store does not answer; the next look begins where this one ended.
    pub async fn look(&mut self, store: &dyn Store) -> Result<Vec<Event>> {
        loop {
            let page = store.execution_log(self.after.as_deref(), PAGE).await?;
            let Some(last) = page.last() else { break };
            self.after = Some(last.id.clone());
            for event in &page {
                if let Ok(run) = event.run.parse::<RunId>()
                    && !self.ended.contains(&run)
                {
                    self.open.entry(run).or_default();
                }
            }
        }
        let mut events = Vec::new();
        let mut over = Vec::new();
        for (run, watched) in &mut self.open {
            // The record is read before the log, so that what a run said last is not missed.
            let Some(record) = store.run(run).await? else {
                over.push(run.clone());
                continue;
            };
            let mut lines = Vec::new();
            loop {
                let more = watched.place.next(store, run).await?;
                if more.is_empty() {
                    break;
                }
                lines.extend(more);
            }
            lines.retain(|line| line.at >= self.since);
            watched.told.tell(&record, &lines, &mut events);
            if record.state.is_ended() {
                over.push(run.clone());
            }
        }
        for run in over {
            self.open.remove(&run);
            self.ended.push_back(run);
        }
        while self.ended.len() > ENDED_MAX {
            self.ended.pop_front();
        }
        Ok(events)
    }

    /// The jobs in force that a live pod serves, if they changed since the last look.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn jobs(&mut self, store: &dyn Store) -> Result<Option<Event>> {
        let served: Vec<_> = store
            .pods()
            .await?
            .into_iter()
            .filter(|pod| pod.session.is_some())
            .filter_map(|pod| pod.report)
            .collect();
        let (mut jobs, mut cursor) = (Vec::new(), None);
        loop {
            let page = store.view(cursor).await?;
            for view in page.jobs {
                // A job whose file is gone stays in the store for a day.
                if served.iter().any(|pod| pod.jobs.contains_key(&view.job)) {
                    jobs.push(JobEntry {
                        name: view.job.to_string(),
                        schedule: text::schedule(&view.stored.definition.schedule),
                    });
                }
            }
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        jobs.sort_by(|a, b| a.name.cmp(&b.name));
        jobs.dedup_by(|a, b| a.name == b.name);
        if self.jobs.as_ref() == Some(&jobs) || (self.jobs.is_none() && jobs.is_empty()) {
            return Ok(None);
        }
        self.jobs = Some(jobs.clone());
        Ok(Some(Event::Jobs { jobs }))
    }
}

impl Told {
    /// Adds what is new of a run: begins of attempts, each before its lines, then where the run is.
    fn tell(&mut self, record: &RunRecord, lines: &[LogLine], events: &mut Vec<Event>) {
        for line in lines {
            self.begun(record, line.attempt, events);
            events.push(Event::log(record, line));
        }
        self.begun(record, u32::MAX, events);
        if let Some(progress) = &record.progress
            && self.progress.as_ref() != Some(progress)
        {
            self.progress = Some(progress.clone());
            events.push(Event::progress(record, progress));
        }
        if record.state.is_ended() {
            events.push(ended(record));
            return;
        }
        let waits = record.why.as_ref().filter(|_| {
            use wasmcron_core::run::RunState::{Delayed, Parked};
            matches!(record.state, Delayed | Parked)
        });
        self.waits = waits.map(|why| {
            let before = self.waits.as_ref().filter(|(last, _)| last == why);
            // A run that has just been asked for waits for a moment; that is not worth a line.
            let tell = !record.attempts.is_empty() || before.is_some();
            let told = before.is_some_and(|(_, told)| *told);
            if tell && !told {
                events.push(Event::Waits {
                    run: record.run.to_string(),
                    state: record.state.as_str(),
                    why: why.clone(),
                });
            }
            (why.clone(), tell || told)
        });
    }

    fn begun(&mut self, record: &RunRecord, up_to: u32, events: &mut Vec<Event>) {
        for attempt in &record.attempts {
            if attempt.attempt > self.attempts && attempt.attempt <= up_to {
                self.attempts = attempt.attempt;
                events.push(Event::Started {
                    run: record.run.to_string(),
                    attempt: attempt.attempt,
                    resumed_from: attempt.resumed_from,
                });
            }
        }
    }
}

fn ended(record: &RunRecord) -> Event {
    let began = record.attempts.first().map(|first| first.claimed_at);
    let took = began
        .zip(record.ended_at)
        .map(|(began, ended)| ended.since(began));
    let said = record
        .attempts
        .last()
        .and_then(|last| last.outcome.as_ref())
        .map(|outcome| outcome.message().to_owned());
    Event::Ended {
        run: record.run.to_string(),
        state: record.state.as_str(),
        took_ms: took.map(|took| u64::try_from(took.as_millis()).unwrap_or(u64::MAX)),
        message: record.why.clone().or(said).filter(|text| !text.is_empty()),
    }
}

#[cfg(test)]
#[path = "follow_tests.rs"]
mod tests;
