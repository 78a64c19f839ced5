//! The store of a fleet.

use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use tokio::sync::Mutex;
use wasmcron_store::Store;
use wasmcron_store::redis::{RedisOptions, RedisStore};

use crate::proxy::Proxy;
use crate::redis_server::RedisServer;

/// Which store pods meet in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum StoreKind {
    /// A private Redis or Valkey that persists what it holds, with a proxy before it for each pod.
    Redis,
    /// A file that the pods of one machine share.
    Sqlite,
}

/// The store, past all proxies.
pub struct Backing {
    /// The server; locked while it is being harmed.
    pub server: Mutex<RedisServer>,
    /// Straight to it.
    pub store: Arc<dyn Store>,
    port: u16,
}

impl Backing {
    /// Starts it.
    ///
    /// # Errors
    /// When this build has no such store, or it cannot be reached.
    ///
    /// # Panics
    /// When there is no server's program, or it does not start.
    pub async fn start(kind: StoreKind) -> Result<Backing> {
        if kind == StoreKind::Sqlite {
            bail!("--store sqlite: this build has no SQLite store yet; redis is accepted");
        }
        // Without waiting for the disk every acknowledged write is with the kernel, which outlives
        // the server's process.
        let persist = ["--appendonly", "yes", "--appendfsync", "no"];
        let server = RedisServer::start_with(&persist).await;
        let store = RedisStore::connect(RedisOptions::new(server.url()))
            .await
            .context("the store")?;
        Ok(Backing {
            port: server.port(),
            server: Mutex::new(server),
            store: Arc::new(store),
        })
    }

    /// A way of its own to the store for one pod: the URL, and the proxy behind it.
    ///
    /// # Errors
    /// When the proxy cannot be started.
    pub async fn way(&self) -> Result<(String, Proxy)> {
        let proxy = Proxy::start(self.port).await?;
        Ok((format!("redis://127.0.0.1:{}", proxy.port()), proxy))
    }
}
