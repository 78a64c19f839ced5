//! What a guest's calls become in the store.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::Notify;
use wasmcron_core::ids::Digest;
use wasmcron_core::job::Job;
use wasmcron_runtime::{AttemptHost, LogLine, LogSource, Progress, WriteRefused};
use wasmcron_store::StoreError;
use wasmcron_store::queue::Attempt;
use wasmcron_store::runs::{
    AttemptRef, LogLine as StoredLine, SaveCheckpoint, Saved, StateWrite, Written,
};

use super::outage::Outage;
use super::plugins::Program;
use super::pod::Pod;
use crate::config::settings::SecretSource;

/// How often collected log lines are written.
const FLUSH_EVERY: Duration = Duration::from_millis(200);
/// Lines of one write at most.
const FLUSH_LINES: usize = 200;
/// Lines kept while the store does not take them; the oldest go first.
const PENDING_LINES_MAX: usize = 10_000;
/// Lines a run's log keeps.
const RUN_LINES_MAX: u32 = 50_000;
/// How often a checkpoint or state write is sent before the guest is told that the store is away.
const WRITE_TRIES: u32 = 5;
/// How long the last lines of an attempt may take.
const CLOSE_WAIT: Duration = Duration::from_secs(2);
/// Most time between two progress reports in the store.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// One attempt's way to the store.
pub struct Bridge {
    pod: Arc<Pod>,
    attempt: AttemptRef,
    number: u32,
    digest: Digest,
    schema: u32,
    checkpoint_limit: u32,
    state_limit: u32,
    seq: AtomicU64,
    saves: AtomicU32,
    fenced: AtomicBool,
    outbox: Arc<Outbox>,
    writer: Mutex<Option<tokio::task::JoinHandle<()>>>,
}

/// What waits to be written.
#[derive(Default)]
struct Outbox {
    lines: Mutex<VecDeque<StoredLine>>,
    progress: Mutex<Option<wasmcron_core::run::Progress>>,
    wake: Notify,
    closing: tokio_util::sync::CancellationToken,
}

impl Bridge {
    /// For one claimed attempt. Nothing is started until the guest has something to write.
    #[must_use]
    pub fn new(
        pod: &Arc<Pod>,
        job: &Job,
        plugin: &dyn Program,
        attempt: &Attempt,
        names: AttemptRef,
    ) -> Self {
        Bridge {
            pod: pod.clone(),
            attempt: names,
            number: attempt.task.attempt,
            digest: plugin.digest().clone(),
            schema: plugin.checkpoint_schema(),
            checkpoint_limit: job.limits.checkpoint,
            state_limit: job.limits.state,
            seq: AtomicU64::new(
                attempt
                    .checkpoint
                    .as_ref()
                    .map_or(0, |checkpoint| checkpoint.seq),
            ),
            saves: AtomicU32::new(0),
            fenced: AtomicBool::new(false),
            outbox: Arc::default(),
            writer: Mutex::new(None),
        }
    }

    /// Whether a checkpoint of this attempt was acknowledged.
    #[must_use]
    pub fn progressed(&self) -> bool {
        self.saves.load(Ordering::Acquire) > 0
    }

    /// Whether a write of this attempt was refused because another may own the run.
    #[must_use]
    pub fn was_fenced(&self) -> bool {
        self.fenced.load(Ordering::Acquire)
    }

    /// Writes a line of the platform's own into the run's log.
    pub fn note(&self, message: &str) {
        tracing::warn!(run = %self.attempt.run, note = message, "run.note");
        self.push(StoredLine {
            at: self.pod.clock.now(),
            attempt: self.number,
            level: "warn".into(),
            message: message.to_owned(),
            fields: vec![("source".into(), "host".into())],
        });
    }

    /// Writes what is left, for a bounded time.
    pub async fn close(&self) {
        let writer = self
            .writer
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let Some(writer) = writer else { return };
        self.outbox.closing.cancel();
        if tokio::time::timeout(CLOSE_WAIT, writer).await.is_err() {
            tracing::warn!(run = %self.attempt.run, "the last log lines of an attempt could not be written");
        }
    }

