//! What people ask for.

use std::time::Duration;

use wasmcron_core::ids::{JobName, RunKey};
use wasmcron_core::task::Reason;
use wasmcron_core::time::Timestamp;
use wasmcron_core::view::{Gap, Hold};

use super::entries::parked_name;
use super::{Call, Names};
use crate::control::Wake;
use crate::embedded::engine::{Key, Tx};
use crate::embedded::records::{
    Active, Cursor, Expiry, Idempotency, Parked, Paused, Quarantined, Schedule, TaskRow,
};
use crate::error::Result;
use crate::schedule::{
    ASKED_FOR, IDEMPOTENCY_KEPT, Operated, Submission, Submitted, count_between,
};

impl<T: Tx> Call<'_, T> {
    pub(in crate::embedded) fn submit(&mut self, submission: Submission) -> Result<Submitted> {
        let Submission { task, idempotency } = submission;
        let names = Names::with(task.job.clone(), &task.run);
        if let Some(key) = &idempotency {
            let kept = self.good::<Idempotency>(&Key::named(&key.key))?;
            if let Some(kept) = kept.filter(|kept| !self.is_past(kept.expires_at)) {
                let run = kept.run.clone();
                return Ok(if kept.body == key.body {
                    Submitted::Same { run }
                } else {
                    Submitted::Conflict { run }
                });
            }
        }
        if !self.tx.contains::<Schedule>(&names.job_key)? {
            return Ok(Submitted::UnknownJob);
        }
        let cursor = self.good::<Cursor>(&names.job_key)?;
        let cursor = cursor.map_or(Timestamp::EPOCH, |cursor| cursor.0);
        let manual = matches!(names.run.key(), RunKey::Manual(_));
        if !manual && task.nominal > cursor {
            return Ok(Submitted::NotYet { cursor });
        }
        if self.was_made(&names.run_key)? {
            // The id of a manual run is random, so the same id is the same request.
            return Ok(if manual {
                Submitted::Same { run: names.run }
            } else {
                Submitted::Exists
            });
        }
        let task = TaskRow::from(task);
        self.make_record(&names, &task)?;
        self.begin_to_wait(&names, task)?;
        if let Some(key) = idempotency {
            let expires_at = self.now + IDEMPOTENCY_KEPT;
            let kept = Idempotency {
                body: key.body,
                run: names.run.clone(),
                expires_at,
            };
            self.tx.put(Key::named(&key.key), kept)?;
            self.expire(expires_at, Expiry::Idempotency(key.key))?;
        }
        let facts = [("why", ASKED_FOR.into())];
        self.log("run.submitted", Some(&names.job), Some(&names.run), facts)?;
        Ok(Submitted::Accepted { run: names.run })
    }

    /// Makes a run due that was asked for. Backfilled ones go one by one: the first becomes the job's
    /// active run, the others wait behind it in the order of their times.
    fn begin_to_wait(&mut self, names: &Names, task: TaskRow) -> Result<()> {
        if task.reason != Reason::Backfill {
            return self.delay_run(names, Some(self.now), ASKED_FOR, task);
        }
        let Some(active) = self.active_of(&names.job_key)? else {
            self.tx
                .put(names.job_key.clone(), Active(names.run.clone()))?;
            return self.delay_run(names, Some(self.now), ASKED_FOR, task);
        };
        let parked = Parked {
            run: names.run.clone(),
            skippable: false,
        };
        let at = task.base.nominal.as_millis();
        let key = Key::new(names.job.as_str(), at, &parked_name(false, &names.run));
        self.tx.put(key, parked)?;
        self.delay_run(names, None, format!("waits for the end of {active}"), task)
    }

    pub(in crate::embedded) fn pause(
        &mut self,
        job: &JobName,
        by: String,
        why: String,
    ) -> Result<Operated> {
        let key = Key::named(job.as_str());
        if !self.tx.contains::<Schedule>(&key)? {
            return Ok(Operated::UnknownJob);
        }
        if self.tx.contains::<Paused>(&key)? {
            return Ok(Operated::Unchanged);
        }
        self.note_change(job)?;
        let at = self.now;
        let facts = [("by", by.clone().into())];
        let hold = Hold {
            by,
            at,
            why,
            digest: None,
        };
        self.tx.put(key, Paused(hold))?;
        self.log("job.paused", Some(job), None, facts)?;
        self.tx.wake(Wake::Jobs);
        Ok(Operated::Done)
    }

    pub(in crate::embedded) fn resume(&mut self, job: &JobName, by: String) -> Result<Operated> {
        let key = Key::named(job.as_str());
        if !self.tx.contains::<Schedule>(&key)? {
            return Ok(Operated::UnknownJob);
        }
        if !self.tx.contains::<Paused>(&key)? {
            return Ok(Operated::Unchanged);
        }
        self.note_change(job)?;
        let (from, to) = (self.good::<Cursor>(&key)?.map(|cursor| cursor.0), self.now);
        if let Some(from) = from.filter(|from| *from < to) {
            let schedule = self.good::<Schedule>(&key)?;
            let gap = Gap {
                from: from + Duration::from_millis(1),
                to,
                count: schedule.map_or(0, |schedule| count_between(&schedule.0, from, to)),
                why: "paused".into(),
            };
            self.log_gap("firing.skipped", job, &gap)?;
            self.add_gap(job, gap)?;
        }
        if from.is_none_or(|from| from < to) {
            self.tx.put(key.clone(), Cursor(to))?;
        }
        self.tx.remove::<Paused>(&key)?;
        self.log("job.resumed", Some(job), None, [("by", by.into())])?;
        self.tx.wake(Wake::Jobs);
        Ok(Operated::Done)
    }

    pub(in crate::embedded) fn release(&mut self, job: &JobName, by: String) -> Result<Operated> {
        let key = Key::named(job.as_str());
        if !self.tx.remove::<Quarantined>(&key)? {
            let known = self.tx.contains::<Schedule>(&key)?;
            return Ok(if known {
                Operated::Unchanged
            } else {
                Operated::UnknownJob
            });
        }
        self.note_change(job)?;
        self.log("job.released", Some(job), None, [("by", by.into())])?;
        self.tx.wake(Wake::Jobs);
        Ok(Operated::Done)
    }
}
