//! The list of changed jobs stays short, and says what it dropped.

use std::sync::Arc;

use redis::AsyncCommands as _;
use wasmcron_store::schedule::{CHANGES_KEPT, Changes, ViewVersion};
use wasmcron_tests::conformance::World;

use crate::harness::{RedisHarness, on_runtime};

#[test]
fn a_version_older_than_the_list_is_not_known() {
    on_runtime(async {
        let harness = Arc::new(RedisHarness::start().await);
        let world = World::new(harness.clone()).await;
        let pod = world.pod("a").await;
        let term = world.lead(&pod).await;
        world.job(&term, "first").await;
        let told = world.store.changes(None).await.expect("changes");
        let Changes::Everything { version: old } = told else {
            panic!("{told:?}");
        };
        let mut hand = harness.hand().await;
        let many: Vec<(u64, String)> = (1..)
            .map(|n| (old.0 + n, format!("job-{n}")))
            .take(CHANGES_KEPT)
            .collect();
        let _: () = hand
            .zadd_multiple(harness.keys.changes(), &many)
            .await
            .expect("zadd");
        let told = world.store.changes(Some(old)).await.expect("changes");
        assert!(matches!(told, Changes::Jobs { .. }), "{told:?}");

        world.job(&term, "last").await;
        let kept: usize = hand.zcard(harness.keys.changes()).await.expect("zcard");
        assert_eq!(kept, CHANGES_KEPT + 1, "and one place for what it dropped");
        let told = world.store.changes(Some(old)).await.expect("changes");
        assert!(matches!(told, Changes::Everything { .. }), "{told:?}");
        let known = ViewVersion(old.0 + 1);
        let told = world.store.changes(Some(known)).await.expect("changes");
        assert!(matches!(told, Changes::Jobs { .. }), "{told:?}");
    });
}