    fn push(&self, line: StoredLine) {
        let mut lines = self
            .outbox
            .lines
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if lines.len() == PENDING_LINES_MAX {
            lines.pop_front();
            self.pod.metrics.log_dropped.inc();
        }
        lines.push_back(line);
        let full = lines.len() >= FLUSH_LINES;
        drop(lines);
        self.ensure_writer();
        if full {
            self.outbox.wake.notify_one();
        }
    }

    fn ensure_writer(&self) {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if writer.is_none() {
            let (pod, attempt, outbox) =
                (self.pod.clone(), self.attempt.clone(), self.outbox.clone());
            let writing = Box::pin(write_out(pod, attempt, outbox));
            *writer = Some(self.pod.machine.spawn(writing));
        }
    }

    /// Repeats a write while the store is away, for a bounded number of times.
    async fn persist<T, F>(&self, mut write: impl FnMut() -> F) -> Result<T, WriteRefused>
    where
        F: Future<Output = wasmcron_store::Result<T>>,
    {
        let mut tries = 0;
        loop {
            match write().await {
                Ok(answer) => return Ok(answer),
                Err(error) if error.is_transient() && tries < WRITE_TRIES => {
                    tries += 1;
                    tokio::time::sleep(Duration::from_millis(100) * tries).await;
                }
                Err(error) => return Err(WriteRefused::Unavailable(error.to_string())),
            }
        }
    }

    async fn write_state(&self, key: &str, value: Option<Bytes>) -> Result<(), WriteRefused> {
        let write = StateWrite {
            key: key.to_owned(),
            value: value.map(|value| value.to_vec()),
        };
        let written = self
            .persist(|| {
                self.pod
                    .store
                    .set_state(&self.attempt, &write, self.state_limit)
            })
            .await?;
        match written {
            Written::Written => Ok(()),
            Written::Fenced => Err(self.fenced()),
            Written::TooLarge(limit) => Err(WriteRefused::TooLarge(limit)),
        }
    }

    fn fenced(&self) -> WriteRefused {
        self.fenced.store(true, Ordering::Release);
        self.pod.metrics.fenced.inc();
        tracing::warn!(run = %self.attempt.run, fence = %self.attempt.fence, "run.fenced");
        WriteRefused::Fenced
    }
}

#[async_trait]
impl AttemptHost for Bridge {
    async fn save_checkpoint(&self, data: Bytes) -> Result<(), WriteRefused> {
        let seq = self.seq.load(Ordering::Acquire) + 1;
        let save = SaveCheckpoint {
            attempt: self.attempt.clone(),
            number: self.number,
            seq,
            schema: self.schema,
            digest: self.digest.clone(),
            data: data.to_vec(),
            limit: self.checkpoint_limit,
        };
        match self
            .persist(|| self.pod.store.save_checkpoint(&save))
            .await?
        {
            Saved::Saved(seq) => {
                self.seq.store(seq, Ordering::Release);
                self.saves.fetch_add(1, Ordering::AcqRel);
                self.pod.metrics.event("checkpoint.saved");
                tracing::debug!(run = %self.attempt.run, fence = %self.attempt.fence, seq, bytes = data.len(), "checkpoint.saved");
                Ok(())
            }
            Saved::Fenced => Err(self.fenced()),
            Saved::TooLarge(limit) => Err(WriteRefused::TooLarge(limit)),
        }
    }

    async fn state_get(&self, key: &str) -> Result<Option<Bytes>, WriteRefused> {
        let value = self
            .persist(|| self.pod.store.get_state(&self.attempt.job, key))
            .await?;
        Ok(value.map(Bytes::from))
    }

    async fn state_set(&self, key: &str, value: Bytes) -> Result<(), WriteRefused> {
        self.write_state(key, Some(value)).await
    }

