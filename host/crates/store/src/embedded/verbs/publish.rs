//! What goes into queues: firings as they are decided, delayed runs as they become due.

use std::collections::HashMap;
use std::time::Duration;

use wasmcron_core::ids::{JobName, PodAddress, RunId, SessionId};
use wasmcron_core::task::Task;
use wasmcron_core::time::Timestamp;
use wasmcron_core::view::Gap;

use super::{Call, Names};
use crate::embedded::engine::{Key, Tx};
use crate::embedded::records::{Cursor, Delayed, Due, Paused, Quarantined, Scheduled, TaskRow};
use crate::error::Result;
use crate::leadership::TermRef;
use crate::schedule::{Decision, EARLY_MS, PromoteAnswer, Promoted, PublishAnswer, Published};

/// What one call knows of a job.
struct JobState {
    cursor: Option<Timestamp>,
    stop: Option<Published>,
    /// An earlier decision of this call was not applied.
    held: bool,
}

impl JobState {
    /// Why a decision may not be applied. A job without a cursor has yet to be opened; a gap that
    /// begins before the cursor was decided from an old view.
    fn refusal(
        &self,
        nominal: Timestamp,
        after: Timestamp,
        from: Option<Timestamp>,
        now: Timestamp,
    ) -> Option<Published> {
        let Some(cursor) = self.cursor else {
            let cursor = Timestamp::EPOCH;
            return Some(Published::Held { cursor });
        };
        if nominal <= cursor {
            return Some(Published::Deduped { cursor });
        }
        if self.held || cursor < after || from.is_some_and(|from| from <= cursor) {
            return Some(Published::Held { cursor });
        }
        if from.is_none() && self.stop.is_some() {
            return self.stop;
        }
        let early = nominal > now + Duration::from_millis(EARLY_MS.unsigned_abs());
        early.then_some(Published::Early)
    }
}

/// The sessions of pods that may be given tasks, each read once.
type Targets = HashMap<PodAddress, Option<SessionId>>;

