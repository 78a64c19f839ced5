//! Connections: one shared and multiplexed for calls, one for each blocking consumer, one for wake-ups.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use redis::aio::{ConnectionManager, ConnectionManagerConfig, MultiplexedConnection, PubSub};
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionInfo, IntoConnectionInfo, Pipeline,
    ProtocolVersion, RedisError, RedisResult, TlsCertificates, Value,
};
use tokio::time::Instant;

use super::RedisStore;
use super::errors;
use super::keys::{DEFAULT_NAMESPACE, Keys};
use super::place::{LOOK_AGAIN, Locator, Node, redirection};
use super::script::Scripts;
use crate::error::{Result, StoreError};
use crate::runs::Retention;

/// How to reach the server, and what the store keeps there.
#[derive(Clone)]
pub struct RedisOptions {
    /// `redis://` or, with TLS, `rediss://`, with user, password and database number as needed; or
    /// `redis+sentinel://host,host/name` or `redis+cluster://host,host`, likewise with TLS.
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

/// The shared connection. It reconnects by itself, and follows the primary where somebody says which
/// server that is.
#[derive(Clone)]
pub(super) struct Connection {
    shared: Arc<Shared>,
    pub(super) response_timeout: Duration,
}

struct Shared {
    options: RedisOptions,
    locator: Locator,
    target: RwLock<Arc<Target>>,
    /// When nobody answered, the last time.
    refused: Mutex<Option<Instant>>,
    /// When the primary was looked for, the last time. Held by who looks.
    looked: tokio::sync::Mutex<Option<Instant>>,
}

/// One server, and the way to it.
struct Target {
    node: Node,
    client: Client,
    manager: ConnectionManager,
    /// Requests in a row that nobody answered in time.
    unanswered: AtomicU32,
}

/// What is sent.
#[derive(Clone, Copy)]
enum Request<'a> {
    One(&'a Cmd),
    Several(&'a Pipeline),
}

/// After nobody answered, calls fail at once for so long instead of knocking again.
const KNOCK_AGAIN: Duration = Duration::from_millis(100);

/// After so many requests in a row without an answer in time the connection is taken for one that leads
/// nowhere, as behind a gateway that forgot it: neither end is told of that.
const SILENT_AFTER: u32 = 2;

/// Worth one repeat at once: the connection was gone before or while the request was under way, and
/// the next one is new. All verbs answer a repeat alike.
fn is_dropped(error: &RedisError) -> bool {
    (error.is_io_error() || error.is_connection_dropped()) && !error.is_timeout()
}

impl Target {
    async fn open(node: Node, locator: &Locator, options: &RedisOptions) -> Result<Target> {
        let url = locator.url(&node);
        let client = client(&url, options)?;
        // No retries: a caller who waits for a reconnection knows less than one who is told.
        let config = ConnectionManagerConfig::new()
            .set_number_of_retries(0)
            .set_connection_timeout(Some(options.connect_timeout))
            .set_response_timeout(Some(options.response_timeout))
            .set_pipeline_buffer_size(1_024);
        let limit = options.connect_timeout + options.response_timeout;
        let connecting = ConnectionManager::new_with_config(client.clone(), config);
        let manager = match tokio::time::timeout(limit, connecting).await {
            Ok(Err(error)) if !error.is_timeout() => return Err(errors::map("connect", &error)),
            Ok(Ok(manager)) => manager,
            Ok(Err(_)) | Err(_) => return Err(errors::no_connection(&url)),
        };
        Ok(Target {
            node,
            client,
            manager,
            unanswered: AtomicU32::new(0),
        })
    }
}

impl Connection {
    async fn open(options: &RedisOptions) -> Result<Connection> {
        let locator = Locator::new(options)?;
        let node = locator.primary(options).await?;
        let target = Target::open(node, &locator, options).await?;
        Ok(Connection {
            response_timeout: options.response_timeout,
            shared: Arc::new(Shared {
                options: options.clone(),
                locator,
                target: RwLock::new(Arc::new(target)),
                refused: Mutex::new(None),
                looked: tokio::sync::Mutex::new(None),
            }),
        })
    }

    /// Whether the URL suits the server, and the cluster that it belongs to takes requests. Answers what
    /// endangers that cluster.
    pub(super) async fn check_place(&self, clustered: bool) -> Result<Option<String>> {
        let shared = &*self.shared;
        shared.locator.suits(clustered)?;
        let target = self.target();
        shared
            .locator
            .cluster_warning(&shared.options, &target.node)
            .await
    }

    fn target(&self) -> Arc<Target> {
        self.shared
            .target
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Sends one command.
    pub(super) async fn send(&self, cmd: &Cmd) -> RedisResult<Value> {
        self.follow(Request::One(cmd)).await
    }

    /// Sends several commands in one round trip; fails if one of them does.
    pub(super) async fn send_all(&self, pipe: &Pipeline) -> RedisResult<Vec<Value>> {
        match self.follow(Request::Several(pipe)).await? {
            Value::Array(values) => Ok(values),
            other => Ok(vec![other]),
        }
    }

    async fn once(&self, request: Request<'_>) -> RedisResult<Value> {
        let mut manager = self.target().manager.clone();
        match request {
            // An error in an answer arrives as a value here.
            Request::One(cmd) => manager
                .send_packed_command(cmd)
                .await
                .and_then(Value::extract_error),
            Request::Several(pipe) => pipe.query_async(&mut manager).await.map(Value::Array),
        }
    }

    /// Sends a request, once more if its connection was gone or the primary is elsewhere by now.
    async fn follow(&self, request: Request<'_>) -> RedisResult<Value> {
        if self.refused_lately() {
            let text = "it did not answer a moment ago";
            return Err(std::io::Error::new(std::io::ErrorKind::NotConnected, text).into());
        }
        let mut answer = self.once(request).await;
        if matches!(&answer, Err(error) if is_dropped(error)) {
            answer = self.once(request).await;
        }
        if let Err(error) = &answer
            && self.relocate(error).await
        {
            answer = self.once(request).await;
        }
        if matches!(&answer, Err(error) if is_dropped(error)) {
            *self.refused() = Some(Instant::now());
        }
        self.note_silence(matches!(&answer, Err(error) if error.is_timeout()));
        answer
    }

    /// Counts requests without an answer, and has the connection replaced after some of them. Nobody waits
    /// for that: whether a new one is answered, the next request finds out.
    fn note_silence(&self, silent: bool) {
        let target = self.target();
        if !silent {
            target.unanswered.store(0, Ordering::Relaxed);
            return;
        }
        let before = target.unanswered.fetch_add(1, Ordering::Relaxed);
        // One replaces it; those that come meanwhile count on.
        if before + 1 == SILENT_AFTER {
            tokio::spawn(self.clone().replace(target));
        }
    }

    /// Puts a new connection to the same server in the place of a silent one.
    async fn replace(self, silent: Arc<Target>) {
        let shared = &*self.shared;
        let opened = Target::open(silent.node.clone(), &shared.locator, &shared.options).await;
        // The server itself may be silent: then it is tried again after as many requests.
        silent.unanswered.store(0, Ordering::Relaxed);
        match opened {
            Ok(target) => {
                let mut place = shared
                    .target
                    .write()
                    .unwrap_or_else(PoisonError::into_inner);
                // Somebody may have found the primary elsewhere meanwhile.
                if Arc::ptr_eq(&silent, &place) {
                    tracing::debug!(node = %target.node, "a connection without answers was replaced");
                    *place = Arc::new(target);
                }
            }
            Err(error) => tracing::debug!(%error, "a connection without answers stays"),
        }
    }

    fn refused(&self) -> MutexGuard<'_, Option<Instant>> {
        self.shared
            .refused
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn refused_lately(&self) -> bool {
        self.refused().is_some_and(|at| at.elapsed() < KNOCK_AGAIN)
    }

    /// Looks for the primary after an error that may mean that another server is it now. True if
    /// another one is, and the request is worth a repeat.
    pub(super) async fn relocate(&self, error: &RedisError) -> bool {
        let (shared, before) = (&*self.shared, self.target());
        if !shared.locator.follows(error) {
            return false;
        }
        let mut looked = shared.looked.lock().await;
        if !Arc::ptr_eq(&before, &self.target()) {
            return true; // somebody else found it while we waited
        }
        let told = redirection(error, &before.node);
        if told.is_none() && looked.is_some_and(|at| at.elapsed() < LOOK_AGAIN) {
            return false;
        }
        *looked = Some(Instant::now());
        let node = match told {
            Some(node) => {
                shared.locator.heard_of(vec![node.clone()]);
                node
            }
            None => match shared.locator.primary(&shared.options).await {
                Ok(node) => node,
                Err(error) => {
                    tracing::debug!(%error, "the primary was not found");
                    return false;
                }
            },
        };
        if node == before.node {
            return false;
        }
        match Target::open(node, &shared.locator, &shared.options).await {
            Ok(target) => {
                tracing::info!(from = %before.node, to = %target.node, "store.moved");
                let mut place = shared
                    .target
                    .write()
                    .unwrap_or_else(PoisonError::into_inner);
                *place = Arc::new(target);
                true
            }
            Err(error) => {
                tracing::debug!(%error, "the new primary does not answer");
                false
            }
        }
    }

    /// A connection for commands that block; the caller limits its waits.
    pub(super) async fn dedicated(&self) -> RedisResult<MultiplexedConnection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.shared.options.connect_timeout))
            .set_response_timeout(None);
        self.target()
            .client
            .get_multiplexed_async_connection_with_config(&config)
            .await
    }

