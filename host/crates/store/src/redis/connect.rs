//! Connections: one shared and multiplexed for calls, one for each blocking consumer, one for wake-ups.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::{ConnectionManager, ConnectionManagerConfig, MultiplexedConnection, PubSub};
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionInfo, IntoConnectionInfo, Pipeline,
    ProtocolVersion, RedisError, RedisResult, TlsCertificates, Value,
};

use super::RedisStore;
use super::errors;
use super::keys::{DEFAULT_NAMESPACE, Keys};
use super::script::Scripts;
use crate::error::{Result, StoreError};
use crate::runs::Retention;

/// How to reach the server, and what the store keeps there.
#[derive(Clone)]
pub struct RedisOptions {
    /// `redis://` or, with TLS, `rediss://`, with user, password and database number as needed.
    pub url: String,
    /// What all keys begin with, in braces.
    pub namespace: String,
    /// A certificate authority in PEM to trust instead of the system's.
    pub tls_ca: Option<Vec<u8>>,
    /// The longest wait for a connection.
    pub connect_timeout: Duration,
    /// The longest wait for an answer. Blocking reads add it to their own wait.
    pub response_timeout: Duration,
    /// About how many entries the execution log keeps.
    pub execution_log_max: u32,
    /// What is kept of skipped runs.
    pub retention: Retention,
    /// In how long a window recoveries of a run add up.
    pub recovery_window: Duration,
}

impl RedisOptions {
    /// The defaults, for a server.
    #[must_use]
    pub fn new(url: impl Into<String>) -> RedisOptions {
        RedisOptions {
            url: url.into(),
            namespace: DEFAULT_NAMESPACE.to_owned(),
            tls_ca: None,
            connect_timeout: Duration::from_secs(1),
            response_timeout: Duration::from_secs(1),
            execution_log_max: 100_000,
            retention: Retention {
                age: Duration::from_secs(7 * 86_400),
                runs: 1_000,
            },
            recovery_window: Duration::from_secs(3_600),
        }
    }
}

impl fmt::Debug for RedisOptions {
    /// Without the URL, which may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisOptions")
            .field("namespace", &self.namespace)
            .field("connect_timeout", &self.connect_timeout)
            .field("response_timeout", &self.response_timeout)
            .finish_non_exhaustive()
    }
}

/// The shared connection. It reconnects by itself.
#[derive(Clone)]
pub(super) struct Connection {
    client: Client,
    manager: ConnectionManager,
    connect_timeout: Duration,
    pub(super) response_timeout: Duration,
}

/// Worth one repeat at once: the connection was gone before or while the request was under way, and
/// the next one is new. All verbs answer a repeat alike.
fn is_dropped(error: &RedisError) -> bool {
    (error.is_io_error() || error.is_connection_dropped()) && !error.is_timeout()
}

impl Connection {
    /// Sends one command.
    pub(super) async fn send(&self, cmd: &Cmd) -> RedisResult<Value> {
        let mut manager = self.manager.clone();
        match manager.send_packed_command(cmd).await {
            Err(error) if is_dropped(&error) => manager.send_packed_command(cmd).await,
            answer => answer,
        }
        // An error in an answer arrives as a value here.
        .and_then(Value::extract_error)
    }

    /// Sends several commands in one round trip; fails if one of them does.
    pub(super) async fn send_all(&self, pipe: &Pipeline) -> RedisResult<Vec<Value>> {
        let mut manager = self.manager.clone();
        match pipe.query_async(&mut manager).await {
            Err(error) if is_dropped(&error) => pipe.query_async(&mut manager).await,
            answer => answer,
        }
    }

    /// A connection for commands that block; the caller limits its waits.
    pub(super) async fn dedicated(&self) -> RedisResult<MultiplexedConnection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.connect_timeout))
            .set_response_timeout(None);
        self.client
            .get_multiplexed_async_connection_with_config(&config)
            .await
    }

    /// A connection for wake-ups.
    pub(super) async fn subscription(&self, channel: &str) -> Result<PubSub> {
        let connect = async {
            let mut pubsub = self.client.get_async_pubsub().await?;
            pubsub.subscribe(channel).await?;
            Ok(pubsub)
        };
        match tokio::time::timeout(self.connect_timeout + self.response_timeout, connect).await {
            Ok(answer) => answer.map_err(|error: RedisError| errors::map("listen", &error)),
            Err(_) => Err(errors::timed_out("listen")),
        }
    }
}

fn client(options: &RedisOptions) -> Result<Client> {
    let refuse = |error: &RedisError| errors::map("connect", error);
    let info: ConnectionInfo = options.url.as_str().into_connection_info().map_err(|error| {
        // The text of this error does not repeat the URL.
        StoreError::Refused {
            verb: "connect",
            message: format!("the store's URL: {error}; accepted: redis:// or rediss://[user:password@]host[:port][/db]"),
        }
    })?;
    let settings = info
        .redis_settings()
        .clone()
        .set_protocol(ProtocolVersion::RESP2);
    let info = info
        .set_tcp_settings(TcpSettings::default().set_nodelay(true))
        .set_redis_settings(settings);
    if !options.url.starts_with("rediss") {
        return Client::open(info).map_err(|error| refuse(&error));
    }
    // The process may have chosen a provider already; then that one serves.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let certificates = TlsCertificates {
        client_tls: None,
        root_cert: options.tls_ca.clone(),
    };
    Client::build_with_tls(info, certificates).map_err(|error| refuse(&error))
}

impl RedisStore {
    /// Connects. Takes at most about two connect and response time-outs, and fails rather than
    /// retries: the caller decides how long to go on.
    ///
    /// # Errors
    /// `Refused` for a bad URL or namespace, wrong credentials, or a server older than 6.2;
    /// `Unavailable` if the server cannot be reached or is not ready.
    pub async fn connect(options: RedisOptions) -> Result<RedisStore> {
        let keys = Keys::new(&options.namespace)?;
        let client = client(&options)?;
        // No retries: a caller who waits for a reconnection knows less than one who is told.
        let config = ConnectionManagerConfig::new()
            .set_number_of_retries(0)
            .set_connection_timeout(Some(options.connect_timeout))
            .set_response_timeout(Some(options.response_timeout))
            .set_pipeline_buffer_size(1_024);
        let limit = options.connect_timeout + options.response_timeout;
        let connecting = ConnectionManager::new_with_config(client.clone(), config);
        let manager = match tokio::time::timeout(limit, connecting).await {
            Ok(manager) => manager.map_err(|error| errors::map("connect", &error))?,
            Err(_) => return Err(errors::timed_out("connect")),
        };
        let connection = Connection {
            client,
            manager,
            connect_timeout: options.connect_timeout,
            response_timeout: options.response_timeout,
        };
        let scripts = Arc::new(Scripts::new(options.execution_log_max));
        let store = RedisStore {
            connection,
            keys,
            scripts,
            reports: Arc::default(),
            options: Arc::new(options),
        };
        store.server_info().await?.check()?;
        Ok(store)
    }
}
