//! A publish that stopped half-way left a run and no cursor (C65). The leader that looks next may find
//! the time too late to fire: it has its answer all the same, and only one.

use std::sync::Arc;

use redis::AsyncCommands as _;
use wasmcron_core::run::RunState;
use wasmcron_store::StoreError;
use wasmcron_store::schedule::Published;
use wasmcron_tests::conformance::World;

use crate::harness::{RedisHarness, on_runtime};

#[test]
fn c65_a_half_published_time_is_not_missed() {
    on_runtime(async {
        let harness = Arc::new(RedisHarness::start().await);
        let world = World::new(harness.clone()).await;
        let pod = world.pod("a").await;
        let term = world.lead(&pod).await;
        let job = world.job(&term, "j").await;
        let mut hand = harness.hand().await;
        let key = harness.keys.runs(&job);
        hand.set::<_, _, ()>(&key, "x").await.expect("SET");
        let firing = world.firing(&job, 1, &pod);
        let stopped = world.store.publish(&term, &[firing]).await;
        assert!(
            matches!(stopped, Err(StoreError::Refused { .. })),
            "{stopped:?}"
        );
        hand.del::<_, ()>(&key).await.expect("DEL");
        let run = world.run(&job, 1);
        assert_eq!(world.state(&run).await, RunState::Scheduled);
        assert_eq!(world.cursor(&job).await, world.at(0));

        let late = [
            world.gap(&job, 1, 3, "misfire"),
            world.firing(&job, 4, &pod),
        ];
        let held = Published::Held {
            cursor: world.at(1),
        };
        assert_eq!(world.publish(&term, &late).await, [held, held]);
        assert_eq!(world.cursor(&job).await, world.at(1));
        assert_eq!(world.store.gaps(&job, 9).await.expect("gaps"), []);

        let rest = [
            world.gap(&job, 2, 3, "misfire"),
            world.firing(&job, 4, &pod),
        ];
        let published = [Published::Published, Published::Published];
        assert_eq!(world.publish(&term, &rest).await, published);
        let gaps = world.store.gaps(&job, 9).await.expect("gaps");
        assert_eq!((gaps.len(), gaps[0].from), (1, world.at(2)));
    });
}
