//! `wasmcron:job/checkpoint`.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinHandle;

use super::lock;
use crate::attempt_host::{AttemptHost, LogLevel, WriteRefused};
use crate::bindings::wasmcron::job::checkpoint;
use crate::control::AttemptControl;
use crate::host::log::LogDesk;
use crate::limiter::Retained;
use crate::sandbox::Sandbox;
use crate::spec::SavedCheckpoint;

/// The checkpoints of one attempt: what is acknowledged, and what is offered and not saved yet.
pub(crate) struct CheckpointDesk {
    host: Arc<dyn AttemptHost>,
    control: AttemptControl,
    log: Arc<LogDesk>,
    retained: Retained,
    /// Bytes of one checkpoint.
    limit: u32,
    interval: Duration,
    /// Stamped on what this attempt saves.
    schema: u32,
    attempt: u32,
    shelf: Mutex<Shelf>,
    /// Held while the host saves, so that an older offer never lands on a newer save.
    saving: tokio::sync::Mutex<()>,
    saved: AtomicU32,
}

#[derive(Default)]
struct Shelf {
    /// What `load` answers.
    latest: Option<SavedCheckpoint>,
    /// The newest offer and its number.
    offered: Option<(u64, Bytes)>,
    /// Number of the newest offer or save.
    sequence: u64,
    flusher: Option<JoinHandle<()>>,
    warned_too_large: bool,
}

/// Fixed facts of a desk.
pub(crate) struct DeskFacts {
    pub(crate) limit: u32,
    pub(crate) interval: Duration,
    pub(crate) schema: u32,
    pub(crate) attempt: u32,
}

impl CheckpointDesk {
    pub(crate) fn new(
        host: Arc<dyn AttemptHost>,
        control: AttemptControl,
        log: Arc<LogDesk>,
        retained: Retained,
        latest: Option<SavedCheckpoint>,
        facts: DeskFacts,
    ) -> Arc<Self> {
        retained.replace(0, latest.as_ref().map_or(0, |saved| saved.data.len()));
        Arc::new(Self {
            host,
            control,
            log,
            retained,
            limit: facts.limit,
            interval: facts.interval,
            schema: facts.schema,
            attempt: facts.attempt,
            shelf: Mutex::new(Shelf {
                latest,
                ..Shelf::default()
            }),
            saving: tokio::sync::Mutex::new(()),
            saved: AtomicU32::new(0),
        })
    }

    /// Saves acknowledged so far.
    pub(crate) fn saved(&self) -> u32 {
        self.saved.load(Ordering::Relaxed)
    }

    /// The latest acknowledged checkpoint.
    fn load(&self) -> Option<SavedCheckpoint> {
        lock(&self.shelf).latest.clone()
    }

    /// Saves now. Offers made before it are superseded once it is acknowledged.
    async fn save(&self, data: Bytes) -> Result<(), WriteRefused> {
        if data.len() > self.limit as usize {
            return Err(WriteRefused::TooLarge(self.limit));
        }
        let sequence = {
            let mut shelf = lock(&self.shelf);
            shelf.sequence += 1;
            shelf.sequence
        };
        let _turn = self.saving.lock().await;
        self.write(sequence, data).await
    }

    /// Keeps the newest offer; a task of its own saves it at the interval.
    fn offer(self: &Arc<Self>, data: Bytes) {
        if data.len() > self.limit as usize {
            let first = !std::mem::replace(&mut lock(&self.shelf).warned_too_large, true);
            if first {
                self.log.host_line(
                    LogLevel::Warn,
                    &format!(
                        "an offered checkpoint of {} bytes was dropped: `limits.checkpoint` allows {}",
                        data.len(),
                        self.limit
                    ),
                );
            }
            return;
        }
        let mut shelf = lock(&self.shelf);
        shelf.sequence += 1;
        let old = shelf.offered.as_ref().map_or(0, |(_, data)| data.len());
        self.retained.replace(old, data.len());
        shelf.offered = Some((shelf.sequence, data));
        if shelf.flusher.is_none() {
            let desk = Arc::downgrade(self);
            let interval = self.interval;
            shelf.flusher = Some(tokio::spawn(async move {
                loop {
                    tokio::time::sleep(interval).await;
                    let Some(desk) = desk.upgrade() else { return };
                    if let Err(refused) = desk.flush().await {
                        desk.log.host_line(
                            LogLevel::Warn,
                            &format!("an offered checkpoint is not saved yet: {refused}"),
                        );
                    }
                }
            }));
        }
    }

