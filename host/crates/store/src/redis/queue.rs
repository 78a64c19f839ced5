//! How a task gets from a pod's queue into execution.

use std::time::Duration;

use async_trait::async_trait;
use redis::aio::MultiplexedConnection;
use redis::{RedisResult, Value};
use wasmcron_core::ids::{Digest, Fence, PodRef, RunId};
use wasmcron_core::run::Outcome;
use wasmcron_core::time::Timestamp;

use super::RedisStore;
use super::codec::{self, bar_free, corrupt, raws, strict, taken_of};
use super::errors;
use super::script::{Call, Verb, delay, px};
use crate::error::Result;
use crate::queue::{
    Attempt, Claim, Claimed, Consumer, HandBack, Hold, Moved, Parked, Queue, Taken,
};

/// The longest list of unclaimed entries that is read.
const CLAIMING_MAX: usize = 1_000;
/// Entries taken in one go at most.
const TAKE_MAX: usize = 500;
/// How much longer than a blocking read its client waits for the answer.
const READ_MARGIN: Duration = Duration::from_secs(2);

/// Blocks on a connection of its own.
struct RedisConsumer {
    store: RedisStore,
    me: PodRef,
    tasks: String,
    claiming: String,
    connection: Option<MultiplexedConnection>,
    /// The last take brought as much as it could: more may wait, so do not begin with a blocking read.
    more: bool,
}

impl RedisConsumer {
    /// Takes without waiting.
    async fn burst(
        &self,
        connection: &mut MultiplexedConnection,
        max: usize,
    ) -> RedisResult<Vec<Vec<u8>>> {
        let call = |how: &str, script: &str| {
            let mut cmd = redis::cmd(how);
            cmd.arg(script)
                .arg(2)
                .arg(&self.tasks)
                .arg(&self.claiming)
                .arg(max);
            cmd
        };
        let (hash, text) = self.store.scripts.hash_and_text(Verb::Take);
        let answer: RedisResult<Value> = match call("EVALSHA", hash).query_async(connection).await {
            Err(error) if error.code() == Some("NOSCRIPT") => {
                call("EVAL", text).query_async(connection).await
            }
            answer => answer,
        };
        Ok(raws(answer?))
    }

    async fn entries(
        &self,
        connection: &mut MultiplexedConnection,
        wait: Duration,
        max: usize,
    ) -> RedisResult<Vec<Vec<u8>>> {
        if self.more || wait.is_zero() {
            let entries = self.burst(connection, max).await?;
            if !entries.is_empty() || wait.is_zero() {
                return Ok(entries);
            }
        }
        // A time-out of zero would block for ever.
        let seconds = format!("{:.3}", wait.as_secs_f64().max(0.001));
        let mut cmd = redis::cmd("BLMOVE");
        cmd.arg(&self.tasks)
            .arg(&self.claiming)
            .arg("LEFT")
            .arg("RIGHT")
            .arg(seconds);
        // As bytes: an entry that is no text has been moved all the same.
        let first: Option<Vec<u8>> = cmd.query_async(connection).await?;
        let Some(first) = first else {
            return Ok(Vec::new());
        };
        let mut entries = vec![first];
        if max > 1 {
            entries.extend(self.burst(connection, max - 1).await?);
        }
        Ok(entries)
    }
}

#[async_trait]
impl Consumer for RedisConsumer {
    async fn take(&mut self, wait: Duration, max: usize) -> Result<Vec<Taken>> {
        const VERB: &str = "take";
        let max = max.clamp(1, TAKE_MAX);
        let limit = wait + READ_MARGIN;
        // Out of `self` while it is in use: a take that is dropped half-way leaves no connection
        // behind on which an answer to nobody would come.
        let shared = self.store.connection.clone();
        let taking = async {
            let mut connection = match self.connection.take() {
                Some(connection) => connection,
                None => shared.dedicated().await?,
            };
            let entries = self.entries(&mut connection, wait, max).await?;
            Ok((connection, entries))
        };
        let (connection, entries) = match tokio::time::timeout(limit, taking).await {
            Ok(Ok(taken)) => taken,
            Ok(Err(error)) => {
                // The next connection goes to the primary, if that is another server by now.
                shared.relocate(&error).await;
                return Err(errors::map(VERB, &error));
            }
            Err(_) => return Err(errors::timed_out(VERB)),
        };
        self.connection = Some(connection);
        self.more = entries.len() >= max;
        self.store.readable(&self.me, entries).await
    }
}

impl RedisStore {
    /// Decodes queue entries; those that do not decode go to the dead letters, all at once, so that
    /// many of them hold nobody up.
    async fn readable(&self, me: &PodRef, entries: Vec<Vec<u8>>) -> Result<Vec<Taken>> {
        let mut taken = Vec::with_capacity(entries.len());
        let keys = vec![self.keys.claiming(&me.address), self.keys.dead_letters()];
        let mut reject = Call::new(Verb::Reject, keys).arg(me.address.as_str());
        let mut rejected = 0_usize;
        for entry in entries {
            match strict(&entry).and_then(taken_of) {
                Ok(one) => taken.push(one),
                Err(message) => {
                    let shown = String::from_utf8_lossy(&entry);
                    tracing::error!(entry = %shown, message, "a queue entry does not decode");
                    reject.push(entry.as_slice());
                    rejected += 1;
                }
            }
        }
        if rejected > 0 {
            let moved: usize = self.call(reject).await?.number(0)?;
            tracing::error!(moved, rejected, "queue entries went to the dead letters");
        }
        Ok(taken)
    }

