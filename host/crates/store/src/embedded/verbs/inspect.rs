//! What people and tools read.

use wasmcron_core::ids::{JobName, RunId};
use wasmcron_core::run::Checkpoint;
use wasmcron_core::time::Timestamp;
use wasmcron_core::view::{DelayedEntry, Gap, Hold};

use super::base::corrupt;
use super::queue::slot_key;
use super::schedule::delayed_entry;
use super::{Call, Names};
use crate::embedded::engine::{Found, Key, Range, Tx};
use crate::embedded::records::{
    CheckpointBytes, Checkpoints, DeadLetter, Delayed, Fact, GapRecord, Line, LogEvent,
    Quarantined, RunRow, Running, Schedule, Scheduled,
};
use crate::error::{Result, StoreError};
use crate::inspect::{Cleared, Counts, ExecutionEvent, LogPage, Rewound};
use crate::schedule::PAGE_MAX;

impl<T: Tx> Call<'_, T> {
    pub(in crate::embedded) fn delayed(&mut self, run: &RunId) -> Result<Option<DelayedEntry>> {
        let entry = self.tx.get::<Delayed>(&Key::named(run.as_str()))?;
        Ok(entry.map(|entry| delayed_entry(&entry)))
    }

    pub(in crate::embedded) fn gaps(&mut self, job: &JobName, limit: usize) -> Result<Vec<Gap>> {
        let latest = Range::all(job.as_str()).backwards();
        let found = self
            .tx
            .scan::<GapRecord>(&latest, limit.clamp(1, PAGE_MAX))?;
        let one = |(key, found): (Key, Found<GapRecord>)| match found {
            Found::Good(gap) => Ok(GapRecord::clone(&gap).0),
            Found::Broken { message, .. } => Err(corrupt::<GapRecord>(&key, message)),
        };
        found.into_iter().map(one).collect()
    }

    /// Whether nothing of a run is kept any more.
    fn is_gone(&mut self, names: &Names) -> Result<bool> {
        let row = self.good::<RunRow>(&names.run_key)?;
        Ok(row.is_some_and(|row| row.expires_at.is_some_and(|at| self.is_past(at))))
    }

    pub(in crate::embedded) fn lines(
        &mut self,
        run: &RunId,
        after: Option<&str>,
        limit: usize,
    ) -> Result<LogPage> {
        let limit = limit.clamp(1, PAGE_MAX);
        let mut range = Range::all(run.as_str());
        if let Some(after) = after {
            range = range.after(position_of("log", after)?, "");
        }
        let found = if self.is_gone(&Names::of(run))? {
            Vec::new()
        } else {
            self.tx.scan::<Line>(&range, limit)?
        };
        let last = found.last().filter(|_| found.len() == limit);
        let next = last.map(|(key, _)| key.order.to_string());
        let one = |(key, found): (Key, Found<Line>)| match found {
            Found::Good(line) => Ok(Line::clone(&line).0),
            Found::Broken { message, .. } => Err(corrupt::<Line>(&key, message)),
        };
        Ok(LogPage {
            lines: found.into_iter().map(one).collect::<Result<_>>()?,
            next,
        })
    }

    pub(in crate::embedded) fn execution_log(
        &mut self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ExecutionEvent>> {
        let mut range = Range::all("");
        if let Some(after) = after {
            range = range.after(position_of("execution_log", after)?, "");
        }
        let found = self.tx.scan::<LogEvent>(&range, limit.clamp(1, PAGE_MAX))?;
        Ok(found
            .into_iter()
            .filter_map(|(key, found)| match found {
                Found::Good(event) => Some(event_of(&key, &event)),
                Found::Broken { message, .. } => {
                    tracing::warn!(?key, message, "an event does not decode");
                    None
                }
            })
            .collect())
    }

    pub(in crate::embedded) fn checkpoint(&mut self, run: &RunId) -> Result<Option<Checkpoint>> {
        let names = Names::of(run);
        if self.is_gone(&names)? {
            return Ok(None);
        }
        match self.kept(&names.run_key)? {
            Some(kept) => self.checkpoint_of(run, kept),
            None => Ok(None),
        }
    }

    pub(in crate::embedded) fn checkpoints(&mut self, run: &RunId) -> Result<Vec<Checkpoint>> {
        let names = Names::of(run);
        if self.is_gone(&names)? {
            return Ok(Vec::new());
        }
        let known = self.good::<Checkpoints>(&names.run_key)?;
        let mut kept = known.map_or_else(Vec::new, |known| known.kept.clone());
        kept.sort_by_key(|kept| std::cmp::Reverse(kept.seq));
        let mut found = Vec::with_capacity(kept.len());
        for one in kept {
            found.extend(self.checkpoint_of(run, one)?);
        }
        Ok(found)
    }

    pub(in crate::embedded) fn rewind_checkpoint(
        &mut self,
        run: &RunId,
        seq: u64,
        by: String,
    ) -> Result<Rewound> {
        let names = Names::of(run);
        if self.tx.contains::<Running>(&names.run_key)? {
            return Ok(Rewound::Running);
        }
        let known = self.good::<Checkpoints>(&names.run_key)?;
        let Some(known) = known.filter(|known| known.kept.iter().any(|kept| kept.seq == seq))
        else {
            return Ok(Rewound::None);
        };
        if self.is_gone(&names)? {
            return Ok(Rewound::None);
        }
        let mut known = Checkpoints::clone(&known);
        for later in known.kept.iter().filter(|kept| kept.seq > seq) {
            self.tx
                .remove::<CheckpointBytes>(&slot_key(run, later.seq))?;
        }
        known.kept.retain(|kept| kept.seq <= seq);
        self.tx.put(names.run_key.clone(), known)?;
        let facts = [("seq", seq.into()), ("by", by.into())];
        self.log("checkpoint.rewound", Some(&names.job), Some(run), facts)?;
        Ok(Rewound::Rewound)
    }

    pub(in crate::embedded) fn quarantined(&mut self) -> Result<Vec<(JobName, Hold)>> {
        let mut held = Vec::new();
        let mut range = Range::all("");
        loop {
            let page = self.tx.scan::<Quarantined>(&range, PAGE_MAX)?;
            for (key, found) in &page {
                let Ok(job) = key.name.parse() else { continue };
                held.push((
                    job,
                    match found {
                        Found::Good(hold) => hold.0.clone(),
                        Found::Broken { text, .. } => unreadable_hold(text),
                    },
                ));
            }
            match page.last() {
                Some((key, _)) if page.len() == PAGE_MAX => range = range.after(0, &key.name),
                _ => return Ok(held),
            }
        }
    }

    pub(in crate::embedded) fn clear_checkpoint(
        &mut self,
        run: &RunId,
        by: String,
    ) -> Result<Cleared> {
        let names = Names::of(run);
        if self.tx.contains::<Running>(&names.run_key)? {
            return Ok(Cleared::Running);
        }
        let gone = self.is_gone(&names)?;
        if !self.drop_checkpoints(run)? || gone {
            return Ok(Cleared::None);
        }
        let facts = [("by", by.into())];
        self.log("checkpoint.cleared", Some(&names.job), Some(run), facts)?;
        Ok(Cleared::Cleared)
    }

    pub(in crate::embedded) fn counts(&mut self) -> Result<Counts> {
        let all = Range::all("");
        Ok(Counts {
            jobs: self.tx.count::<Schedule>(&all)?,
            scheduled: self.tx.count::<Scheduled>(&all)?,
            running: self.tx.count::<Running>(&all)?,
            delayed: self.tx.count::<Delayed>(&all)?,
            dead_letters: self.tx.count::<DeadLetter>(&all)?,
        })
    }
}

/// A stop whose reason does not decode still stops.
fn unreadable_hold(text: &str) -> Hold {
    Hold {
        by: "?".into(),
        at: Timestamp::EPOCH,
        why: text.to_owned(),
        digest: None,
    }
}

/// A position that an earlier page gave.
fn position_of(verb: &'static str, after: &str) -> Result<i64> {
    after.parse().map_err(|_| StoreError::Refused {
        verb,
        message: format!("{after:?} is no position; accepted: what an earlier page gave"),
    })
}

fn event_of(key: &Key, event: &LogEvent) -> ExecutionEvent {
    let text = |fact: &Fact| match fact {
        Fact::Number(number) => number.to_string(),
        Fact::Text(text) => text.to_string(),
    };
    let facts = event.facts.iter();
    ExecutionEvent {
        id: key.order.to_string(),
        at: event.at,
        event: event.event.to_string(),
        job: event
            .job
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default(),
        run: event
            .run
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default(),
        fields: facts
            .map(|(name, fact)| (name.to_string(), text(fact)))
            .collect(),
    }
}
