//! A server without memory left (C66a).

use std::collections::BTreeMap;
use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use wasmcron_core::run::RunState;
use wasmcron_core::view::PodLoad;
use wasmcron_store::StoreError;
use wasmcron_store::runs::{Finished, StateWrite};
use wasmcron_tests::conformance::{LONG, World};

use crate::harness::{RedisHarness, on_runtime};

/// Every key with its value, byte by byte.
async fn contents(hand: &mut MultiplexedConnection) -> BTreeMap<String, Vec<u8>> {
    let keys: Vec<String> = redis::cmd("KEYS")
        .arg("*")
        .query_async(hand)
        .await
        .expect("KEYS");
    let mut contents = BTreeMap::new();
    for key in keys {
        let value = redis::cmd("DUMP").arg(&key).query_async(hand).await;
        contents.insert(key, value.expect("DUMP"));
    }
    contents
}

async fn limit(hand: &mut MultiplexedConnection, bytes: u64) {
    let mut cmd = redis::cmd("CONFIG");
    let done: redis::RedisResult<()> = cmd
        .arg("SET")
        .arg("maxmemory")
        .arg(bytes)
        .query_async(hand)
        .await;
    done.expect("CONFIG SET");
}

fn is_full<T: std::fmt::Debug>(answer: Result<T, StoreError>) {
    let full = matches!(&answer, Err(error @ StoreError::Full { .. }) if error.is_transient());
    assert!(full, "{answer:?}");
}

/// What writes is refused whole and says so; what reads goes on.
#[test]
fn c66a_a_full_store_writes_nothing() {
    on_runtime(async {
        let harness = Arc::new(RedisHarness::start().await);
        let world = World::new(harness.clone()).await;
        let store = &world.store;
        let pod = world.pod("a").await;
        let term = world.lead(&pod).await;
        let (job, other) = (world.job(&term, "j").await, world.job(&term, "k").await);
        let running = world.running(&term, &job, 1, &pod).await;
        world.fire(&term, &other, 1, &pod).await;
        let taken = world.take_one(&pod).await;
        let mut hand = harness.hand().await;
        let before = contents(&mut hand).await;
        limit(&mut hand, 1).await;
        is_full(store.publish(&term, &[world.firing(&job, 2, &pod)]).await);
        is_full(store.heartbeat(&pod, &PodLoad::default(), LONG).await);
        is_full(store.claim(&world.claim_of(&pod, &taken)).await);
        is_full(store.save_checkpoint(&running.checkpoint(1, b"x")).await);
        is_full(store.finish(&running.retry(LONG)).await);
        is_full(store.submit(&world.manual(&job)).await);
        is_full(store.pause(&job, "ann", "").await);
        is_full(store.park(&pod, &taken, 1).await);
        let write = StateWrite {
            key: "k".into(),
            value: Some(vec![1]),
        };
        is_full(store.set_state(&running.at, &write, 100).await);
        assert_eq!(world.state(&running.at.run).await, RunState::Running);
        assert_eq!(contents(&mut hand).await, before, "nothing was written");
        let attempts = std::slice::from_ref(&running.at);
        store
            .extend(&pod, attempts, LONG)
            .await
            .expect("locks are still extended");

        limit(&mut hand, 0).await;
        world.beat(&pod).await;
        running.save(&world, 1, b"x").await;
        let finished = store.finish(&running.retry(LONG)).await;
        assert_eq!(finished.expect("finish"), Finished::Finished);
    });
}

/// The end of a run frees more than it takes: a full store takes it, or takes nothing of it; and the
/// repeat succeeds.
#[test]
fn c66a_a_finished_result_survives_a_full_store() {
    on_runtime(async {
        let harness = Arc::new(RedisHarness::start().await);
        let world = World::new(harness.clone()).await;
        let pod = world.pod("a").await;
        let term = world.lead(&pod).await;
        let job = world.job(&term, "j").await;
        let running = world.running(&term, &job, 1, &pod).await;
        running.save(&world, 1, &[7; 4_096]).await;
        let mut finish = running.success();
        finish.state = vec![StateWrite {
            key: "k".into(),
            value: Some(vec![1; 64]),
        }];
        let mut hand = harness.hand().await;
        let before = contents(&mut hand).await;
        limit(&mut hand, 1).await;
        let first = world.store.finish(&finish).await;
        let expected = match first {
            Ok(Finished::Finished) => Finished::AlreadyFinished,
            Err(StoreError::Full { .. }) => {
                assert_eq!(contents(&mut hand).await, before);
                Finished::Finished
            }
            other => panic!("{other:?}"),
        };
        limit(&mut hand, 0).await;
        assert_eq!(world.store.finish(&finish).await.expect("finish"), expected);
        assert_eq!(world.state(&running.at.run).await, RunState::Succeeded);
        let state = world.store.get_state(&job, "k").await.expect("get_state");
        assert_eq!(state, Some(vec![1; 64]));
        assert_eq!(world.store.counts().await.expect("counts").running, 0);
    });
}