impl<T: Tx> Call<'_, T> {
    fn targets<'p>(&mut self, pods: impl Iterator<Item = &'p PodAddress>) -> Result<Targets> {
        let mut targets = Targets::new();
        for pod in pods {
            if !targets.contains_key(pod) {
                targets.insert(pod.clone(), self.target_session(pod)?);
            }
        }
        Ok(targets)
    }

    fn job_state(&mut self, job: &JobName) -> Result<JobState> {
        let key = Key::named(job.as_str());
        let stop = if self.tx.contains::<Paused>(&key)? {
            Some(Published::Paused)
        } else if self.tx.contains::<Quarantined>(&key)? {
            Some(Published::Quarantined)
        } else {
            None
        };
        Ok(JobState {
            cursor: self.good::<Cursor>(&key)?.map(|cursor| cursor.0),
            stop,
            held: false,
        })
    }

    pub(in crate::embedded) fn publish(
        &mut self,
        term: &TermRef,
        decisions: Vec<Decision>,
    ) -> Result<PublishAnswer> {
        if !self.leads(term)? {
            return Ok(PublishAnswer::NotLeader);
        }
        let targets = self.targets(decisions.iter().filter_map(|decision| match decision {
            Decision::Fire { to, .. } => Some(to),
            Decision::Gap { .. } => None,
        }))?;
        let mut jobs: HashMap<JobName, JobState> = HashMap::new();
        let mut answers = Vec::with_capacity(decisions.len());
        for decision in decisions {
            let (job, nominal, after, from) = match &decision {
                Decision::Fire { task, after, .. } => (&task.job, task.nominal, *after, None),
                Decision::Gap { job, gap, after } => (job, gap.to, *after, Some(gap.from)),
            };
            let job = job.clone();
            if !jobs.contains_key(&job) {
                let state = self.job_state(&job)?;
                jobs.insert(job.clone(), state);
            }
            let Some(state) = jobs.get_mut(&job) else {
                continue;
            };
            let refusal = state.refusal(nominal, after, from, self.now);
            let answer = match (refusal, decision) {
                (Some(refusal), _) => refusal,
                (None, Decision::Fire { task, to, .. }) => self.fire(task, &to, &targets)?,
                (None, Decision::Gap { job, gap, .. }) => self.bulk(&job, gap)?,
            };
            match answer {
                Published::Published | Published::Exists => state.cursor = Some(nominal),
                Published::Deduped { .. } => {}
                Published::Held { cursor } => {
                    state.cursor = Some(cursor);
                    state.held = true;
                }
                _ => state.held = true,
            }
            answers.push(answer);
        }
        Ok(PublishAnswer::Answers(answers))
    }

    fn fire(&mut self, task: Task, to: &PodAddress, targets: &Targets) -> Result<Published> {
        let Some(Some(session)) = targets.get(to) else {
            return Ok(Published::NoPod);
        };
        let names = Names::with(task.job.clone(), &task.run);
        let nominal = task.nominal;
        let known = self.was_made(&names.run_key)?;
        let waits = if known {
            self.good::<Scheduled>(&names.run_key)?
        } else {
            None
        };
        if !known || waits.is_some() {
            let task = waits.map_or_else(|| TaskRow::from(task), |waits| waits.task.clone());
            if !known {
                self.make_record(&names, &task)?;
            }
            self.deliver(&names, task, to, session)?;
        }
        self.tx.put(names.job_key, Cursor(nominal))?;
        Ok(if known {
            Published::Exists
        } else {
            Published::Published
        })
    }

    /// Puts a run into a pod's queue as a new delivery, and says so.
    fn deliver(
        &mut self,
        names: &Names,
        task: TaskRow,
        to: &PodAddress,
        session: &SessionId,
    ) -> Result<()> {
        let delivery = self.next_delivery()?;
        let entry = Scheduled {
            delivery,
            pod: to.clone(),
            session: session.clone(),
            at: self.now,
            task,
        };
        self.push(&names.run, entry)?;
        let facts = [("pod", to.into()), ("delivery", delivery.0.into())];
        self.log("run.published", Some(&names.job), Some(&names.run), facts)
    }

    /// Answers nominal times in bulk. If the first of them has a run, as after a call that a store
    /// without rollback left half done, that is its answer, and the others wait for the next look.
    fn bulk(&mut self, job: &JobName, gap: Gap) -> Result<Published> {
        let first = RunId::nominal(job, gap.from);
        if self.was_made(&Key::named(first.as_str()))? {
            let cursor = gap.from;
            self.tx.put(Key::named(job.as_str()), Cursor(cursor))?;
            return Ok(Published::Held { cursor });
        }
        let event = if gap.why == "misfire" {
            "firing.missed"
        } else {
            "firing.skipped"
        };
        self.tx.put(Key::named(job.as_str()), Cursor(gap.to))?;
        self.log_gap(event, job, &gap)?;
        self.add_gap(job, gap)?;
        Ok(Published::Published)
    }

    pub(super) fn log_gap(&mut self, event: &'static str, job: &JobName, gap: &Gap) -> Result<()> {
        let facts = [
            ("from", gap.from.into()),
            ("to", gap.to.into()),
            ("count", gap.count.into()),
            ("why", gap.why.clone().into()),
        ];
        self.log(event, Some(job), None, facts)
    }

    pub(in crate::embedded) fn promote(
        &mut self,
        term: &TermRef,
        moves: &[(RunId, PodAddress)],
    ) -> Result<PromoteAnswer> {
        if !self.leads(term)? {
            return Ok(PromoteAnswer::NotLeader);
        }
        let targets = self.targets(moves.iter().map(|(_, to)| to))?;
        let mut answers = Vec::with_capacity(moves.len());
        for (run, to) in moves {
            answers.push(self.promote_one(run, to, &targets)?);
        }
        Ok(PromoteAnswer::Answers(answers))
    }

    fn promote_one(&mut self, run: &RunId, to: &PodAddress, targets: &Targets) -> Result<Promoted> {
        let names = Names::of(run);
        let session = targets.get(to).and_then(Option::as_ref);
        let Some(entry) = self.good::<Delayed>(&names.run_key)? else {
            // A repeat whose first answer was lost finds the run where the first one put it.
            let there = self.good::<Scheduled>(&names.run_key)?;
            let repeated =
                there.is_some_and(|there| there.pod == *to && Some(&there.session) == session);
            return Ok(if repeated {
                Promoted::Promoted
            } else {
                Promoted::Changed
            });
        };
        let Some(due) = entry.due.filter(|due| *due <= self.now) else {
            return Ok(Promoted::Changed);
        };
        let Some(session) = session else {
            return Ok(Promoted::NoPod);
        };
        self.tx.remove::<Delayed>(&names.run_key)?;
        self.tx.remove::<Due>(&super::entries::due_key(due, run))?;
        self.deliver(&names, entry.task.clone(), to, session)?;
        Ok(Promoted::Promoted)
    }
}
