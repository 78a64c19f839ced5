//! Finding what stands still, and moving it.

use async_trait::async_trait;
use wasmcron_core::ids::{JobName, PodAddress, RunId};
use wasmcron_core::run::{Outcome, RunState};
use wasmcron_core::time::Timestamp;
use wasmcron_core::view::{LockHolder, RunningEntry, ScheduledEntry};

use super::RedisStore;
use super::codec::{self, Decoded, bar_free, lock_of, strict, texts};
use super::errors::broken;
use super::script::{Call, Verb, px};
use super::views::hold_text;
use crate::error::Result;
use crate::leadership::TermRef;
use crate::page::PageCursor;
use crate::recovery::{
    BURIED, EntryId, Losing, Loss, PLATFORM, Page, Recovery, Register, Republished, Seen,
};
use crate::runs::Retention;
use crate::schedule::PAGE_MAX;

impl RedisStore {
    async fn register_page<T>(
        &self,
        verb: &'static str,
        key: String,
        cursor: Option<PageCursor>,
        decode: impl Fn(&str, &str) -> Decoded<T> + Send,
    ) -> Result<Page<T>> {
        let (found, next) = self.page_of(verb, key, cursor).await?;
        let mut page = Page {
            entries: Vec::with_capacity(found.len()),
            corrupt: Vec::new(),
            next,
        };
        for (run, entry) in found {
            let decoded = strict(&run).and_then(|run| decode(run, strict(&entry)?));
            match decoded {
                Ok(entry) => page.entries.push(entry),
                Err(message) => {
                    let run = EntryId::from(run);
                    tracing::warn!(%run, message, verb, "an entry does not decode");
                    page.corrupt.push(run);
                }
            }
        }
        Ok(page)
    }

    /// A leader's call with the keys of a run, begun with its term, the job and the run.
    fn leader_call(&self, verb: Verb, term: &TermRef, job: &JobName, run: &RunId) -> Call {
        Call::new(verb, self.keys.of_run(job, run))
            .key(self.keys.leader())
            .key(self.keys.term())
            .term(term)
            .arg(job.as_str())
            .arg(run.as_str())
    }
}

/// A seen entry as two arguments: delivery, fence.
fn seen_args(call: Call, seen: Seen) -> Call {
    match seen {
        Seen::Scheduled(delivery) => call.arg(delivery.0).arg(""),
        Seen::Running(fence) => call.arg("").arg(fence.0),
    }
}

#[async_trait]
impl Recovery for RedisStore {
    async fn scheduled(&self, cursor: Option<PageCursor>) -> Result<Page<ScheduledEntry>> {
        let decode = |run: &str, entry: &str| codec::scheduled_of(&self.keys, run, entry);
        self.register_page("scheduled", self.keys.scheduled(), cursor, decode)
            .await
    }

    async fn running(&self, cursor: Option<PageCursor>) -> Result<Page<RunningEntry>> {
        let decode = |run: &str, entry: &str| codec::running_of(&self.keys, run, entry);
        self.register_page("running", self.keys.running(), cursor, decode)
            .await
    }

    async fn locks(&self, jobs: &[JobName]) -> Result<Vec<Option<LockHolder>>> {
        let mut locks = Vec::with_capacity(jobs.len());
        for jobs in jobs.chunks(PAGE_MAX) {
            let keys = jobs.iter().map(|job| self.keys.lock(job)).collect();
            let answer = self.call(Call::new(Verb::Locks, keys)).await?;
            if answer.len() != 2 * jobs.len() {
                return Err(answer.strange("wrong number of locks"));
            }
            for at in (0..answer.len()).step_by(2) {
                // What is no lock protects nobody.
                locks.push(lock_of(answer.text(at)?, answer.number(at + 1)?).ok());
            }
        }
        Ok(locks)
    }

    async fn recoveries(&self, runs: &[RunId]) -> Result<Vec<u32>> {
        const VERB: &str = "recoveries";
        let mut pipe = redis::pipe();
        pipe.cmd("TIME");
        for run in runs {
            pipe.cmd("HMGET")
                .arg(self.keys.record(run))
                .arg(&["recoveries", "recovered_since"]);
        }
        let answers = self.pipeline(VERB, &pipe).await?;
        let Some((clock, counts)) = answers.split_first() else {
            return Err(broken(VERB, "no answers"));
        };
        let now = super::pods::clock_of(VERB, clock)?.as_millis();
        let window = wasmcron_core::time::millis(self.options.recovery_window);
        Ok(counts
            .iter()
            .map(|fields| current_recoveries(&texts(fields), now, window))
            .collect())
    }

