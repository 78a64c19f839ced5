//! A server that is gone, stands still, comes back empty, or answers that it cannot (C28).

use std::sync::Arc;
use std::time::{Duration, Instant};

use wasmcron_core::view::PodLoad;
use wasmcron_store::StoreError;
use wasmcron_store::control::{Control as _, Wake};
use wasmcron_store::leadership::{Campaign, Leadership as _};
use wasmcron_store::pods::{Pods as _, Standing};
use wasmcron_store::redis::RedisStore;
use wasmcron_tests::conformance::{LONG, World};
use wasmcron_tests::proxy::Proxy;
use wasmcron_tests::redis_server::RedisServer;

use crate::harness::{RedisHarness, on_runtime};

async fn order(harness: &RedisHarness, words: &[&str]) {
    let mut hand = harness.hand().await;
    let mut cmd = redis::cmd(words[0]);
    for word in &words[1..] {
        cmd.arg(*word);
    }
    let done: redis::RedisResult<()> = cmd.query_async(&mut hand).await;
    done.expect("an order to the server");
}

/// Connections are cut while two pods campaign: whatever they are told, only one ever wins.
#[test]
fn c28_an_error_is_never_leadership() {
    on_runtime(async {
        let harness = Arc::new(RedisHarness::start().await);
        let world = World::new(harness.clone()).await;
        let (a, b) = (world.pod("a").await, world.pod("b").await);
        let one = RedisStore::connect(harness.options())
            .await
            .expect("a store");
        let two = RedisStore::connect(harness.options())
            .await
            .expect("a store");
        let campaign = async |store: &RedisStore, pod| {
            let mut won = Vec::new();
            for _ in 0..100 {
                if let Ok(Campaign::Won(term)) = store.campaign(pod, LONG).await {
                    won.push((pod.clone(), term));
                }
                // Whoever had no answer is not asked again for a tenth of a second.
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            won
        };
        let cut = async {
            for _ in 0..40 {
                order(
                    &harness,
                    &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"],
                )
                .await;
            }
        };
        let (first, second, ()) = tokio::join!(campaign(&one, &a), campaign(&two, &b), cut);
        let mut all = [first, second].concat();
        all.dedup();
        assert_eq!(all.len(), 1, "{all:?}");
        let leader = one.leader().await.expect("leader").expect("one leads");
        assert_eq!((leader.pod, leader.term), all[0]);
    });
}

/// An error in the answer is an error, and names the key.
#[test]
fn c28_an_answer_with_an_error_is_no_lease() {
    on_runtime(async {
        let harness = Arc::new(RedisHarness::start().await);
        let world = World::new(harness.clone()).await;
        let pod = world.pod("a").await;
        order(&harness, &["SET", &harness.keys.term(), "x"]).await;
        let answer = world.store.campaign(&pod, LONG).await;
        let Err(StoreError::Refused { message, .. }) = answer else {
            panic!("{answer:?}");
        };
        assert!(message.contains(&harness.keys.term()), "{message}");
        order(&harness, &["DEL", &harness.keys.term()]).await;
        world.lead(&pod).await;
    });
}

/// A dropped connection costs one repeat, not an error.
#[test]
fn a_dropped_connection_is_replaced() {
    on_runtime(async {
        let harness = Arc::new(RedisHarness::start().await);
        let world = World::new(harness.clone()).await;
        let pod = world.pod("a").await;
        for _ in 0..20 {
            order(
                &harness,
                &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"],
            )
            .await;
            world.beat(&pod).await;
        }
    });
}

/// A server that comes back empty: calls fail meanwhile, then pods are asked to register, consumers
/// and listeners go on by themselves.
#[test]
fn an_empty_server_after_a_restart_is_taken_up() {
    on_runtime(async {
        let mut server = RedisServer::start().await;
        let mut options = wasmcron_store::redis::RedisOptions::new(server.url());
        options.response_timeout = Duration::from_secs(10);
        let store = RedisStore::connect(options).await.expect("the store");
        let me = wasmcron_core::ids::PodRef {
            address: "a".parse().expect("an address"),
            session: "01JDX000000000000000000001".parse().expect("a session"),
        };
        let beat = async || store.heartbeat(&me, &PodLoad::default(), LONG).await;
        let mut wakes = store.listen();
        assert_eq!(wakes.recv().await, Some(Wake::Subscribed));
        let mut consumer = wasmcron_store::queue::Queue::consumer(&store, &me);
        consumer.take(Duration::ZERO, 1).await.expect("take");

        server.kill();
        for _ in 0..3 {
            let down = beat().await;
            assert!(
                matches!(down, Err(StoreError::Unavailable { .. })),
                "{down:?}"
            );
            let down = consumer.take(Duration::from_millis(50), 1).await;
            assert!(
                matches!(down, Err(StoreError::Unavailable { .. })),
                "{down:?}"
            );
        }
        server.restart().await;
        // Within the tenth of a second in which nobody knocks again.
        let began = Instant::now();
        let standing = loop {
            match beat().await {
                Ok(standing) => break standing,
                Err(error) => assert!(began.elapsed() < Duration::from_secs(5), "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        assert_eq!(standing, Standing::Unknown);
        assert_eq!(consumer.take(Duration::ZERO, 1).await.expect("take"), []);
        assert_eq!(wakes.recv().await, Some(Wake::Subscribed));
        let now = store.now().await.expect("now");
        let report = wasmcron_tests::conformance::report(now);
        let standing = store.register(&me, now, &report).await.expect("register");
        assert!(matches!(standing, Standing::Current { .. }));
    });
}

/// A server that stands still is unavailable after the response time-out, and usable again afterwards. (C62)
#[test]
fn a_server_that_stands_still_times_out() {
    on_runtime(async {
        let harness = Arc::new(RedisHarness::start().await);
        let mut options = harness.options();
        options.response_timeout = Duration::from_millis(150);
        let store = RedisStore::connect(options).await.expect("the store");
        order(&harness, &["CLIENT", "PAUSE", "2500", "ALL"]).await;
        let began = Instant::now();
        let answer = store.now().await;
        assert!(
            matches!(answer, Err(StoreError::Unavailable { .. })),
            "{answer:?}"
        );
        assert!(
            began.elapsed() < Duration::from_secs(2),
            "{:?}",
            began.elapsed()
        );
        let again = loop {
            if let Ok(now) = store.now().await {
                break now;
            }
            assert!(began.elapsed() < Duration::from_secs(20), "still no answer");
        };
        assert!(again.as_millis() > 0);
    });
}

/// The subscribers were deleted by hand: the next heartbeat puts its pod back (C66c).
#[test]
fn c66c_heartbeats_rebuild_the_subscribers() {
    on_runtime(async {
        let harness = Arc::new(RedisHarness::start().await);
        let world = World::new(harness.clone()).await;
        let pod = world.pod("a").await;
        order(&harness, &["DEL", &harness.keys.subscribers()]).await;
        let active = async || {
            let now = world.now().await;
            let pods = world.store.pods().await.expect("pods");
            pods.iter().filter(|pod| pod.is_active(now, LONG)).count()
        };
        assert_eq!(active().await, 0);
        world.beat(&pod).await;
        assert_eq!(active().await, 1);
    });
}

/// A demoted primary refuses writes for now; that is no answer either.
#[test]
fn a_replica_is_unavailable() {
    on_runtime(async {
        let harness = Arc::new(RedisHarness::start().await);
        let world = World::new(harness.clone()).await;
        let pod = world.pod("a").await;
        order(&harness, &["REPLICAOF", "127.0.0.1", "1"]).await;
        let answers = [
            world
                .store
                .heartbeat(&pod, &PodLoad::default(), LONG)
                .await
                .map(drop),
            world.store.campaign(&pod, LONG).await.map(drop),
        ];
        for answer in answers {
            assert!(
                matches!(answer, Err(StoreError::Unavailable { .. })),
                "{answer:?}"
            );
        }
        order(&harness, &["REPLICAOF", "NO", "ONE"]).await;
        world.beat(&pod).await;
    });
}

/// The connection for calls leads nowhere and nobody closes it: after some calls without an answer it is
/// replaced, while a server that is only slow is left its time. (C62)
#[test]
fn c62_a_connection_that_leads_nowhere_is_replaced() {
    on_runtime(async {
        let server = RedisServer::start().await;
        let way = Proxy::start(server.port()).await.expect("a proxy");
        let url = format!("redis://127.0.0.1:{}/", way.port());
        let mut options = wasmcron_store::redis::RedisOptions::new(url);
        options.response_timeout = Duration::from_millis(150);
        let store = RedisStore::connect(options).await.expect("the store");
        for _ in 0..3 {
            way.strand();
            let stranded = Instant::now();
            let mut failed = 0;
            while store.now().await.is_err() {
                failed += 1;
                assert!(
                    stranded.elapsed() < Duration::from_secs(5),
                    "still no answer"
                );
            }
            assert!(failed >= 2, "one late answer replaces nothing: {failed}");
        }
    });
}
