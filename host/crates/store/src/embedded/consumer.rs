//! Waiting: for tasks, and for wake-ups.

use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;
use tokio::time::Instant;
use wasmcron_core::ids::PodAddress;

use super::EmbeddedStore;
use super::engine::{Engine, Tx as _};
use super::verbs::Call;
use crate::control::{Control, WAKES_MAX, Wake};
use crate::error::Result;
use crate::queue::{Consumer, Taken};

/// Entries taken in one go at most.
const TAKE_MAX: usize = 500;

/// Waits for what comes into a pod's queue.
pub(super) struct EmbeddedConsumer<E> {
    pub(super) store: EmbeddedStore<E>,
    pub(super) pod: PodAddress,
}

impl<E: Engine> EmbeddedConsumer<E> {
    /// Takes without waiting. Looks first, so that who finds nothing holds no writer up.
    async fn burst(&self, max: usize) -> Result<Vec<Taken>> {
        let (options, pod) = (self.store.options, self.pod.clone());
        let read = self
            .store
            .engine
            .read("take", move |tx| Call::look(tx, options).is_queued(&pod));
        if !read.await? {
            return Ok(Vec::new());
        }
        let pod = self.pod.clone();
        let write = self
            .store
            .engine
            .write("take", move |tx| Call::begin(tx, options)?.take(&pod, max));
        write.await
    }
}

#[async_trait]
impl<E: Engine> Consumer for EmbeddedConsumer<E> {
    async fn take(&mut self, wait: Duration, max: usize) -> Result<Vec<Taken>> {
        let max = max.clamp(1, TAKE_MAX);
        let deadline = Instant::now() + wait;
        let mut changes = self.store.engine.queue_changes(&self.pod);
        loop {
            // Seen before the queue is read: what comes between the two wakes at once.
            changes.borrow_and_update();
            let taken = self.burst(max).await?;
            if !taken.is_empty() || Instant::now() >= deadline {
                return Ok(taken);
            }
            match tokio::time::timeout_at(deadline, changes.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => tokio::time::sleep_until(deadline).await,
                Err(_) => return Ok(Vec::new()),
            }
        }
    }
}

#[async_trait]
impl<E: Engine> Control for EmbeddedStore<E> {
    fn listen(&self) -> mpsc::Receiver<Wake> {
        let (wakes, listener) = mpsc::channel(WAKES_MAX);
        let mut from = self.engine.wakes();
        // The channel is new: there is room.
        let _ = wakes.try_send(Wake::Subscribed);
        tokio::spawn(async move {
            loop {
                let wake = tokio::select! {
                    () = wakes.closed() => return,
                    wake = from.recv() => match wake {
                        Ok(wake) => wake,
                        Err(RecvError::Lagged(_)) => Wake::Subscribed,
                        Err(RecvError::Closed) => return,
                    },
                };
                // A full channel means that the listener will look anyway.
                let _ = wakes.try_send(wake);
            }
        });
        listener
    }

    async fn wake(&self, wake: &Wake) -> Result<()> {
        let wake = wake.clone();
        self.engine
            .write("wake", move |tx| {
                tx.wake(wake);
                Ok(())
            })
            .await
    }
}
