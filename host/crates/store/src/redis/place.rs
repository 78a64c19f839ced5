//! Where the primary is: at a fixed address, where Sentinels say, or in a cluster.
//!
//! All keys of a namespace share one slot, so one primary has all of them, in a cluster too. A store
//! therefore speaks to one server at a time, and only has to learn which.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use redis::{AsyncConnectionConfig, RedisError, RedisResult, Value};

use super::cluster::{self, SLOTS, Shards};
use super::codec::{text, texts};
use super::connect::{RedisOptions, client};
use crate::error::{Result, StoreError};

/// What is accepted as the store's URL.
const ACCEPTED: &str = "redis://[user:password@]host[:port][/db], redis+sentinel://[user:password@]host[:port][,host…]/name-of-primary[/db], redis+cluster://[user:password@]host[:port][,host…]; with rediss for TLS";
/// Nodes that are remembered at most.
const NODES_MAX: usize = 100;

/// One server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) host: String,
    pub(super) port: u16,
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// How the primary is found.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Way {
    /// It is where the URL says.
    Fixed,
    /// Sentinels know it by this name.
    Sentinel(String),
    /// The nodes of the cluster know who has our slot.
    Cluster,
}

/// Finds the primary.
pub(super) struct Locator {
    way: Way,
    /// The URL as it was given.
    given: String,
    /// Credentials and database of the URL, as it spells them.
    credentials: String,
    database: String,
    scheme: &'static str,
    slot: u16,
    /// Whom to ask: those of the URL, then those that were heard of.
    nodes: Mutex<Vec<Node>>,
}

impl Locator {
    /// Reads the store's URL.
    pub(super) fn new(options: &RedisOptions) -> Result<Locator> {
        let refuse = |message: &str| StoreError::Refused {
            verb: "connect",
            message: format!("the store's URL: {message}; accepted: {ACCEPTED}"),
        };
        let (scheme, rest) = options
            .url
            .split_once("://")
            .ok_or_else(|| refuse("no scheme"))?;
        let (tls, kind) = match scheme.split_once('+') {
            Some((base, kind)) => (base, kind),
            None => (scheme, ""),
        };
        let tls = match tls {
            "redis" => "redis",
            "rediss" => "rediss",
            _ => return Err(refuse("unknown scheme")),
        };
        let (credentials, rest) = match rest.rsplit_once('@') {
            Some((credentials, rest)) => (format!("{credentials}@"), rest),
            None => (String::new(), rest),
        };
        let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
        let hosts = hosts.split('?').next().unwrap_or(hosts);
        let (way, database, port) = match kind {
            "" => (Way::Fixed, path, 6379),
            "sentinel" => {
                let (name, database) = path.split_once('/').unwrap_or((path, ""));
                if name.is_empty() {
                    return Err(refuse("no name of the primary"));
                }
                (Way::Sentinel(name.to_owned()), database, 26_379)
            }
            "cluster" if path.is_empty() || path == "0" => (Way::Cluster, "", 6379),
            "cluster" => return Err(refuse("a cluster has no numbered databases")),
            _ => return Err(refuse("unknown scheme")),
        };
        let nodes: Option<Vec<Node>> = hosts.split(',').map(|host| node_of(host, port)).collect();
        let nodes = nodes.ok_or_else(|| refuse("no host and port"))?;
        if way == Way::Fixed && nodes.len() > 1 {
            return Err(refuse("several hosts"));
        }
        Ok(Locator {
            way,
            given: options.url.clone(),
            credentials,
            database: database.to_owned(),
            scheme: tls,
            slot: slot_of(&options.namespace),
            nodes: Mutex::new(nodes),
        })
    }

    /// The URL of one server.
    pub(super) fn url(&self, node: &Node) -> String {
        if self.way == Way::Fixed && self.nodes().first() == Some(node) {
            return self.given.clone();
        }
        format!(
            "{}://{}{node}/{}",
            self.scheme, self.credentials, self.database
        )
    }

