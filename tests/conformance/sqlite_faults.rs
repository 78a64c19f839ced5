//! A SQLite file that is locked, emptied or damaged under its pods, and pods that share it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use wasmcron_core::view::PodLoad;
use wasmcron_store::StoreError;
use wasmcron_store::control::{Control as _, Wake};
use wasmcron_store::embedded::{EmbeddedOptions, EmbeddedStore};
use wasmcron_store::leadership::{Campaign, Leadership as _};
use wasmcron_store::pods::{Pods as _, Standing};
use wasmcron_store::sqlite::{SqliteEngine, SqliteOptions};
use wasmcron_tests::conformance::{Damage, Harness as _, LONG, World};

use crate::harness::on_runtime;
use crate::sqlite::SqliteHarness;

async fn store(harness: &SqliteHarness, patience: Duration) -> EmbeddedStore<SqliteEngine> {
    let options = SqliteOptions {
        response_timeout: patience,
        ..SqliteOptions::new(&harness.path)
    };
    let engine = SqliteEngine::open(options).await.expect("the engine");
    EmbeddedStore::new(Arc::new(engine), EmbeddedOptions::default())
}

/// Another process holds the file again and again while two pods campaign: only one ever wins.
#[test]
fn c28_an_error_is_never_leadership() {
    on_runtime(async {
        let harness = Arc::new(SqliteHarness::start());
        let world = World::new(harness.clone()).await;
        let (a, b) = (world.pod("a").await, world.pod("b").await);
        let hasty = Duration::from_millis(20);
        let (one, two) = (store(&harness, hasty).await, store(&harness, hasty).await);
        let campaign = async |store: &EmbeddedStore<SqliteEngine>, pod| {
            let (mut won, mut failed) = (Vec::new(), 0);
            for _ in 0..12 {
                match store.campaign(pod, LONG).await {
                    Ok(Campaign::Won(term)) => won.push((pod.clone(), term)),
                    Ok(_) => {}
                    Err(StoreError::Unavailable { .. }) => failed += 1,
                    Err(other) => panic!("{other:?}"),
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            (won, failed)
        };
        let hold = async {
            let hand = harness.hand();
            for _ in 0..5 {
                hand.execute_batch("BEGIN IMMEDIATE").expect("the lock");
                tokio::time::sleep(Duration::from_millis(60)).await;
                hand.execute_batch("ROLLBACK").expect("the lock given back");
                tokio::time::sleep(Duration::from_millis(15)).await;
            }
        };
        let (first, second, ()) = tokio::join!(campaign(&one, &a), campaign(&two, &b), hold);
        assert!(first.1 + second.1 > 0, "nobody met the lock");
        let mut all = [first.0, second.0].concat();
        all.dedup();
        assert_eq!(all.len(), 1, "{all:?}");
        let leader = world
            .store
            .leader()
            .await
            .expect("leader")
            .expect("one leads");
        assert_eq!((leader.pod, leader.term), all[0]);
    });
}

/// A damaged row is an error that says which, and no lease.
#[test]
fn c28_a_damaged_lease_is_no_lease() {
    on_runtime(async {
        let harness = Arc::new(SqliteHarness::start());
        let world = World::new(harness.clone()).await;
        let pod = world.pod("a").await;
        world.lead(&pod).await;
        let hand = harness.hand();
        let sql = "UPDATE leader SET value = '{\"term\":'";
        assert_eq!(hand.execute(sql, []).expect("damage"), 1);
        let answer = world.store.leader().await;
        assert!(!matches!(answer, Ok(Some(_))), "{answer:?}");
    });
}

/// Held for longer than a pod waits, then free: verbs fail meanwhile and go on by themselves.
#[test]
fn a_locked_file_is_unavailable_and_usable_again() {
    on_runtime(async {
        let harness = Arc::new(SqliteHarness::start());
        let world = World::new(harness.clone()).await;
        let pod = world.pod("a").await;
        let store = store(&harness, Duration::from_millis(100)).await;
        let beat = async || store.heartbeat(&pod, &PodLoad::default(), LONG).await;
        beat().await.expect("a heartbeat");
        let hand = harness.hand();
        hand.execute_batch("BEGIN IMMEDIATE").expect("the lock");
        for _ in 0..3 {
            let began = Instant::now();
            let down = beat().await;
            assert!(
                matches!(down, Err(StoreError::Unavailable { .. })),
                "{down:?}"
            );
            assert!(
                began.elapsed() < Duration::from_secs(2),
                "{:?}",
                began.elapsed()
            );
        }
        // Readers do not wait for it.
        store.pods().await.expect("the pods");
        hand.execute_batch("ROLLBACK").expect("the lock given back");
        let standing = beat().await.expect("a heartbeat");
        assert!(matches!(standing, Standing::Current { .. }), "{standing:?}");
    });
}

/// Everything is gone: pods are asked to register, as after a server came back empty.
#[test]
fn an_emptied_file_is_taken_up() {
    on_runtime(async {
        let harness = Arc::new(SqliteHarness::start());
        let world = World::new(harness.clone()).await;
        let pod = world.pod("a").await;
        harness.damage(Damage::AllLost).await;
        let beat = async || world.store.heartbeat(&pod, &PodLoad::default(), LONG).await;
        assert_eq!(beat().await.expect("a heartbeat"), Standing::Unknown);
        let now = world.now().await;
        let report = wasmcron_tests::conformance::report(now);
        let standing = world.store.register(&pod, now, &report).await;
        assert!(
            matches!(standing, Ok(Standing::Current { .. })),
            "{standing:?}"
        );
    });
}

/// A listener in another process hears at once that nobody leads.
#[test]
fn a_resignation_wakes_the_pods_of_other_processes() {
    on_runtime(async {
        let harness = Arc::new(SqliteHarness::start());
        let world = World::new(harness.clone()).await;
        let pod = world.pod("a").await;
        let other = store(&harness, Duration::from_secs(10)).await;
        let mut wakes = other.listen();
        assert_eq!(wakes.recv().await, Some(Wake::Subscribed));
        let term = world.lead(&pod).await;
        world.store.resign(&term).await.expect("resign");
        let limit = Duration::from_secs(10);
        loop {
            let wake = tokio::time::timeout(limit, wakes.recv()).await;
            if wake.expect("no wake-up") == Some(Wake::LeaderFree) {
                break;
            }
        }
    });
}
