//! What an executing attempt writes.

use std::time::Duration;

use async_trait::async_trait;
use redis::Value;
use wasmcron_core::ids::{Digest, JobName, PodRef, RunId};
use wasmcron_core::run::{Outcome, Progress};

use super::RedisStore;
use super::codec::{Answer, bar_free, text_of};
use super::script::{Call, Verb, delay, px};
use crate::error::{Result, StoreError};
use crate::runs::{
    AttemptRef, Cancelled, EXTEND_MAX, Extension, Finish, Finished, LogLine, Next, Retention, Runs,
    SaveCheckpoint, Saved, StateWrite, Written,
};

/// Lines in one `append_log` call at most.
const LINES_MAX: usize = 1_000;

fn written(answer: &Answer, limit: u32) -> Result<Written> {
    match answer.word()? {
        "written" => Ok(Written::Written),
        "fenced" => Ok(Written::Fenced),
        "too-large" => Ok(Written::TooLarge(limit)),
        other => Err(answer.strange(other)),
    }
}

fn extension(answer: &Answer, at: usize) -> Result<Extension> {
    let said = answer.text(at)?;
    match said.split_once('|').unwrap_or((said, "")) {
        ("extended", _) => Ok(Extension::Extended),
        ("lost", _) => Ok(Extension::Lost),
        ("expired", _) => Ok(Extension::Expired),
        ("cancel", by) => Ok(Extension::Cancel { by: text_of(by) }),
        _ => Err(answer.strange(said)),
    }
}

fn push_state(call: &mut Call, write: &StateWrite) {
    call.push(write.key.as_str());
    call.push(write.value.is_some());
    call.push(write.value.as_deref().unwrap_or_default());
}

#[async_trait]
impl Runs for RedisStore {
    async fn extend(
        &self,
        me: &PodRef,
        attempts: &[AttemptRef],
        lock_ttl: Duration,
    ) -> Result<Vec<Extension>> {
        if attempts.len() > EXTEND_MAX {
            let (what, found) = ("attempts in one extend", attempts.len());
            return Err(StoreError::TooLarge {
                what,
                found,
                limit: EXTEND_MAX,
            });
        }
        if attempts.is_empty() {
            return Ok(Vec::new());
        }
        let keys = vec![self.keys.pod(&me.address), self.keys.running()];
        let mut call = Call::new(Verb::Extend, keys).pod(me).arg(px(lock_ttl));
        for attempt in attempts {
            call.push_key(self.keys.lock(&attempt.job));
            call.push(attempt.run.as_str());
            call.push(attempt.fence.0);
        }
        let answer = self.call(call).await?;
        (0..attempts.len())
            .map(|at| extension(&answer, at))
            .collect()
    }

    async fn save_checkpoint(&self, save: &SaveCheckpoint) -> Result<Saved> {
        let limit = usize::try_from(save.limit).unwrap_or(usize::MAX);
        if save.data.len() > limit {
            return Ok(Saved::TooLarge(save.limit));
        }
        let AttemptRef { job, run, fence } = &save.attempt;
        let keys = vec![
            self.keys.running(),
            self.keys.lock(job),
            self.keys.checkpoint(run),
            self.keys.record(run),
            self.keys.execution_log(),
        ];
        let call = Call::new(Verb::SaveCheckpoint, keys)
            .arg(job.as_str())
            .arg(run.as_str())
            .arg(fence.0)
            .arg(save.seq)
            .arg(format!("{}|{}|{}", save.schema, save.digest, save.number))
            .arg(save.data.as_slice());
        let answer = self.call(call).await?;
        match answer.word()? {
            "saved" => Ok(Saved::Saved(answer.number(1)?)),
            "fenced" => Ok(Saved::Fenced),
            other => Err(answer.strange(other)),
        }
    }

    async fn get_state(&self, job: &JobName, key: &str) -> Result<Option<Vec<u8>>> {
        let mut cmd = redis::cmd("HGET");
        cmd.arg(self.keys.state(job)).arg(format!("k:{key}"));
        Ok(match self.command("get_state", &cmd).await? {
            Value::BulkString(bytes) => Some(bytes),
            _ => None,
        })
    }

    async fn set_state(
        &self,
        attempt: &AttemptRef,
        write: &StateWrite,
        limit: u32,
    ) -> Result<Written> {
        let keys = vec![
            self.keys.running(),
            self.keys.lock(&attempt.job),
            self.keys.state(&attempt.job),
        ];
        let mut call = Call::new(Verb::SetState, keys)
            .arg(attempt.run.as_str())
            .arg(attempt.fence.0)
            .arg(limit);
        push_state(&mut call, write);
        written(&self.call(call).await?, limit)
    }