    /// A connection for wake-ups.
    pub(super) async fn subscription(&self, channel: &str) -> Result<PubSub> {
        let limit = self.shared.options.connect_timeout + self.response_timeout;
        let connect = async {
            let mut pubsub = self.target().client.get_async_pubsub().await?;
            pubsub.subscribe(channel).await?;
            Ok(pubsub)
        };
        match tokio::time::timeout(limit, connect).await {
            Ok(answer) => answer.map_err(|error: RedisError| errors::map("listen", &error)),
            Err(_) => Err(errors::timed_out("listen")),
        }
    }
}

pub(super) fn client(url: &str, options: &RedisOptions) -> Result<Client> {
    let refuse = |error: &RedisError| errors::map("connect", error);
    let info: ConnectionInfo = url.into_connection_info().map_err(|error| {
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
    if !url.starts_with("rediss") {
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
    /// `Refused` for a bad URL or namespace, wrong credentials, a server older than 6.2, or a node of a
    /// cluster that the URL takes for a server; `Unavailable` if the server cannot be reached or is not
    /// ready, or its cluster takes no requests.
    pub async fn connect(options: RedisOptions) -> Result<RedisStore> {
        let keys = Keys::new(&options.namespace)?;
        let connection = Connection::open(&options).await?;
        let scripts = Arc::new(Scripts::new(options.execution_log_max));
        let store = RedisStore {
            connection,
            keys,
            scripts,
            reports: Arc::default(),
            options: Arc::new(options),
        };
        let info = store.server_info().await?;
        info.check()?;
        store.connection.check_place(info.clustered).await?;
        Ok(store)
    }
}