    fn nodes(&self) -> Vec<Node> {
        self.nodes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(super) fn heard_of(&self, found: Vec<Node>) {
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        for node in found {
            if !nodes.contains(&node) && nodes.len() < NODES_MAX {
                nodes.push(node);
            }
        }
    }

    /// Whether another server may have to be looked for after this error.
    pub(super) fn follows(&self, error: &RedisError) -> bool {
        if self.way == Way::Fixed {
            return false;
        }
        // In a pipeline the errors of its commands are but a text.
        let text = error.to_string().to_lowercase();
        let elsewhere = ["moved", "readonly", "masterdown", "clusterdown", "loading"];
        error.redirect_node().is_some()
            || error.is_io_error()
            || error.is_connection_dropped()
            || elsewhere.iter().any(|word| text.contains(word))
    }

    /// Where the primary is now, as far as anybody knows. The one of the URL needs no asking.
    pub(super) async fn primary(&self, options: &RedisOptions) -> Result<Node> {
        let nodes = self.nodes();
        if self.way == Way::Fixed {
            return nodes.into_iter().next().ok_or_else(|| nobody("no address"));
        }
        let mut last = "nobody was asked".to_owned();
        for node in &nodes {
            let limit = options.connect_timeout + options.response_timeout;
            match tokio::time::timeout(limit, self.ask(node, options)).await {
                Ok(Ok(primary)) => return Ok(primary),
                Ok(Err(error)) if error.to_string().contains("cluster support disabled") => {
                    return Err(StoreError::Refused {
                        verb: "connect",
                        message: format!(
                            "{node} belongs to no cluster; accepted: {}://",
                            self.scheme
                        ),
                    });
                }
                Ok(Err(error)) => last = format!("{node}: {error}"),
                Err(_) => last = format!("{node}: timed out"),
            }
        }
        Err(nobody(&last))
    }

    /// Whether the URL suits the server that was found there.
    pub(super) fn suits(&self, clustered: bool) -> Result<()> {
        let nodes = self.nodes();
        let (Way::Fixed, true, Some(node)) = (&self.way, clustered, nodes.first()) else {
            return Ok(());
        };
        Err(StoreError::Refused {
            verb: "connect",
            message: format!(
                "{node} is a node of a cluster, which may have its keys elsewhere tomorrow; accepted: {}+cluster://[user:password@]{node}[,host…]",
                self.scheme
            ),
        })
    }

    /// Whether the cluster takes requests, and what endangers it. Nothing to say where there is none,
    /// or where the user may not ask.
    pub(super) async fn cluster_warning(
        &self,
        options: &RedisOptions,
        node: &Node,
    ) -> Result<Option<String>> {
        if self.way != Way::Cluster {
            return Ok(None);
        }
        let Ok(shards) = self.shards(node, options).await else {
            return Ok(None);
        };
        let mut cmd = redis::cmd("CLUSTER");
        let said = query(&self.url(node), options, cmd.arg("INFO")).await.ok();
        let info = said.as_ref().and_then(text).unwrap_or_default();
        match cluster::refusal(&info, &shards) {
            Some(message) => Err(StoreError::Unavailable {
                verb: "connect",
                message,
            }),
            None => Ok(cluster::warning(&shards)),
        }
    }

    async fn ask(&self, node: &Node, options: &RedisOptions) -> RedisResult<Node> {
        match &self.way {
            Way::Sentinel(name) => self.ask_sentinel(node, name, options).await,
            Way::Fixed | Way::Cluster => self.ask_cluster(node, options).await,
        }
    }

    async fn ask_sentinel(
        &self,
        node: &Node,
        name: &str,
        options: &RedisOptions,
    ) -> RedisResult<Node> {
        let mut cmd = redis::cmd("SENTINEL");
        cmd.arg("GET-MASTER-ADDR-BY-NAME").arg(name);
        let open = format!("{}://{node}/", self.scheme);
        let answer = match query(&open, options, &cmd).await {
            // Sentinels with a password share it with the servers they watch.
            Err(error) if error.code() == Some("NOAUTH") => {
                let closed = format!("{}://{}{node}/", self.scheme, self.credentials);
                query(&closed, options, &cmd).await?
            }
            answer => answer?,
        };
        let parts: Vec<String> = texts(&answer).into_iter().flatten().collect();
        match parts.as_slice() {
            [host, port] => match port.parse() {
                Ok(port) => Ok(Node {
                    host: host.clone(),
                    port,
                }),
                Err(_) => Err(strange("an address without a port")),
            },
            _ => Err(strange("it knows no primary of that name")),
        }
    }

    async fn ask_cluster(&self, node: &Node, options: &RedisOptions) -> RedisResult<Node> {
        let shards = self.shards(node, options).await?;
        self.heard_of(shards.servers());
        let primary = shards.primary(self.slot).cloned();
        primary.ok_or_else(|| {
            let holes = shards.uncovered().unwrap_or_default();
            let what = format!(
                "nobody has slot {}, that of this namespace: {holes}",
                self.slot
            );
            RedisError::from(std::io::Error::other(what))
        })
    }

    async fn shards(&self, node: &Node, options: &RedisOptions) -> RedisResult<Shards> {
        let mut cmd = redis::cmd("CLUSTER");
        let answer = query(&self.url(node), options, cmd.arg("SLOTS")).await?;
        Shards::of(&answer, node).ok_or_else(|| strange("no slots"))
    }
}

/// The server that a redirection names.
pub(super) fn redirection(error: &RedisError, from: &Node) -> Option<Node> {
    let (address, _) = error.redirect_node()?;
    let (host, port) = address.rsplit_once(':')?;
    let host = if host.is_empty() { &from.host } else { host };
    Some(Node {
        host: host.trim_matches(['[', ']']).to_owned(),
        port: port.parse().ok()?,
    })
}

fn node_of(text: &str, port: u16) -> Option<Node> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, digits)) if !host.contains(':') || host.ends_with(']') => {
            (host, digits.parse().ok()?)
        }
        _ => (text, port),
    };
    let host = host.trim_matches(['[', ']']);
    (!host.is_empty()).then(|| Node {
        host: host.to_owned(),
        port,
    })
}

