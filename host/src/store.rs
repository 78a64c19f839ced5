//! The one place that turns settings into a store.

use std::sync::Arc;

use wasmcron_store::redis::{RedisOptions, RedisStore};
use wasmcron_store::runs::Retention;
use wasmcron_store::{Result, Store};

use crate::config::settings::Settings;

/// Connects to the store that the settings name. Fails within a few seconds rather than to go on trying.
///
/// # Errors
/// When the store cannot be reached, refuses us, or is too old. The text holds no password.
pub async fn connect(settings: &Settings) -> Result<Arc<dyn Store>> {
    let store = RedisStore::connect(RedisOptions {
        namespace: settings.namespace.clone(),
        response_timeout: settings.store_timeout.get(),
        retention: retention(settings),
        recovery_window: settings.recovery.window.get(),
        ..RedisOptions::new(settings.store.expose())
    })
    .await?;
    Ok(Arc::new(store))
}

/// What is kept of ended runs.
#[must_use]
pub fn retention(settings: &Settings) -> Retention {
    Retention {
        age: settings.retention.age.get(),
        runs: settings.retention.runs,
    }
}
