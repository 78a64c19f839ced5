//! The roles of who executes.

use std::time::Duration;

use async_trait::async_trait;
use wasmcron_core::ids::{JobName, PodRef, RunId};
use wasmcron_core::run::Progress;

use super::EmbeddedStore;
use super::consumer::EmbeddedConsumer;
use super::engine::Engine;
use super::limits::within;
use super::verbs::Call;
use crate::error::Result;
use crate::queue::{Claim, Claimed, Consumer, HandBack, Moved, Parked, Queue, Taken};
use crate::runs::{
    AttemptRef, Cancelled, EXTEND_MAX, Extension, Finish, Finished, LogLine, Retention, Runs,
    SaveCheckpoint, Saved, StateWrite, Written,
};

/// Log lines in one transaction at most.
const LINES_MAX: usize = 1_000;

#[async_trait]
impl<E: Engine> Queue for EmbeddedStore<E> {
    fn consumer(&self, me: &PodRef) -> Box<dyn Consumer> {
        Box::new(EmbeddedConsumer {
            store: self.clone(),
            pod: me.address.clone(),
        })
    }

    async fn claiming(&self, me: &PodRef) -> Result<Vec<Taken>> {
        let (options, pod) = (self.options, me.address.clone());
        let (taken, broken) = self
            .engine
            .read("claiming", move |tx| Call::look(tx, options).claiming(&pod))
            .await?;
        if broken {
            let pod = me.address.clone();
            self.engine
                .write("reject", move |tx| Call::begin(tx, options)?.reject(&pod))
                .await?;
        }
        Ok(taken)
    }

    async fn claim(&self, claim: &Claim) -> Result<Claimed> {
        let (options, claim) = (self.options, claim.clone());
        self.engine
            .write("claim", move |tx| Call::begin(tx, options)?.claim(&claim))
            .await
    }

    async fn skip(&self, me: &PodRef, taken: &Taken, why: &str) -> Result<Moved> {
        let (options, me, taken) = (self.options, me.clone(), taken.clone());
        let why = why.to_owned();
        self.engine
            .write("skip", move |tx| {
                Call::begin(tx, options)?.skip(&me, &taken, why)
            })
            .await
    }

    async fn park(&self, me: &PodRef, taken: &Taken, queue_max: u32) -> Result<Parked> {
        let (options, me, taken) = (self.options, me.clone(), taken.clone());
        self.engine
            .write("park", move |tx| {
                Call::begin(tx, options)?.park(&me, &taken, queue_max)
            })
            .await
    }

    async fn hand_back(&self, back: &HandBack) -> Result<Moved> {
        let (options, back) = (self.options, back.clone());
        self.engine
            .write("hand_back", move |tx| {
                Call::begin(tx, options)?.hand_back(&back)
            })
            .await
    }
}

#[async_trait]
impl<E: Engine> Runs for EmbeddedStore<E> {
    async fn extend(
        &self,
        me: &PodRef,
        attempts: &[AttemptRef],
        lock_ttl: Duration,
    ) -> Result<Vec<Extension>> {
        within("attempts in one extend", attempts.len(), EXTEND_MAX)?;
        if attempts.is_empty() {
            return Ok(Vec::new());
        }
        let (options, me, attempts) = (self.options, me.clone(), attempts.to_vec());
        self.engine
            .write("extend", move |tx| {
                Call::begin(tx, options)?.extend(&me, &attempts, lock_ttl)
            })
            .await
    }

    async fn save_checkpoint(&self, save: &SaveCheckpoint) -> Result<Saved> {
        let limit = usize::try_from(save.limit).unwrap_or(usize::MAX);
        if save.data.len() > limit {
            return Ok(Saved::TooLarge(save.limit));
        }
        let (options, save) = (self.options, save.clone());
        self.engine
            .write("save_checkpoint", move |tx| {
                Call::begin(tx, options)?.save_checkpoint(save)
            })
            .await
    }

    async fn get_state(&self, job: &JobName, key: &str) -> Result<Option<Vec<u8>>> {
        let (options, job, key) = (self.options, job.clone(), key.to_owned());
        self.engine
            .read("get_state", move |tx| {
                Call::look(tx, options).get_state(&job, &key)
            })
            .await
    }

    async fn set_state(
        &self,
        attempt: &AttemptRef,
        write: &StateWrite,
        limit: u32,
    ) -> Result<Written> {
        let (options, attempt, write) = (self.options, attempt.clone(), write.clone());
        self.engine
            .write("set_state", move |tx| {
                Call::begin(tx, options)?.set_state(&attempt, write, limit)
            })
            .await
    }

    async fn append_log(
        &self,
        attempt: &AttemptRef,
        lines: &[LogLine],
        max_lines: u32,
    ) -> Result<Written> {
        let options = self.options;
        for batch in lines.chunks(LINES_MAX) {
            let (attempt, batch) = (attempt.clone(), batch.to_vec());
            let write = self.engine.write("append_log", move |tx| {
                Call::begin(tx, options)?.append_log(&attempt, batch, max_lines)
            });
            let answer = write.await?;
            if answer != Written::Written {
                return Ok(answer);
            }
        }
        Ok(Written::Written)
    }

    async fn report_progress(&self, attempt: &AttemptRef, progress: &Progress) -> Result<Written> {
        let (options, attempt, progress) = (self.options, attempt.clone(), progress.clone());
        self.engine
            .write("report_progress", move |tx| {
                Call::begin(tx, options)?.report_progress(&attempt, progress)
            })
            .await
    }

    async fn finish(&self, finish: &Finish) -> Result<Finished> {
        let (options, finish) = (self.options, finish.clone());
        self.engine
            .write("finish", move |tx| Call::begin(tx, options)?.finish(finish))
            .await
    }

    async fn cancel(&self, run: &RunId, by: &str, retention: Retention) -> Result<Cancelled> {
        let (options, run, by) = (self.options, run.clone(), by.to_owned());
        self.engine
            .write("cancel", move |tx| {
                Call::begin(tx, options)?.cancel(&run, by, retention)
            })
            .await
    }
}