    async fn append_log(
        &self,
        attempt: &AttemptRef,
        lines: &[LogLine],
        max_lines: u32,
    ) -> Result<Written> {
        let run = &attempt.run;
        for batch in lines.chunks(LINES_MAX) {
            let keys = vec![
                self.keys.running(),
                self.keys.log(run),
                self.keys.record(run),
            ];
            let mut call = Call::new(Verb::AppendLog, keys)
                .arg(run.as_str())
                .arg(attempt.fence.0)
                .arg(max_lines.max(1));
            for line in batch {
                call.push(bar_free(line));
            }
            let answer = written(&self.call(call).await?, 0)?;
            if answer != Written::Written {
                return Ok(answer);
            }
        }
        Ok(Written::Written)
    }

    async fn report_progress(&self, attempt: &AttemptRef, progress: &Progress) -> Result<Written> {
        let call = Call::new(Verb::ReportProgress, vec![self.keys.running()])
            .arg(attempt.run.as_str())
            .arg(attempt.fence.0)
            .arg(bar_free(progress));
        written(&self.call(call).await?, 0)
    }

    async fn finish(&self, finish: &Finish) -> Result<Finished> {
        let AttemptRef { job, run, fence } = &finish.attempt;
        let mut call = Call::new(Verb::Finish, self.keys.of_run(job, run))
            .key(self.keys.state(job))
            .arg(job.as_str())
            .arg(run.as_str())
            .arg(fence.0)
            .arg(finish.digest.as_ref().map_or("", Digest::as_str))
            .arg(bar_free(&finish.outcome))
            .arg(finish.outcome.as_str());
        match &finish.next {
            Next::End { state, why } => {
                call.push("end");
                call.push(state.as_str());
                call.push(bar_free(
                    why.as_deref().unwrap_or_else(|| finish.outcome.message()),
                ));
                for _ in 10..=12 {
                    call.push("");
                }
            }
            Next::Again {
                reason,
                due_in,
                failures,
                idle_yields,
                why,
            } => {
                call.push("again");
                call.push(bar_free(reason).trim_matches('"'));
                call.push(bar_free(why));
                call.push(delay(*due_in));
                call.push(*failures);
                call.push(*idle_yields);
            }
        }
        call.push(finish.state_limit);
        call.push(px(finish.retention.age));
        call.push(finish.retention.runs.max(1));
        // Only success lets the guest's last state writes take effect.
        let succeeded = matches!(finish.outcome, Outcome::Succeeded { .. });
        let state: &[StateWrite] = if succeeded { &finish.state } else { &[] };
        call.push(state.len());
        for write in state {
            push_state(&mut call, write);
        }
        let answer = self.call(call).await?;
        match answer.word()? {
            "finished" => {
                self.discard(answer.ids_from(1));
                Ok(Finished::Finished)
            }
            "already" => Ok(Finished::AlreadyFinished),
            "fenced" => Ok(Finished::Fenced),
            "too-large" => Ok(Finished::TooLarge(finish.state_limit)),
            other => Err(answer.strange(other)),
        }
    }

    async fn cancel(&self, run: &RunId, by: &str, retention: Retention) -> Result<Cancelled> {
        let job = run.job();
        let call = Call::new(Verb::Cancel, self.keys.of_run(&job, run))
            .arg(job.as_str())
            .arg(run.as_str())
            .arg(bar_free(by))
            .arg(bar_free(&format!("cancelled by {by}")))
            .arg(px(retention.age))
            .arg(retention.runs.max(1));
        let answer = self.call(call).await?;
        match answer.word()? {
            "requested" => Ok(Cancelled::Requested),
            "ended" => Ok(Cancelled::Ended),
            "already-ended" => Ok(Cancelled::AlreadyEnded),
            "unknown" => Ok(Cancelled::Unknown),
            other => Err(answer.strange(other)),
        }
    }
}

impl RedisStore {
    /// Drops what is left of runs that their job keeps no more, behind the caller's back: what is not
    /// dropped now expires by its age.
    pub(super) fn discard(&self, runs: Vec<RunId>) {
        if runs.is_empty() {
            return;
        }
        let store = self.clone();
        tokio::spawn(async move {
            for run in runs {
                let keys = vec![
                    store.keys.record(&run),
                    store.keys.log(&run),
                    store.keys.checkpoint(&run),
                ];
                if let Err(error) = store.call(Call::new(Verb::Discard, keys)).await {
                    tracing::debug!(%run, %error, "what is left of an old run expires by its age");
                }
            }
        });
    }
}
