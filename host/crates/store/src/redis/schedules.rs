//! What the leader writes: definitions, firings and gaps; and what people ask for.

use std::time::Duration;

use async_trait::async_trait;
use wasmcron_core::ids::{DefinitionHash, JobName, PodAddress, RunId, RunKey};
use wasmcron_core::job::StoredDefinition;
use wasmcron_core::time::Timestamp;
use wasmcron_core::view::{JobView, Waiting};

use super::RedisStore;
use super::codec::{bar_free, corrupt, delayed_of, strict, task_text, text};
use super::errors::broken;
use super::script::{Call, Verb, delay, px};
use super::views::{hold_text, stored_of};
use crate::error::{Result, StoreError};
use crate::leadership::TermRef;
use crate::page::PageCursor;
use crate::recovery::EntryId;
use crate::schedule::{
    ASKED_FOR, Changes, Decision, DueDelayed, IDEMPOTENCY_KEPT, Opened, Operated, PAGE_MAX,
    PromoteAnswer, PublishAnswer, Schedules, Submission, Submitted, ViewPage, ViewVersion,
    count_between,
};

/// Tries to resume a job whose cursor moves meanwhile.
const RESUME_TRIES: usize = 5;

impl RedisStore {
    async fn operate(&self, call: Call) -> Result<Operated> {
        let answer = self.call(call).await?;
        match answer.word()? {
            "done" => Ok(Operated::Done),
            "unchanged" => Ok(Operated::Unchanged),
            "unknown-job" => Ok(Operated::UnknownJob),
            other => Err(answer.strange(other)),
        }
    }

    /// One try to resume; none if the cursor moved meanwhile.
    async fn try_resume(&self, job: &JobName, by: &str) -> Result<Option<Operated>> {
        let mut pipe = redis::pipe();
        pipe.cmd("HGET")
            .arg(self.keys.schedules())
            .arg(job.as_str());
        pipe.cmd("HGET").arg(self.keys.cursor()).arg(job.as_str());
        pipe.cmd("TIME");
        let answers = self.pipeline("resume", &pipe).await?;
        let [schedule, cursor, clock] = answers.as_slice() else {
            return Err(broken("resume", "not three answers"));
        };
        let now = super::pods::clock_of("resume", clock)?;
        let cursor = text(cursor).unwrap_or_default();
        let from = cursor.parse().map(Timestamp::from_millis).ok();
        let stored = text(schedule).and_then(|text| stored_of(&text).ok());
        let count = match (&stored, from) {
            (Some(stored), Some(from)) => count_between(stored, from, now),
            _ => 0,
        };
        let keys = vec![
            self.keys.schedules(),
            self.keys.paused(),
            self.keys.cursor(),
            self.keys.gaps(job),
            self.keys.execution_log(),
            self.keys.control(),
            self.keys.changes(),
        ];
        let call = Call::new(Verb::Resume, keys)
            .arg(job.as_str())
            .arg(cursor)
            .arg(now)
            .arg(count)
            .arg(bar_free(by));
        let answer = self.call(call).await?;
        match answer.word()? {
            "done" => Ok(Some(Operated::Done)),
            "unchanged" => Ok(Some(Operated::Unchanged)),
            "unknown-job" => Ok(Some(Operated::UnknownJob)),
            "changed" => Ok(None),
            other => Err(answer.strange(other)),
        }
    }
}

impl RedisStore {
    /// Nominal times of the stored definition that a change from `since` on leaves without an answer,
    /// and why they had none before.
    async fn unanswered(
        &self,
        job: &JobName,
        was: Option<&DefinitionHash>,
        since: Timestamp,
    ) -> Result<(u64, &'static str)> {
        const CHANGED: &str = "schedule changed";
        let Some(view) = (match was {
            Some(_) => self.job(job).await?,
            None => None,
        }) else {
            return Ok((0, CHANGED));
        };
        let why = if !view.stored.definition.enabled {
            "disabled"
        } else if view.paused.is_some() {
            "paused"
        } else if view.quarantined.is_some() {
            "quarantined"
        } else {
            CHANGED
        };
        Ok((count_between(&view.stored, view.cursor, since), why))
    }
}