    /// A call with the keys of a run, and those of the pod and its unclaimed entries.
    fn pod_call(&self, verb: Verb, me: &PodRef, run: &RunId) -> Call {
        let job = run.job();
        let call = Call::new(verb, self.keys.of_run(&job, run))
            .key(self.keys.pod(&me.address))
            .key(self.keys.claiming(&me.address));
        call.pod(me).arg(job.as_str()).arg(run.as_str())
    }

    async fn moved(&self, call: Call) -> Result<Moved> {
        let answer = self.call(call).await?;
        match answer.word()? {
            "moved" => {
                self.discard(answer.ids_from(1));
                Ok(Moved::Moved)
            }
            "changed" => Ok(Moved::Changed),
            "superseded" => Ok(Moved::Superseded),
            other => Err(answer.strange(other)),
        }
    }
}

#[async_trait]
impl Queue for RedisStore {
    fn consumer(&self, me: &PodRef) -> Box<dyn Consumer> {
        Box::new(RedisConsumer {
            store: self.clone(),
            me: me.clone(),
            tasks: self.keys.tasks(&me.address),
            claiming: self.keys.claiming(&me.address),
            connection: None,
            more: false,
        })
    }

    async fn claiming(&self, me: &PodRef) -> Result<Vec<Taken>> {
        let mut cmd = redis::cmd("LRANGE");
        cmd.arg(self.keys.claiming(&me.address))
            .arg(0)
            .arg(CLAIMING_MAX - 1);
        let entries = raws(self.command("claiming", &cmd).await?);
        self.readable(me, entries).await
    }

    async fn claim(&self, claim: &Claim) -> Result<Claimed> {
        let run = &claim.taken.run;
        let call = self
            .pod_call(Verb::Claim, &claim.me, run)
            .key(self.keys.fence())
            .arg(claim.taken.delivery.0)
            .arg(claim.token.as_str())
            .arg(px(claim.lock_ttl))
            .arg(px(claim.ends_in))
            .arg(claim.digest.as_ref().map_or("", Digest::as_str));
        let mut answer = self.call(call).await?;
        match answer.word()? {
            "claimed" => {}
            "overlap" => {
                return Ok(Claimed::Overlap {
                    holder: answer.id(1)?,
                });
            }
            "stale" => return Ok(Claimed::Stale),
            "superseded" => return Ok(Claimed::Superseded),
            other => return Err(answer.strange(other)),
        }
        let queue = self.keys.tasks(&claim.me.address);
        let task = codec::task_of(run.as_str(), answer.text(3)?, Some(queue))
            .map_err(corrupt(format!("{} {run}", self.keys.running()), "a task"))?;
        let previous: Option<i64> = answer.text(4)?.parse().ok();
        let began_at = answer.time(8)?;
        let (seq, what) = (answer.text(5)?.to_owned(), answer.text(6)?.to_owned());
        let checkpoint = if seq.is_empty() {
            None
        } else {
            let bad = corrupt(self.keys.checkpoint(run), "a checkpoint");
            Some(codec::checkpoint_of(&seq, &what, answer.take(7)?).map_err(bad)?)
        };
        Ok(Claimed::Claimed(Box::new(Attempt {
            task,
            fence: Fence(answer.number(1)?),
            claimed_at: answer.time(2)?,
            began_at,
            checkpoint,
            previous_success: previous.map(Timestamp::from_millis),
        })))
    }

    async fn skip(&self, me: &PodRef, taken: &Taken, why: &str) -> Result<Moved> {
        let retention = self.options.retention;
        let call = self
            .pod_call(Verb::Skip, me, &taken.run)
            .arg(taken.delivery.0)
            .arg(bar_free(why))
            .arg(px(retention.age))
            .arg(retention.runs.max(1));
        self.moved(call).await
    }

    async fn park(&self, me: &PodRef, taken: &Taken, queue_max: u32) -> Result<Parked> {
        let call = self
            .pod_call(Verb::Park, me, &taken.run)
            .arg(taken.delivery.0)
            .arg(queue_max);
        let answer = self.call(call).await?;
        match answer.word()? {
            "parked" => Ok(Parked::Parked),
            "full" => Ok(Parked::Full),
            "changed" => Ok(Parked::Changed),
            other => Err(answer.strange(other)),
        }
    }

    async fn hand_back(&self, back: &HandBack) -> Result<Moved> {
        let (delivery, fence, counted) = match back.hold {
            Hold::Delivery(delivery) => (delivery.to_string(), String::new(), false),
            Hold::Fence { fence, counted } => (String::new(), fence.to_string(), counted),
        };
        let outcome = Outcome::Lost {
            reason: back.why.clone(),
        };
        let call = self
            .pod_call(Verb::HandBack, &back.me, &back.run)
            .arg(delivery)
            .arg(fence)
            .arg(counted)
            .arg(px(self.options.recovery_window))
            .arg(bar_free(&back.why))
            .arg(back.avoid)
            .arg(delay(back.due_in))
            .arg(bar_free(&outcome))
            .arg(px(self.options.retention.age))
            .arg(self.options.retention.runs.max(1));
        self.moved(call).await
    }
}