/// One question on a connection of its own.
async fn query(url: &str, options: &RedisOptions, cmd: &redis::Cmd) -> RedisResult<Value> {
    let client = client(url, options)
        .map_err(|error| RedisError::from(std::io::Error::other(error.to_string())))?;
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(options.connect_timeout))
        .set_response_timeout(Some(options.response_timeout));
    let mut connection = client
        .get_multiplexed_async_connection_with_config(&config)
        .await?;
    connection
        .send_packed_command(cmd)
        .await
        .and_then(Value::extract_error)
}

fn strange(what: &'static str) -> RedisError {
    RedisError::from(std::io::Error::other(what))
}

fn nobody(why: &str) -> StoreError {
    StoreError::Unavailable {
        verb: "connect",
        message: format!("where the primary is, nobody says; the last one asked, {why}"),
    }
}

/// The slot of all keys of a namespace: CRC16 (XMODEM) of the hash tag, modulo 16,384.
fn slot_of(namespace: &str) -> u16 {
    let crc = namespace.bytes().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 {
                crc << 1
            } else {
                (crc << 1) ^ 0x1021
            }
        })
    });
    crc % SLOTS
}

/// How long nobody looks for the primary again after a look.
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    fn locator(url: &str) -> Result<Locator> {
        Locator::new(&RedisOptions::new(url))
    }

    fn shown(url: &str) -> (Way, Vec<String>) {
        let locator = locator(url).expect("a good URL");
        let urls = locator
            .nodes()
            .iter()
            .map(|node| locator.url(node))
            .collect();
        (locator.way, urls)
    }

    #[test]
    fn a_url_says_whom_to_ask() {
        let fixed = shown("rediss://ann:p%40ss@host/2");
        assert_eq!(
            fixed,
            (Way::Fixed, vec!["rediss://ann:p%40ss@host/2".into()])
        );
        let sentinel = shown("redis+sentinel://:pass@a,b:7000,[fd00::1]/main/3");
        let urls = [
            "redis://:pass@a:26379/3",
            "redis://:pass@b:7000/3",
            "redis://:pass@[fd00::1]:26379/3",
        ];
        assert_eq!(
            sentinel,
            (Way::Sentinel("main".into()), urls.map(String::from).into())
        );
        let cluster = shown("redis+cluster://a:1,b:2");
        let urls = ["redis://a:1/", "redis://b:2/"];
        assert_eq!(cluster, (Way::Cluster, urls.map(String::from).into()));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for url in [
            "redis",
            "http://a",
            "redis+http://a",
            "redis://a,b",
            "redis://",
            "redis://:secret@host:port/",
            "redis+sentinel://a",
            "redis+cluster://a/1",
        ] {
            let Err(StoreError::Refused { message, .. }) = locator(url).map(drop) else {
                panic!("{url}");
            };
            assert!(!message.contains("secret"), "{message}");
        }
    }

    #[test]
    fn the_slot_is_that_of_the_hash_tag() {
        assert_eq!(slot_of("123456789"), 0x31c3);
        assert_eq!(slot_of("distributed_scheduler"), 15_046);
    }
}
