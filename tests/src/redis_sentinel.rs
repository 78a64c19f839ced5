//! A Sentinel over a private primary and its replica.

#![allow(
    clippy::panic,
    clippy::expect_used,
    reason = "a test cannot go on without its servers, and its panic is what people read"
)]

use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::redis_server::{self, RedisServer};

/// The password of the primary and its replica; the Sentinel has none.
const PASSWORD: &str = "open-sesame";
/// The name under which the Sentinel knows the primary.
pub const NAME: &str = "main";

/// A primary, a replica of it, and one Sentinel that watches both and needs nobody's consent.
#[derive(Debug)]
pub struct Watched {
    /// The primary at first.
    pub primary: RedisServer,
    /// Its replica.
    pub replica: RedisServer,
    port: u16,
    process: Child,
    _folder: TempDir,
}

impl Watched {
    /// Starts all three, and waits until the replica follows and the Sentinel knows it.
    ///
    /// # Panics
    /// When the servers do not do it.
    pub async fn start() -> Watched {
        let guarded = ["--requirepass", PASSWORD, "--masterauth", PASSWORD];
        let primary = RedisServer::start_with(&guarded).await;
        let replica = RedisServer::start_with(&guarded).await;
        let (host, port) = ("127.0.0.1", primary.port().to_string());
        order(&url(&replica), &["REPLICAOF", host, &port]).await;
        until("the replica to follow", async || {
            info(&url(&replica), "replication")
                .await
                .contains("master_link_status:up")
        })
        .await;
        let folder = tempfile::tempdir().expect("a temporary folder");
        let config = folder.path().join("sentinel.conf");
        let own = redis_server::free_port();
        let text = format!(
            "port {own}\nbind 127.0.0.1\nsentinel monitor {NAME} {host} {port} 1\n\
             sentinel auth-pass {NAME} {PASSWORD}\nsentinel down-after-milliseconds {NAME} 600\nsentinel failover-timeout {NAME} 3000\n"
        );
        std::fs::write(&config, text).expect("a configuration");
        let process = Command::new(redis_server::program())
            .arg(&config)
            .arg("--sentinel")
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a Sentinel");
        let watched = Watched {
            primary,
            replica,
            port: own,
            process,
            _folder: folder,
        };
        until("the Sentinel to know the replica", async || {
            let client = redis::Client::open(format!("redis://127.0.0.1:{own}/")).expect("a URL");
            let Ok(mut hand) = client.get_multiplexed_async_connection().await else {
                return false;
            };
            let mut cmd = redis::cmd("SENTINEL");
            let said: redis::RedisResult<redis::Value> =
                cmd.arg("REPLICAS").arg(NAME).query_async(&mut hand).await;
            format!("{said:?}").contains(&watched.replica.port().to_string())
        })
        .await;
        watched
    }

    /// The store's URL: whom to ask, and for which name.
    #[must_use]
    pub fn url(&self) -> String {
        format!(
            "redis+sentinel://:{PASSWORD}@127.0.0.1:{}/{NAME}",
            self.port
        )
    }

    /// Cuts the replica off: what the primary takes from now on is lost with it.
    ///
    /// # Panics
    /// When the servers do not do it.
    pub async fn cut_off(&self) {
        // Without the password it cannot come back.
        order(&url(&self.replica), &["CONFIG", "SET", "masterauth", "x"]).await;
        order(&url(&self.primary), &["CLIENT", "KILL", "TYPE", "replica"]).await;
    }

    /// Whether the replica has all that the primary has.
    ///
    /// # Panics
    /// When the servers do not do it.
    pub async fn caught_up(&self) -> bool {
        let said = info(&url(&self.primary), "replication").await;
        let number = |text: &str| -> Option<u64> {
            let (_, rest) = said.split_once(text)?;
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            digits.parse().ok()
        };
        number("master_repl_offset:").is_some()
            && number("master_repl_offset:") == number(",offset=")
    }

    /// Waits until the replica is the primary.
    ///
    /// # Panics
    /// When the servers do not do it.
    pub async fn failed_over(&self) {
        until("the failover", async || {
            info(&url(&self.replica), "replication")
                .await
                .contains("role:master")
        })
        .await;
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // Both fail only for a process that is gone already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn url(server: &RedisServer) -> String {
    format!("redis://:{PASSWORD}@127.0.0.1:{}/", server.port())
}

async fn hand(url: &str) -> redis::aio::MultiplexedConnection {
    let client = redis::Client::open(url).expect("a URL");
    let hand = client.get_multiplexed_async_connection().await;
    hand.expect("a connection")
}

/// Gives a server a command.
///
/// # Panics
/// When the servers do not do it.
pub async fn order(url: &str, words: &[&str]) {
    let (name, arguments) = words.split_first().expect("a command");
    let mut cmd = redis::cmd(name);
    cmd.arg(arguments);
    let done: redis::RedisResult<redis::Value> = cmd.query_async(&mut hand(url).await).await;
    done.unwrap_or_else(|error| panic!("{words:?}: {error}"));
}

/// A section of what a server says of itself; empty while it cuts its connections, as in a failover.
///
/// # Panics
/// When the URL is none.
pub async fn info(url: &str, section: &str) -> String {
    let client = redis::Client::open(url).expect("a URL");
    let Ok(mut hand) = client.get_multiplexed_async_connection().await else {
        return String::new();
    };
    let mut cmd = redis::cmd("INFO");
    let said = cmd.arg(section).query_async(&mut hand).await;
    said.unwrap_or_default()
}

/// Looks until it is so.
///
/// # Panics
/// When the servers do not do it.
pub async fn until(what: &str, mut look: impl AsyncFnMut() -> bool) {
    for _ in 0..1_500 {
        if look().await {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("waited in vain for {what}");
}
