//! Redis as a backend of the conformance suite: a server for each case, and time that is real.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use redis::AsyncCommands as _;
use wasmcron_core::ids::RunId;
use wasmcron_store::Store;
use wasmcron_store::recovery::Register;
use wasmcron_store::redis::keys::{DEFAULT_NAMESPACE, Keys};
use wasmcron_store::redis::{RedisOptions, RedisStore};
use wasmcron_tests::conformance::{Damage, Harness, Settings};
use wasmcron_tests::redis_server::RedisServer;

/// A store somewhere; nothing is done to it but by its verbs.
pub struct At(pub RedisOptions);

#[async_trait]
impl Harness for At {
    async fn store(&self, _: Settings) -> Arc<dyn Store> {
        let store = RedisStore::connect(self.0.clone()).await;
        Arc::new(store.expect("the store"))
    }

    async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    async fn damage(&self, damage: Damage) {
        panic!("no way to do {damage:?}");
    }
}

/// A server, and how the store spells its keys there.
pub struct RedisHarness {
    pub server: Arc<RedisServer>,
    namespace: String,
    pub keys: Keys,
    /// That of the store's URL.
    scheme: &'static str,
    remembered: Mutex<HashMap<RunId, String>>,
}

impl RedisHarness {
    /// Over a server of its own.
    pub async fn start() -> RedisHarness {
        RedisHarness::sharing(Arc::new(RedisServer::start().await), DEFAULT_NAMESPACE)
    }

    /// In a namespace of its own.
    pub fn sharing(server: Arc<RedisServer>, namespace: &str) -> RedisHarness {
        let keys = Keys::new(namespace).expect("a good namespace");
        RedisHarness {
            server,
            keys,
            namespace: namespace.to_owned(),
            scheme: "redis",
            remembered: Mutex::default(),
        }
    }

    /// The same over a server that is a cluster.
    pub fn clustered(self) -> RedisHarness {
        RedisHarness {
            scheme: "redis+cluster",
            ..self
        }
    }

    pub fn options(&self) -> RedisOptions {
        let url = format!("{}://127.0.0.1:{}", self.scheme, self.server.port());
        let mut options = RedisOptions::new(url);
        options.namespace.clone_from(&self.namespace);
        // Machines that run tests are slower than those that run pods.
        options.connect_timeout = Duration::from_secs(10);
        options.response_timeout = Duration::from_secs(10);
        options
    }

    /// A connection that does what no verb does.
    pub async fn hand(&self) -> redis::aio::MultiplexedConnection {
        let client = redis::Client::open(self.server.url()).expect("a URL");
        let connection = client.get_multiplexed_async_connection().await;
        connection.expect("a connection")
    }

    fn register(&self, register: Register) -> String {
        match register {
            Register::Scheduled => self.keys.scheduled(),
            Register::Running => self.keys.running(),
            Register::Delayed => self.keys.delayed(),
        }
    }
}

#[async_trait]
impl Harness for RedisHarness {
    async fn store(&self, settings: Settings) -> Arc<dyn Store> {
        let mut options = self.options();
        options.recovery_window = settings.recovery_window;
        options.retention = settings.retention;
        Arc::new(RedisStore::connect(options).await.expect("the store"))
    }

    async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    async fn damage(&self, damage: Damage) {
        let mut hand = self.hand().await;
        let done: redis::RedisResult<()> = match damage {
            Damage::QueueLost(pod) => {
                let lists = [
                    self.keys.tasks(&pod.address),
                    self.keys.claiming(&pod.address),
                ];
                hand.del(&lists).await
            }
            Damage::QueueEntry(pod, text) => hand.rpush(self.keys.tasks(&pod.address), text).await,
            Damage::LockLost(job) => hand.del(self.keys.lock(&job)).await,
            Damage::PlaceLost(job) => hand.hdel(self.keys.active(), job.as_str()).await,
            Damage::EntryLost(register, run) => {
                hand.hdel(self.register(register), run.as_str()).await
            }
            Damage::EntryCut(register, run) => {
                let key = self.register(register);
                let text: String = hand.hget(&key, run.as_str()).await.expect("an entry");
                let cut: String = text.chars().take(text.len() * 2 / 3).collect();
                hand.hset(&key, run.as_str(), cut).await
            }
            Damage::Remember(register, run) => {
                let text: String = hand
                    .hget(self.register(register), run.as_str())
                    .await
                    .expect("an entry");
                self.remembered
                    .lock()
                    .expect("no case panics with it")
                    .insert(run, text);
                Ok(())
            }
            Damage::Restore(register, run) => {
                let text = self.remembered.lock().expect("no case panics with it")[&run].clone();
                if register == Register::Delayed {
                    // One that is parked has none.
                    let due = text.split('|').next().filter(|due| !due.is_empty());
                    if let Some(due) = due {
                        let added = hand.zadd(self.keys.due(), run.as_str(), due).await;
                        let _: () = added.expect("zadd");
                    }
                }
                hand.hset(self.register(register), run.as_str(), text).await
            }
            Damage::AllLost => redis::cmd("FLUSHALL").query_async(&mut hand).await,
        };
        done.expect("damage");
    }
}

/// Runs a test that waits.
pub fn on_runtime(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(test);
}
