//! The store of a fleet.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use tokio::sync::Mutex;
use wasmcron_store::Store;
use wasmcron_store::embedded::{EmbeddedOptions, EmbeddedStore};
use wasmcron_store::redis::{RedisOptions, RedisStore};
use wasmcron_store::sqlite::{SqliteEngine, SqliteOptions};

use crate::proxy::Proxy;
use crate::redis_server::RedisServer;

/// Which store pods meet in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum StoreKind {
    /// A private Redis or Valkey that persists what it holds, with a proxy before it for each pod.
    Redis,
    /// A file that the pods of one machine share; there is nothing between them and it.
    Sqlite,
}

/// The store, past all proxies.
pub struct Backing {
    /// Straight to it.
    pub store: Arc<dyn Store>,
    place: Place,
}

enum Place {
    Redis {
        /// Locked while it is being harmed.
        server: Box<Mutex<RedisServer>>,
        port: u16,
    },
    Sqlite(PathBuf),
}

impl Backing {
    /// Starts a server, or makes a file in a folder.
    ///
    /// # Errors
    /// When it cannot be reached or opened.
    ///
    /// # Panics
    /// When there is no server's program, or it does not start.
    pub async fn start(kind: StoreKind, folder: &Path) -> Result<Backing> {
        match kind {
            StoreKind::Redis => Backing::redis().await,
            StoreKind::Sqlite => Backing::sqlite(folder.join("wasmcron.db")).await,
        }
    }

    async fn redis() -> Result<Backing> {
        // Without waiting for the disk every acknowledged write is with the kernel, which outlives
        // the server's process.
        let persist = ["--appendonly", "yes", "--appendfsync", "no"];
        let server = RedisServer::start_with(&persist).await;
        let store = RedisStore::connect(RedisOptions::new(server.url()))
            .await
            .context("the store")?;
        Ok(Backing {
            store: Arc::new(store),
            place: Place::Redis {
                port: server.port(),
                server: Box::new(Mutex::new(server)),
            },
        })
    }

    async fn sqlite(file: PathBuf) -> Result<Backing> {
        let engine = SqliteEngine::open(SqliteOptions::new(&file));
        let engine = Arc::new(engine.await.context("the store")?);
        let store = EmbeddedStore::new(engine, EmbeddedOptions::default());
        Ok(Backing {
            store: Arc::new(store),
            place: Place::Sqlite(file),
        })
    }

    /// The server; none where the store is a file.
    #[must_use]
    pub fn server(&self) -> Option<&Mutex<RedisServer>> {
        match &self.place {
            Place::Redis { server, .. } => Some(server),
            Place::Sqlite(_) => None,
        }
    }

    /// A way of its own to the store for one pod: the URL, and the proxy behind it if there is one.
    ///
    /// # Errors
    /// When the proxy cannot be started.
    pub async fn way(&self) -> Result<(String, Option<Proxy>)> {
        match &self.place {
            Place::Redis { port, .. } => {
                let proxy = Proxy::start(*port).await?;
                let url = format!("redis://127.0.0.1:{}", proxy.port());
                Ok((url, Some(proxy)))
            }
            Place::Sqlite(file) => Ok((format!("sqlite://{}", file.display()), None)),
        }
    }
}