    async fn republish(
        &self,
        term: &TermRef,
        run: &RunId,
        seen: Seen,
        to: &PodAddress,
        why: &str,
        counted: bool,
    ) -> Result<Republished> {
        let counted = counted || matches!(seen, Seen::Running(_));
        let call = self
            .leader_call(Verb::Republish, term, &run.job(), run)
            .key(self.keys.delivery())
            .key(self.keys.subscribers())
            .key(self.keys.pod(to))
            .key(self.keys.tasks(to));
        let call = seen_args(call, seen)
            .arg(to.as_str())
            .arg(bar_free(why))
            .arg(counted)
            .arg(px(self.options.recovery_window))
            .arg(bar_free(&Outcome::Lost {
                reason: why.to_owned(),
            }))
            .arg(px(self.options.retention.age))
            .arg(self.options.retention.runs.max(1));
        let answer = self.call(call).await?;
        match answer.word()? {
            "republished" => Ok(Republished::Republished),
            "cancelled" => {
                self.discard(answer.ids_from(1));
                Ok(Republished::Cancelled)
            }
            "changed" => Ok(Republished::Changed),
            "alive" => Ok(Republished::Alive),
            "no-pod" => Ok(Republished::NoPod),
            "not-leader" => Ok(Republished::NotLeader),
            other => Err(answer.strange(other)),
        }
    }

    async fn lose(&self, term: &TermRef, run: &RunId, seen: Seen, loss: &Loss) -> Result<Losing> {
        let reason = loss.reason.clone();
        let outcome = match loss.state {
            RunState::TimedOut => Outcome::TimedOut { message: reason },
            _ => Outcome::Lost { reason },
        };
        let hold = if loss.quarantine {
            hold_text(PLATFORM, &loss.reason, loss.digest.as_ref())
        } else {
            String::new()
        };
        let call = self
            .leader_call(Verb::Lose, term, &run.job(), run)
            .key(self.keys.quarantined())
            .key(self.keys.changes());
        let call = seen_args(call, seen)
            .arg(loss.state.as_str())
            .arg(bar_free(&loss.reason))
            .arg(bar_free(&outcome))
            .arg(hold)
            .arg(px(loss.retention.age))
            .arg(loss.retention.runs.max(1));
        let answer = self.call(call).await?;
        match answer.word()? {
            "lost" => Ok(Losing::Lost),
            "changed" => Ok(Losing::Changed),
            "alive" => Ok(Losing::Alive),
            "not-leader" => Ok(Losing::NotLeader),
            other => Err(answer.strange(other)),
        }
    }

    async fn began(&self, runs: &[RunId]) -> Result<Vec<Option<Timestamp>>> {
        if runs.is_empty() {
            return Ok(Vec::new());
        }
        let mut pipe = redis::pipe();
        for run in runs {
            pipe.cmd("HGET").arg(self.keys.record(run)).arg("began");
        }
        let answers = self.pipeline("began", &pipe).await?;
        let time = |value: &redis::Value| codec::text(value)?.parse().ok();
        Ok(answers
            .iter()
            .map(|value| time(value).map(Timestamp::from_millis))
            .collect())
    }

    async fn give_up(&self, term: &TermRef, run: &RunId, loss: &Loss) -> Result<Losing> {
        let event = match loss.state {
            RunState::Skipped => "firing.missed",
            _ => "run.finished",
        };
        let call = self
            .leader_call(Verb::GiveUp, term, &run.job(), run)
            .arg(loss.state.as_str())
            .arg(bar_free(&loss.reason))
            .arg(event)
            .arg(px(loss.retention.age))
            .arg(loss.retention.runs.max(1));
        let answer = self.call(call).await?;
        match answer.word()? {
            "lost" => Ok(Losing::Lost),
            "changed" => Ok(Losing::Changed),
            "not-leader" => Ok(Losing::NotLeader),
            other => Err(answer.strange(other)),
        }
    }

    async fn bury(
        &self,
        term: &TermRef,
        register: Register,
        id: &EntryId,
        retention: Retention,
    ) -> Result<bool> {
        // An id that is no run's has no keys of its own; a name that no run can have stands in.
        let run: Option<RunId> = id.as_str().and_then(|id| id.parse().ok());
        let stand_in = "0@1970-01-01T00:00:00Z"
            .parse()
            .map_err(|_| broken("bury", "no stand-in"))?;
        let job = run.as_ref().map(RunId::job);
        let run = run.unwrap_or(stand_in);
        let call = Call::new(Verb::Bury, self.keys.of_run(&run.job(), &run))
            .key(self.keys.leader())
            .key(self.keys.term())
            .key(self.keys.dead_letters())
            .term(term)
            .arg(job.as_ref().map_or("", JobName::as_str))
            .arg(id.as_bytes())
            .arg(match register {
                Register::Scheduled => "scheduled",
                Register::Running => "running",
                Register::Delayed => "delayed",
            })
            .arg(bar_free(BURIED))
            .arg(px(retention.age))
            .arg(retention.runs.max(1));
        let answer = self.call(call).await?;
        match answer.word()? {
            "buried" => Ok(true),
            "none" | "not-leader" => Ok(false),
            other => Err(answer.strange(other)),
        }
    }
}

/// Recoveries in the current window, from `recoveries` and `recovered_since`.
pub(super) fn current_recoveries(fields: &[Option<String>], now: i64, window: i64) -> u32 {
    let [Some(count), Some(since)] = fields else {
        return 0;
    };
    let since: i64 = since.parse().unwrap_or(0);
    if now.saturating_sub(since) > window {
        0
    } else {
        count.parse().unwrap_or(0)
    }
}