#[async_trait]
impl Schedules for RedisStore {
    async fn view(&self, cursor: Option<PageCursor>) -> Result<ViewPage> {
        let (entries, next) = self.page_of("view", self.keys.schedules(), cursor).await?;
        // Nothing is removed by these names: what is no text may be shown as one.
        let shown = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let entries: Vec<_> = entries
            .into_iter()
            .map(|(job, schedule)| (shown(job), shown(schedule)))
            .collect();
        let (jobs, corrupt) = self.views(&entries).await?;
        Ok(ViewPage {
            jobs,
            corrupt,
            next,
        })
    }

    async fn changes(&self, since: Option<ViewVersion>) -> Result<Changes> {
        self.changes_since(since).await
    }

    async fn jobs(&self, jobs: &[JobName]) -> Result<Vec<Option<JobView>>> {
        self.views_of(jobs).await
    }

    async fn job(&self, job: &JobName) -> Result<Option<JobView>> {
        let mut cmd = redis::cmd("HGET");
        cmd.arg(self.keys.schedules()).arg(job.as_str());
        let Some(schedule) = text(&self.command("job", &cmd).await?) else {
            return Ok(None);
        };
        let (views, _) = self.views(&[(job.to_string(), schedule)]).await?;
        match views.into_iter().next() {
            Some(view) => Ok(Some(view)),
            None => {
                let key = format!("{} {job}", self.keys.schedules());
                Err(corrupt(key, "a definition")("it does not decode".into()))
            }
        }
    }

    async fn open(
        &self,
        term: &TermRef,
        job: &JobName,
        was: Option<&DefinitionHash>,
        stored: &StoredDefinition,
    ) -> Result<Opened> {
        let keys = vec![
            self.keys.leader(),
            self.keys.term(),
            self.keys.schedules(),
            self.keys.cursor(),
            self.keys.gaps(job),
            self.keys.execution_log(),
            self.keys.changes(),
        ];
        let call = Call::new(Verb::Open, keys)
            .term(term)
            .arg(job.as_str())
            .arg(was.map_or("", DefinitionHash::as_str))
            .arg(stored.hash.as_str())
            .arg(stored.since)
            .arg(serde_json::to_string(stored).map_err(|error| broken("open", error.to_string()))?);
        let (count, why) = self.unanswered(job, was, stored.since).await?;
        let call = call.arg(count).arg(bar_free(why));
        let answer = self.call(call).await?;
        match answer.word()? {
            "opened" => Ok(Opened::Opened {
                cursor: answer.time(1)?,
            }),
            "changed" => Ok(Opened::Changed),
            "not-leader" => Ok(Opened::NotLeader),
            other => Err(answer.strange(other)),
        }
    }

    async fn publish(&self, term: &TermRef, decisions: &[Decision]) -> Result<PublishAnswer> {
        self.publish_all(term, decisions).await
    }

    async fn due_delayed(&self, limit: usize) -> Result<DueDelayed> {
        let keys = vec![self.keys.delayed(), self.keys.due()];
        let call = Call::new(Verb::DueDelayed, keys).arg(limit.clamp(1, PAGE_MAX));
        let answer = self.call(call).await?;
        let next = if answer.bytes(1)?.is_empty() {
            None
        } else {
            Some(answer.time(1)?)
        };
        let mut due = DueDelayed {
            now: answer.time(0)?,
            entries: Vec::new(),
            corrupt: Vec::new(),
            next,
        };
        for at in (2..answer.len()).step_by(2) {
            let (run, entry) = (answer.bytes(at)?, answer.bytes(at + 1)?);
            let decoded = strict(run).and_then(|run| delayed_of(run, strict(entry)?));
            match decoded {
                Ok(entry) => due.entries.push(entry),
                Err(message) => {
                    let run = EntryId::from(run.to_vec());
                    tracing::warn!(%run, message, "a delayed run does not decode");
                    due.corrupt.push(run);
                }
            }
        }
        Ok(due)
    }

    async fn promote(
        &self,
        term: &TermRef,
        moves: &[(RunId, PodAddress)],
    ) -> Result<PromoteAnswer> {
        self.promote_all(term, moves).await
    }

