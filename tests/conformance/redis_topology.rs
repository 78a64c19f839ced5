//! A primary that Sentinels name, and one that is a node of a cluster; both may change (C64, C65).

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use wasmcron_core::ids::PodRef;
use wasmcron_core::view::PodLoad;
use wasmcron_store::inspect::Inspect as _;
use wasmcron_store::pods::Standing;
use wasmcron_store::redis::{RedisOptions, RedisStore};
use wasmcron_store::{Store, StoreError};
use wasmcron_tests::conformance::{self, LONG, World};
use wasmcron_tests::redis_server::RedisServer;

use crate::harness::{At, on_runtime};
use wasmcron_tests::redis_sentinel::{Watched, info, order, until};

fn options(url: impl Into<String>) -> RedisOptions {
    let mut options = RedisOptions::new(url);
    options.connect_timeout = Duration::from_secs(2);
    options.response_timeout = Duration::from_secs(2);
    options
}

/// Repeats a heartbeat until it is answered, as a pod does.
async fn standing(store: &dyn Store, me: &PodRef) -> Standing {
    let began = Instant::now();
    loop {
        match store.heartbeat(me, &PodLoad::default(), LONG).await {
            Ok(standing) => return standing,
            Err(error) => assert!(
                error.is_transient() && began.elapsed() < Duration::from_secs(30),
                "{error}"
            ),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// The primary dies with writes that its replica never saw. The store finds the new one by itself, and
/// no number is given twice. (C65)
#[test]
fn c65_a_sentinels_failover_is_followed() {
    on_runtime(async {
        let mut watched = Watched::start().await;
        let harness = At(options(watched.url()));
        let world = World::new(Arc::new(harness)).await;
        let pod = world.pod("a").await;
        let term = world.lead(&pod).await;
        let job = world.job(&term, "j").await;
        let kept = world.running(&term, &job, 1, &pod).await;
        world.store.finish(&kept.success()).await.expect("finish");
        until("the replica to have it all", async || {
            watched.caught_up().await
        })
        .await;
        watched.cut_off().await;
        let lost = world.running(&term, &job, 2, &pod).await;
        watched.primary.kill();
        watched.failed_over().await;

        let began = Instant::now();
        let store = loop {
            match RedisStore::connect(options(watched.url())).await {
                Ok(store) => break store,
                // The Sentinel tells of the new one a moment after it chose it.
                Err(error) => assert!(
                    error.is_transient() && began.elapsed() < Duration::from_secs(30),
                    "{error}"
                ),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        assert!(matches!(
            standing(&store, &pod).await,
            Standing::Current { .. }
        ));
        // The store that was connected all along finds its way as well.
        until("the old connection to follow", async || {
            world.store.now().await.is_ok()
        })
        .await;
        world.beat(&pod).await;
        let run = world
            .store
            .began(&[kept.at.run.clone(), lost.at.run.clone()])
            .await;
        let began: Vec<bool> = run.expect("began").iter().map(Option::is_some).collect();
        assert_eq!(began, [true, false], "the second run was lost");
        let again = world.running(&term, &job, 2, &pod).await;
        assert!(again.at.fence > lost.at.fence, "no fence is given twice");
    });
}

/// Sentinels that do not know the name, or are not there.
#[test]
fn a_name_that_no_sentinel_knows() {
    on_runtime(async {
        let watched = Watched::start().await;
        let wrong = watched.url().replace("/main", "/mian");
        let answer = RedisStore::connect(options(wrong)).await;
        let Err(error @ StoreError::Unavailable { .. }) = answer else {
            panic!("{answer:?}");
        };
        assert!(
            error.to_string().contains("no primary of that name"),
            "{error}"
        );
        // One that is gone is passed over.
        let gone = watched.url().replace('@', "@127.0.0.1:1,");
        RedisStore::connect(options(gone)).await.expect("the store");
    });
}

/// Three primaries, and a replica of the one that has our slot.
struct Cluster {
    nodes: Vec<RedisServer>,
}

/// Whose slots include that of the default namespace, 15,046.
const OWNER: usize = 2;
const REPLICA: usize = 3;

impl Cluster {
    async fn start() -> Cluster {
        let clustered = ["--cluster-enabled", "yes", "--cluster-node-timeout", "700"];
        let mut nodes = Vec::new();
        for _ in 0..4 {
            nodes.push(RedisServer::start_with(&clustered).await);
        }
        for (at, slots) in [0..5_461, 5_461..10_923, 10_923..16_384]
            .into_iter()
            .enumerate()
        {
            let slots: Vec<String> = slots.map(|slot: u16| slot.to_string()).collect();
            let words = ["CLUSTER", "ADDSLOTS"]
                .into_iter()
                .chain(slots.iter().map(String::as_str));
            order(nodes[at].url(), &words.collect::<Vec<_>>()).await;
            let epoch = (at + 1).to_string();
            order(nodes[at].url(), &["CLUSTER", "SET-CONFIG-EPOCH", &epoch]).await;
        }
        for node in &nodes[1..] {
            let port = nodes[0].port().to_string();
            order(node.url(), &["CLUSTER", "MEET", "127.0.0.1", &port]).await;
        }
        let cluster = Cluster { nodes };
        for node in 0..4 {
            until("the nodes to know each other", async || {
                let said = cluster.ask(node, "INFO").await;
                said.contains("cluster_state:ok") && said.contains("cluster_known_nodes:4")
            })
            .await;
        }
        let owner = cluster.ask(OWNER, "MYID").await;
        order(
            cluster.nodes[REPLICA].url(),
            &["CLUSTER", "REPLICATE", owner.trim()],
        )
        .await;
        until("the replica to follow", async || {
            let said = info(cluster.nodes[REPLICA].url(), "replication");
            said.await.contains("master_link_status:up")
        })
        .await;
        cluster
    }

    /// Two of the nodes that do not have our slot.
    fn seeds(&self) -> String {
        format!("{},127.0.0.1:{}", self.seed(0), self.nodes[1].port())
    }

    /// One of the nodes.
    fn seed(&self, node: usize) -> String {
        format!("redis+cluster://127.0.0.1:{}", self.nodes[node].port())
    }

    async fn hand(&self, node: usize) -> MultiplexedConnection {
        let client = redis::Client::open(self.nodes[node].url()).expect("a URL");
        let hand = client.get_multiplexed_async_connection().await;
        hand.expect("a connection")
    }

    async fn ask(&self, node: usize, what: &str) -> String {
        let mut hand = self.hand(node).await;
        let mut cmd = redis::cmd("CLUSTER");
        let said = cmd.arg(what).query_async(&mut hand).await;
        said.expect("CLUSTER")
    }
}

/// Whichever node of a cluster is named, the store finds the one that has its keys. (C64)
#[test]
fn c64_the_node_with_our_slot_is_found() {
    on_runtime(async {
        let cluster = Cluster::start().await;
        for url in [cluster.seed(0), cluster.seed(OWNER), cluster.seeds()] {
            let world = World::new(Arc::new(At(options(url)))).await;
            conformance::life::from_registration_to_success(world).await;
            order(cluster.nodes[OWNER].url(), &["FLUSHALL"]).await;
        }
    });
}

/// The node that has our slot dies, and its replica takes over: the store follows, however many nodes it
/// was told of. (C64)
#[test]
fn c64_a_clusters_failover_is_followed() {
    on_runtime(async {
        let mut cluster = Cluster::start().await;
        let mut pods = Vec::new();
        for url in [cluster.seeds(), cluster.seed(1)] {
            let world = World::new(Arc::new(At(options(url)))).await;
            let pod = world.pod(&format!("pod-{}", pods.len())).await;
            let mut consumer = world.store.consumer(&pod);
            consumer.take(Duration::ZERO, 1).await.expect("take");
            pods.push((world, pod, consumer));
        }
        until("the replica to have both pods", async || {
            let said = cluster.hand(REPLICA).await;
            let mut said = said;
            let _: redis::Value = redis::cmd("READONLY")
                .query_async(&mut said)
                .await
                .expect("READONLY");
            let count: redis::RedisResult<u64> = redis::cmd("SCARD")
                .arg("{distributed_scheduler}:pods")
                .query_async(&mut said)
                .await;
            count.is_ok_and(|count| count == 2)
        })
        .await;
        cluster.nodes.swap_remove(OWNER).kill();
        for (world, pod, mut consumer) in pods {
            let standing = standing(&*world.store, &pod).await;
            assert!(matches!(standing, Standing::Current { .. }), "{standing:?}");
            until("a take from the new node", async || {
                consumer.take(Duration::ZERO, 1).await.is_ok()
            })
            .await;
        }
    });
}

async fn refused(url: String) -> String {
    match RedisStore::connect(options(url)).await {
        Err(StoreError::Refused { message, .. }) => message,
        answer => panic!("{answer:?}"),
    }
}

async fn unavailable(url: String) -> String {
    match RedisStore::connect(options(url)).await {
        Err(StoreError::Unavailable { message, .. }) => message,
        answer => panic!("{answer:?}"),
    }
}

/// A node of a cluster under the URL of a server, and the other way round: each names what is accepted.
#[test]
fn c64_a_url_that_does_not_suit_its_server_is_refused() {
    on_runtime(async {
        let cluster = Cluster::start().await;
        for node in [0, OWNER] {
            let port = cluster.nodes[node].port();
            let said = refused(format!("redis://127.0.0.1:{port}/")).await;
            let accepted = format!("redis+cluster://[user:password@]127.0.0.1:{port}");
            assert!(said.contains(&accepted), "{said}");
        }
        let server = RedisServer::start().await;
        let said = refused(format!("redis+cluster://127.0.0.1:{}", server.port())).await;
        let named = said.contains("belongs to no cluster") && said.ends_with("accepted: redis://");
        assert!(named, "{said}");
    });
}

/// A cluster some of whose slots nobody has: whoever cannot go on without them says which, and goes on
/// once they are back; whoever can is warned.
#[test]
fn c64_slots_that_nobody_has_are_named() {
    on_runtime(async {
        let cluster = Cluster::start().await;
        let owner = cluster.nodes[OWNER].url().to_owned();
        let takes = |url: String, what: &'static str| async move {
            until("the nodes to notice", async || {
                info_of(&url).await.contains(what)
            })
            .await;
        };
        let url = cluster.seed(OWNER);
        RedisStore::connect(options(&url))
            .await
            .expect("a whole cluster");

        order(&owner, &["CLUSTER", "DELSLOTS", "16000", "16001"]).await;
        takes(owner.clone(), "cluster_state:fail").await;
        let said = unavailable(url.clone()).await;
        let expected = "2 of 16384 slots have no owner (16000-16001)";
        assert!(
            said.contains(expected) && said.contains("cluster_state:fail"),
            "{said}"
        );

        let partly = ["CONFIG", "SET", "cluster-require-full-coverage", "no"];
        order(&owner, &partly).await;
        takes(owner.clone(), "cluster_state:ok").await;
        let store = RedisStore::connect(options(&url)).await.expect("the store");
        let warnings = store.warnings().await.expect("warnings");
        assert!(
            warnings.iter().any(|text| text.contains(expected)),
            "{warnings:?}"
        );

        order(&owner, &["CLUSTER", "DELSLOTS", "15046"]).await;
        let said = unavailable(url.clone()).await;
        assert!(
            said.contains("slot 15046, that of this namespace"),
            "{said}"
        );
        assert!(
            said.contains("3 of 16384 slots have no owner (15046, 16000-16001)"),
            "{said}"
        );

        order(&owner, &["CLUSTER", "ADDSLOTS", "15046", "16000", "16001"]).await;
        takes(owner.clone(), "cluster_slots_assigned:16384").await;
        let store = RedisStore::connect(options(&url)).await.expect("the store");
        let warnings = store.warnings().await.expect("warnings");
        assert!(
            !warnings.iter().any(|text| text.contains("slots")),
            "{warnings:?}"
        );
    });
}

/// What a node says of its cluster.
async fn info_of(url: &str) -> String {
    let client = redis::Client::open(url).expect("a URL");
    let mut hand = client
        .get_multiplexed_async_connection()
        .await
        .expect("a connection");
    let said = redis::cmd("CLUSTER")
        .arg("INFO")
        .query_async(&mut hand)
        .await;
    said.expect("CLUSTER INFO")
}
