//! The host of a guest that is only asked something: `describe` and `migrate`.

use async_trait::async_trait;
use bytes::Bytes;

use crate::attempt_host::{AttemptHost, LogLine, Progress, WriteRefused};

/// Refuses all writes and drops what is reported.
pub(crate) struct NullHost;

fn refused() -> WriteRefused {
    WriteRefused::Unavailable("there is no run while a plugin is only asked something".to_owned())
}

#[async_trait]
impl AttemptHost for NullHost {
    async fn save_checkpoint(&self, _: Bytes) -> Result<(), WriteRefused> {
        Err(refused())
    }

    async fn state_get(&self, _: &str) -> Result<Option<Bytes>, WriteRefused> {
        Err(refused())
    }

    async fn state_set(&self, _: &str, _: Bytes) -> Result<(), WriteRefused> {
        Err(refused())
    }

    async fn state_delete(&self, _: &str) -> Result<(), WriteRefused> {
        Err(refused())
    }

    fn log(&self, _: LogLine) {}

    fn progress(&self, _: Progress) {}

    async fn secret(&self, _: &str) -> Result<String, String> {
        Err(refused().to_string())
    }
}