    /// Saves the newest offer, if one is pending.
    async fn flush(&self) -> Result<(), WriteRefused> {
        let _turn = self.saving.lock().await;
        let Some((sequence, data)) = lock(&self.shelf).offered.clone() else {
            return Ok(());
        };
        let result = self.write(sequence, data).await;
        if matches!(
            result,
            Err(WriteRefused::Fenced | WriteRefused::TooLarge(_))
        ) {
            // Trying again cannot help.
            self.forget(sequence);
        }
        result
    }

    /// The turn must be held.
    async fn write(&self, sequence: u64, data: Bytes) -> Result<(), WriteRefused> {
        if self.control.lease_expired() {
            return Err(WriteRefused::Fenced);
        }
        self.host.save_checkpoint(data.clone()).await?;
        self.saved.fetch_add(1, Ordering::Relaxed);
        self.forget(sequence);
        let mut shelf = lock(&self.shelf);
        let old = shelf.latest.as_ref().map_or(0, |saved| saved.data.len());
        self.retained.replace(old, data.len());
        shelf.latest = Some(SavedCheckpoint {
            schema: self.schema,
            data,
            attempt: self.attempt,
        });
        Ok(())
    }

    /// Drops the pending offer unless it is newer than `sequence`.
    fn forget(&self, sequence: u64) {
        let mut shelf = lock(&self.shelf);
        if let Some((_, data)) = shelf.offered.take_if(|(offered, _)| *offered <= sequence) {
            self.retained.replace(data.len(), 0);
        }
    }

    /// Stops saving in the background at once.
    pub(crate) fn abandon(&self) {
        if let Some(flusher) = lock(&self.shelf).flusher.take() {
            flusher.abort();
        }
    }

    /// Ends the desk: the last offer is saved if `flush` says so, within `time`. Answers why a
    /// pending offer was lost.
    pub(crate) async fn finish(&self, flush: bool, time: Duration) -> Option<String> {
        let flusher = lock(&self.shelf).flusher.take();
        if let Some(flusher) = flusher {
            flusher.abort();
            // Until it is gone it may hold the turn.
            let _ = flusher.await;
        }
        if !flush {
            return None;
        }
        match tokio::time::timeout(time, self.flush()).await {
            Ok(Ok(())) => None,
            Ok(Err(refused)) => Some(refused.to_string()),
            Err(_) => Some(format!("the store did not answer within {time:?}")),
        }
    }
}

impl checkpoint::Host for Sandbox {
    fn load(&mut self) -> wasmtime::Result<Option<checkpoint::Saved>> {
        Ok(self.checkpoint.load().map(|saved| checkpoint::Saved {
            schema: saved.schema,
            data: saved.data.to_vec(),
            attempt: saved.attempt,
        }))
    }

    async fn save(&mut self, data: Vec<u8>) -> wasmtime::Result<Result<(), checkpoint::SaveError>> {
        Ok(self
            .checkpoint
            .save(data.into())
            .await
            .map_err(|refused| match refused {
                WriteRefused::Fenced => checkpoint::SaveError::Fenced,
                WriteRefused::TooLarge(limit) => checkpoint::SaveError::TooLarge(limit),
                WriteRefused::Unavailable(why) => checkpoint::SaveError::Unavailable(why),
            }))
    }

    fn offer(&mut self, data: Vec<u8>) -> wasmtime::Result<()> {
        self.checkpoint.offer(data.into());
        Ok(())
    }
}
