//! Wake-ups over publish and subscribe, on a connection of their own.

use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt as _;
use tokio::sync::mpsc;

use super::RedisStore;
use crate::control::{Control, WAKES_MAX, Wake};
use crate::error::Result;

/// Waits between attempts to subscribe.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// A silent connection is asked whether it still lives.
const PING_EVERY: Duration = Duration::from_secs(5);

/// Listens until the receiver is dropped or the connection is lost; tells which.
async fn listen_once(store: &RedisStore, wakes: &mpsc::Sender<Wake>) -> Result<()> {
    let pubsub = store.connection.subscription(&store.keys.control()).await?;
    let (mut sink, mut messages) = pubsub.split();
    if wakes.send(Wake::Subscribed).await.is_err() {
        return Ok(());
    }
    let mut pings = tokio::time::interval(PING_EVERY);
    pings.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = wakes.closed() => return Ok(()),
            message = messages.next() => {
                let Some(message) = message else { return Ok(()) };
                if let Ok(wake) = serde_json::from_slice(message.get_payload_bytes()) {
                    // A full channel means that the listener will look anyway.
                    let _ = wakes.try_send(wake);
                }
            }
            _ = pings.tick() => {
                let limit = store.connection.response_timeout;
                let answer = tokio::time::timeout(limit, sink.ping::<redis::Value>()).await;
                if !matches!(answer, Ok(Ok(_))) {
                    return Err(super::errors::timed_out("listen"));
                }
            }
        }
    }
}

#[async_trait]
impl Control for RedisStore {
    fn listen(&self) -> mpsc::Receiver<Wake> {
        let (wakes, listener) = mpsc::channel(WAKES_MAX);
        let store = self.clone();
        tokio::spawn(async move {
            let mut pause = PAUSES.0;
            while !wakes.is_closed() {
                let began = tokio::time::Instant::now();
                if let Err(error) = listen_once(&store, &wakes).await {
                    tracing::debug!(%error, "wake-ups are interrupted");
                }
                if began.elapsed() > PAUSES.1 {
                    pause = PAUSES.0;
                }
                tokio::select! {
                    () = wakes.closed() => {}
                    () = tokio::time::sleep(pause) => {}
                }
                pause = (pause * 2).min(PAUSES.1);
            }
        });
        listener
    }

    async fn wake(&self, wake: &Wake) -> Result<()> {
        let text = serde_json::to_string(wake).unwrap_or_default();
        self.command(
            "wake",
            redis::cmd("PUBLISH").arg(self.keys.control()).arg(text),
        )
        .await?;
        Ok(())
    }
}
