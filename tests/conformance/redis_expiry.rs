//! Leases and locks that lost their end, or that a clock stepping back made long.

use std::sync::Arc;
use std::time::Duration;

use redis::AsyncCommands as _;
use wasmcron_store::leadership::Campaign;
use wasmcron_tests::conformance::{LONG, World};

use crate::harness::{RedisHarness, on_runtime};

const YEAR_MS: i64 = 366 * 86_400_000;

/// Takes a key's end away, or puts it far off.
async fn stretch(harness: &RedisHarness, key: &str, end: Option<i64>) {
    let mut hand = harness.hand().await;
    match end {
        Some(ms) => hand.pexpire::<_, ()>(key, ms).await.expect("PEXPIRE"),
        None => hand.persist::<_, ()>(key).await.expect("PERSIST"),
    }
}

/// A lease never lasts longer than its holder asked for.
#[test]
fn a_lease_without_an_end_is_cut() {
    on_runtime(async {
        let harness = Arc::new(RedisHarness::start().await);
        let world = World::new(harness.clone()).await;
        let (pod, other) = (world.pod("a").await, world.pod("b").await);
        world.lead(&pod).await;
        for end in [None, Some(YEAR_MS)] {
            stretch(&harness, &harness.keys.leader(), end).await;
            for _ in 0..2 {
                let answer = world.store.campaign(&other, LONG * 9).await;
                let Ok(Campaign::Held { expires_in, .. }) = answer else {
                    panic!("{answer:?}");
                };
                assert!(
                    expires_in <= LONG && expires_in > LONG / 2,
                    "{expires_in:?}"
                );
            }
        }
    });
}

/// A lock never lasts longer than its attempt asked for.
#[test]
fn a_lock_without_an_end_is_cut() {
    on_runtime(async {
        let harness = Arc::new(RedisHarness::start().await);
        let world = World::new(harness.clone()).await;
        let pod = world.pod("a").await;
        let term = world.lead(&pod).await;
        let job = world.job(&term, "j").await;
        world.fire(&term, &job, 1, &pod).await;
        let mut claim = world.claim_of(&pod, &world.take_one(&pod).await);
        claim.lock_ttl = Duration::from_secs(60);
        world.claimed(claim.clone()).await;
        for end in [None, Some(YEAR_MS)] {
            stretch(&harness, &harness.keys.lock(&job), end).await;
            for _ in 0..2 {
                let locks = world.store.locks(std::slice::from_ref(&job)).await;
                let left = locks.expect("locks")[0]
                    .as_ref()
                    .map(|lock| lock.expires_in);
                let left = left.expect("the lock is held");
                assert!(
                    left <= claim.lock_ttl && left > claim.lock_ttl / 2,
                    "{left:?}"
                );
            }
        }
    });
}
