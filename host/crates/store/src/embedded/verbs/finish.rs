//! How attempts end, and runs whose end somebody asks for.

use wasmcron_core::ids::RunId;
use wasmcron_core::run::{Outcome, RunState};

use super::base::delay;
use super::ending::End;
use super::{Call, Names};
use crate::control::Wake;
use crate::embedded::engine::Tx;
use crate::embedded::records::{AttemptEnd, Closer, Delayed, Running, Scheduled};
use crate::error::Result;
use crate::runs::{AttemptRef, Cancelled, Finish, Finished, Next, Retention};

impl<T: Tx> Call<'_, T> {
    pub(in crate::embedded) fn finish(&mut self, finish: Finish) -> Result<Finished> {
        let AttemptRef { job, run, fence } = finish.attempt;
        let names = Names::with(job, &run);
        let Some(running) = self.attempt(&names, fence)? else {
            let repeated = self.was_closed(&names, Closer::Finish, fence)?;
            return Ok(if repeated {
                Finished::AlreadyFinished
            } else {
                Finished::Fenced
            });
        };
        let succeeded = matches!(finish.outcome, Outcome::Succeeded { .. });
        // Only success lets the guest's last state writes take effect.
        let writes = if succeeded { finish.state } else { Vec::new() };
        let (size, too_large) = if writes.is_empty() {
            (0, false)
        } else {
            self.state_size(&names, &writes, finish.state_limit)?
        };
        if too_large {
            return Ok(Finished::TooLarge(finish.state_limit));
        }
        let message = finish.outcome.message();
        let (event, why, surplus) =
            self.follow(&names, &running, finish.next, message, finish.retention)?;
        let word = finish.outcome.as_str();
        let end = AttemptEnd {
            at: self.now,
            digest: finish.digest,
            outcome: finish.outcome,
        };
        self.close_attempt(&names, &running, Closer::Finish, end)?;
        if !writes.is_empty() {
            self.write_state(&names, writes, size)?;
        }
        if succeeded {
            self.count_success(&names, &running)?;
        }
        self.tx.remove::<Running>(&names.run_key)?;
        self.unlock(&names, fence)?;
        let facts = [
            ("pod", (&running.pod).into()),
            ("attempt", running.task.attempt.into()),
            ("fence", fence.0.into()),
            ("outcome", word.into()),
            ("why", why.into()),
        ];
        self.log(event, Some(&names.job), Some(&names.run), facts)?;
        self.discard(surplus)?;
        Ok(Finished::Finished)
    }

    /// What comes after an attempt: the event, why, and runs that the job keeps no more.
    fn follow(
        &mut self,
        names: &Names,
        running: &Running,
        next: Next,
        message: &str,
        keep: Retention,
    ) -> Result<(&'static str, String, Vec<RunId>)> {
        let end = match next {
            Next::End { state, why } => End {
                state,
                why: why.unwrap_or_else(|| message.to_owned()).into(),
                base: Some(running.task.base.clone()),
                keep,
            },
            Next::Again {
                reason,
                due_in,
                failures,
                idle_yields,
                why,
            } => match &running.cancel {
                Some(by) => End::cancelled(by, running.task.base.clone(), keep),
                None => {
                    let mut task = running.task.clone();
                    task.attempt += 1;
                    task.reason = reason;
                    task.failures = failures;
                    task.idle_yields = idle_yields;
                    let due = self.now + delay(due_in);
                    self.delay_run(names, Some(due), why.clone(), task)?;
                    let said = why.clone();
                    self.change_record(names, |row| row.why = Some(said.into()))?;
                    return Ok(("run.waiting", why, Vec::new()));
                }
            },
        };
        let why = end.why.to_string();
        Ok(("run.finished", why, self.end_run(names, end)?))
    }

    fn count_success(&mut self, names: &Names, running: &Running) -> Result<()> {
        // A whole run: what it would take to run it again from nothing.
        let began = self.began_at(&names.run_key)?;
        let took = self.now.since(began.unwrap_or(running.claimed_at));
        let took = took.as_millis();
        let nominal = running.task.base.nominal;
        self.change_stats(names, |stats| {
            stats.successes += 1;
            stats.successes_ms += u64::try_from(took).unwrap_or(0);
            stats.previous = stats.previous.max(Some(nominal));
        })
    }

    pub(in crate::embedded) fn cancel(
        &mut self,
        run: &RunId,
        by: String,
        keep: Retention,
    ) -> Result<Cancelled> {
        let names = Names::of(run);
        if let Some(running) = self.good::<Running>(&names.run_key)? {
            if running.cancel.is_none() {
                let mut running = Running::clone(&running);
                running.cancel = Some(by.clone());
                self.tx.put(names.run_key.clone(), running)?;
                let facts = [("by", by.into())];
                self.log("run.cancel-requested", Some(&names.job), Some(run), facts)?;
            }
            self.tx.wake(Wake::Cancel { run: run.clone() });
            return Ok(Cancelled::Requested);
        }
        let record = self.record(&names.run_key)?;
        let why = format!("cancelled by {by}");
        if let Some(record) = &record
            && let Some(state) = record.state
        {
            // A repeat by the same person is told what the first call was told.
            let same = state == RunState::Cancelled && record.why.as_deref() == Some(&*why);
            return Ok(if same {
                Cancelled::Ended
            } else {
                Cancelled::AlreadyEnded
            });
        }
        let scheduled = self.good::<Scheduled>(&names.run_key)?;
        let delayed = self.good::<Delayed>(&names.run_key)?;
        let base = match (&scheduled, &delayed) {
            (Some(entry), _) => Some(entry.task.base.clone()),
            (None, Some(entry)) => Some(entry.task.base.clone()),
            (None, None) => record.and_then(|record| Some(record.base.as_ref()?.0.clone())),
        };
        let Some(base) = base else {
            return Ok(Cancelled::Unknown);
        };
        self.unpark(&names, Some(base.nominal))?;
        self.end_run(&names, End::cancelled(&by, base, keep))?;
        self.tx.remove::<Scheduled>(&names.run_key)?;
        self.tx.remove::<Delayed>(&names.run_key)?;
        match (&scheduled, delayed.map(|entry| entry.due)) {
            // Nothing tells where a due time of it may stand.
            (None, None) => self.drop_due(run, None)?,
            (_, Some(Some(due))) => self.drop_due(run, Some(due))?,
            _ => false,
        };
        let facts = [("outcome", "cancelled".into()), ("why", why.into())];
        self.log("run.finished", Some(&names.job), Some(run), facts)?;
        Ok(Cancelled::Ended)
    }
}
