//! The one place that turns settings into a store.

use std::path::Path;
use std::sync::Arc;

use wasmcron_store::embedded::{EmbeddedOptions, EmbeddedStore};
use wasmcron_store::redis::{RedisOptions, RedisStore};
use wasmcron_store::runs::Retention;
use wasmcron_store::sqlite::{SqliteEngine, SqliteOptions};
use wasmcron_store::{Result, Store, StoreError};

use crate::config::settings::Settings;
use crate::config::store_url::StoreUrl;

/// Opens or connects to the store that the settings name. Fails within a few seconds rather than to go
/// on trying.
///
/// # Errors
/// When the store cannot be reached or opened, refuses us, or is too old. The text holds no password.
pub async fn connect(settings: &Settings) -> Result<Arc<dyn Store>> {
    Ok(match &settings.store {
        StoreUrl::Sqlite(path) => {
            let engine = SqliteEngine::open(SqliteOptions {
                response_timeout: settings.store_timeout.get(),
                ..SqliteOptions::new(path)
            });
            let options = EmbeddedOptions {
                retention: retention(settings),
                recovery_window: settings.recovery.window.get(),
                ..EmbeddedOptions::default()
            };
            Arc::new(EmbeddedStore::new(Arc::new(engine.await?), options))
        }
        StoreUrl::Redis(url) => Arc::new(
            RedisStore::connect(RedisOptions {
                namespace: settings.namespace.clone(),
                response_timeout: settings.store_timeout.get(),
                tls_ca: settings.store_ca.as_deref().map(authorities).transpose()?,
                retention: retention(settings),
                recovery_window: settings.recovery.window.get(),
                ..RedisOptions::new(url.expose())
            })
            .await?,
        ),
    })
}

/// The certificates of `store_ca`.
fn authorities(file: &Path) -> Result<Vec<u8>> {
    let refuse = |why: String| StoreError::Refused {
        verb: "connect",
        message: format!("store_ca: {} {why}", file.display()),
    };
    let pem = std::fs::read(file).map_err(|error| refuse(format!("cannot be read: {error}")))?;
    if String::from_utf8_lossy(&pem).contains("-----BEGIN CERTIFICATE-----") {
        Ok(pem)
    } else {
        Err(refuse("holds no certificate in PEM".to_owned()))
    }
}

/// What a store promises, and when another one is needed, in one line for people.
#[must_use]
pub fn promise(url: &StoreUrl) -> &'static str {
    match url {
        StoreUrl::Sqlite(_) => {
            "durable on this machine, shared by its pods; for pods on several machines move to Redis (store = \"redis://HOST:PORT\")"
        }
        StoreUrl::Redis(_) => {
            "shared by pods on any number of machines; as durable as the server is set up to be"
        }
    }
}

/// What is kept of ended runs.
#[must_use]
pub fn retention(settings: &Settings) -> Retention {
    Retention {
        age: settings.retention.age.get(),
        runs: settings.retention.runs,
    }
}