    async fn explain_delayed(
        &self,
        term: &TermRef,
        run: &RunId,
        why: &str,
        look_again_in: Duration,
    ) -> Result<()> {
        let keys = vec![
            self.keys.leader(),
            self.keys.term(),
            self.keys.delayed(),
            self.keys.due(),
        ];
        let call = Call::new(Verb::ExplainDelayed, keys)
            .term(term)
            .arg(run.as_str())
            .arg(bar_free(why))
            .arg(delay(look_again_in));
        self.operate(call).await.map(drop)
    }

    async fn submit(&self, submission: &Submission) -> Result<Submitted> {
        let task = &submission.task;
        let (job, run) = (&task.job, &task.run);
        let nominal = match run.key() {
            RunKey::Nominal(_) => task.nominal.as_millis().to_string(),
            RunKey::Manual(_) => String::new(),
        };
        let idempotency = submission.idempotency.as_ref();
        let mut keys = self.keys.of_run(job, run);
        keys.extend([self.keys.schedules(), self.keys.cursor()]);
        keys.push(idempotency.map_or_else(
            || self.keys.record(run),
            |key| self.keys.idempotency(&key.key),
        ));
        let call = Call::new(Verb::Submit, keys)
            .arg(job.as_str())
            .arg(run.as_str())
            .arg(task_text(task)?)
            .arg(nominal)
            .arg(idempotency.map_or(String::new(), |key| bar_free(&key.body)))
            .arg(px(IDEMPOTENCY_KEPT))
            .arg(bar_free(ASKED_FOR));
        let answer = self.call(call).await?;
        Ok(match answer.word()? {
            "accepted" => Submitted::Accepted { run: run.clone() },
            "same" => Submitted::Same { run: answer.id(1)? },
            "conflict" => Submitted::Conflict { run: answer.id(1)? },
            "not-yet" => Submitted::NotYet {
                cursor: answer.time(1)?,
            },
            "exists" => Submitted::Exists,
            "unknown-job" => Submitted::UnknownJob,
            other => return Err(answer.strange(other)),
        })
    }

    async fn pause(&self, job: &JobName, by: &str, why: &str) -> Result<Operated> {
        let keys = vec![
            self.keys.schedules(),
            self.keys.paused(),
            self.keys.execution_log(),
            self.keys.control(),
            self.keys.changes(),
        ];
        let call = Call::new(Verb::Pause, keys)
            .arg(job.as_str())
            .arg(hold_text(by, why, None))
            .arg(bar_free(by));
        self.operate(call).await
    }

    async fn resume(&self, job: &JobName, by: &str) -> Result<Operated> {
        for _ in 0..RESUME_TRIES {
            if let Some(done) = self.try_resume(job, by).await? {
                return Ok(done);
            }
        }
        Err(StoreError::Unavailable {
            verb: "resume",
            message: "the job's cursor keeps moving".into(),
        })
    }

    async fn release(&self, job: &JobName, by: &str) -> Result<Operated> {
        let keys = vec![
            self.keys.schedules(),
            self.keys.quarantined(),
            self.keys.execution_log(),
            self.keys.control(),
            self.keys.changes(),
        ];
        self.operate(
            Call::new(Verb::Release, keys)
                .arg(job.as_str())
                .arg(bar_free(by)),
        )
        .await
    }

    async fn set_waiting(
        &self,
        term: &TermRef,
        job: &JobName,
        waiting: Option<&Waiting>,
    ) -> Result<()> {
        let keys = vec![self.keys.leader(), self.keys.term(), self.keys.waiting()];
        let call = Call::new(Verb::SetWaiting, keys)
            .term(term)
            .arg(job.as_str())
            .arg(waiting.map_or(String::new(), bar_free));
        self.operate(call).await.map(drop)
    }

    async fn retire(&self, term: &TermRef, job: &JobName) -> Result<Operated> {
        let keys = vec![
            self.keys.leader(),
            self.keys.term(),
            self.keys.schedules(),
            self.keys.cursor(),
            self.keys.waiting(),
            self.keys.paused(),
            self.keys.quarantined(),
            self.keys.gaps(job),
            self.keys.execution_log(),
            self.keys.control(),
            self.keys.changes(),
        ];
        self.operate(Call::new(Verb::Retire, keys).term(term).arg(job.as_str()))
            .await
    }
}