    async fn state_delete(&self, key: &str) -> Result<(), WriteRefused> {
        self.write_state(key, None).await
    }

    fn log(&self, line: LogLine) {
        let level = match line.source {
            LogSource::Guest | LogSource::Host => line.level.as_str(),
            LogSource::Stdout | LogSource::Stderr => line.source.as_str(),
        };
        self.push(StoredLine {
            at: self.pod.clock.now(),
            attempt: self.number,
            level: level.to_owned(),
            message: line.message,
            fields: line.fields,
        });
    }

    fn progress(&self, progress: Progress) {
        let newest = wasmcron_core::run::Progress {
            done: progress.done,
            total: progress.total,
            message: progress.message,
        };
        *self
            .outbox
            .progress
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(newest);
        self.ensure_writer();
    }

    async fn secret(&self, name: &str) -> Result<String, String> {
        let Some(source) = self.pod.settings.secrets.get(name) else {
            return Err(format!(
                "this pod's settings have no [secrets] entry for {name}"
            ));
        };
        match source {
            SecretSource::Env(variable) => std::env::var(variable)
                .map_err(|_| format!("the environment variable {variable} is not set")),
            SecretSource::File(path) => {
                let text = tokio::fs::read_to_string(path).await;
                let text = text.map_err(|error| {
                    format!("the secret's file cannot be read: {}", error.kind())
                })?;
                Ok(text.strip_suffix('\n').map(str::to_owned).unwrap_or(text))
            }
        }
    }
}

/// Writes lines and progress in batches until the attempt closes and nothing is left.
async fn write_out(pod: Arc<Pod>, attempt: AttemptRef, outbox: Arc<Outbox>) {
    let outage = Outage::new("log", &pod.health);
    let mut progress_at = tokio::time::Instant::now();
    loop {
        let closing = outbox.closing.is_cancelled();
        let batch: Vec<StoredLine> = {
            let mut lines = outbox.lines.lock().unwrap_or_else(PoisonError::into_inner);
            let count = lines.len().min(FLUSH_LINES);
            lines.drain(..count).collect()
        };
        let progress = if closing || progress_at <= tokio::time::Instant::now() {
            outbox
                .progress
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take()
        } else {
            None
        };
        if let Some(progress) = &progress {
            progress_at = tokio::time::Instant::now() + PROGRESS_EVERY;
            // Only the newest report counts, so a lost one is not repeated.
            let _ = pod.store.report_progress(&attempt, progress).await;
        }
        let more = batch.len() == FLUSH_LINES;
        if !batch.is_empty() && append(&pod, &attempt, &batch, &outage).await.is_err() {
            return;
        }
        if more {
            continue;
        }
        if closing && batch.is_empty() && progress.is_none() {
            return;
        }
        tokio::select! {
            biased;
            () = outbox.closing.cancelled() => {}
            () = outbox.wake.notified(), if !closing => {}
            () = tokio::time::sleep(FLUSH_EVERY), if !closing => {}
        }
    }
}

/// Appends lines; an error means that nobody wants them any more. What keeps the store from taking them
/// is told once and not with each batch, of which a pod has many a second.
async fn append(
    pod: &Pod,
    attempt: &AttemptRef,
    batch: &[StoredLine],
    outage: &Outage,
) -> Result<(), ()> {
    for tries in 1..=WRITE_TRIES {
        let error = match pod.store.append_log(attempt, batch, RUN_LINES_MAX).await {
            Ok(written) => {
                outage.answered();
                return match written {
                    Written::Fenced => Err(()),
                    _ => Ok(()),
                };
            }
            Err(error) => error,
        };
        outage.failed(&error, &pod.metrics);
        if !matches!(
            error,
            StoreError::Unavailable { .. } | StoreError::Full { .. }
        ) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(200) * tries).await;
        if tries == WRITE_TRIES {
            // There may be no further line for long: other loops find out when the store is back.
            outage.idle();
        }
    }
    pod.metrics.log_dropped.inc_by(batch.len() as u64);
    Ok(())
}
