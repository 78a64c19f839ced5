//! What pods say of themselves is read once for each version of it.

use std::sync::Arc;

use wasmcron_core::ids::DefinitionHash;
use wasmcron_core::view::{JobReport, PodReport};
use wasmcron_tests::conformance::{self, Harness as _, Settings, World};

use crate::harness::{RedisHarness, on_runtime};

async fn reports(store: &dyn wasmcron_store::Store) -> Vec<Option<Arc<PodReport>>> {
    let pods = store.pods().await.expect("pods");
    pods.into_iter().map(|pod| pod.report).collect()
}

fn same(one: &Option<Arc<PodReport>>, other: &Option<Arc<PodReport>>) -> bool {
    matches!((one, other), (Some(one), Some(other)) if Arc::ptr_eq(one, other))
}

#[test]
fn an_unchanged_report_is_the_same_object() {
    on_runtime(async {
        let harness = Arc::new(RedisHarness::start().await);
        let world = World::new(harness.clone()).await;
        let (a, _) = (world.pod("a").await, world.pod("b").await);
        let first = reports(&*world.store).await;
        world.beat(&a).await;
        let second = reports(&*world.store).await;
        assert!(same(&first[0], &second[0]) && same(&first[1], &second[1]));

        let now = world.now().await;
        let mut changed = conformance::report(now);
        changed.capacity = 99;
        world.store.report(&a, &changed).await.expect("report");
        let third = reports(&*world.store).await;
        assert_eq!(third[0].as_deref(), Some(&changed));
        assert!(same(&second[1], &third[1]));

        let again = world.pod("b").await;
        let fourth = reports(&*world.store).await;
        assert!(same(&third[0], &fourth[0]) && !same(&third[1], &fourth[1]));
        world.store.leave(&again).await.expect("leave");
        let fifth = reports(&*world.store).await;
        assert!(same(&fourth[1], &fifth[1]));
    });
}

/// A report that is gone from the server is gone, whatever was read before.
#[test]
fn a_report_that_expired_is_none() {
    on_runtime(async {
        let harness = Arc::new(RedisHarness::start().await);
        let world = World::new(harness.clone()).await;
        let pod = world.pod("a").await;
        assert!(reports(&*world.store).await[0].is_some());
        let mut hand = harness.hand().await;
        let mut cmd = redis::cmd("DEL");
        let key = harness.keys.pod(&pod.address);
        let done: redis::RedisResult<()> = cmd.arg(key).query_async(&mut hand).await;
        done.expect("DEL");
        assert_eq!(reports(&*world.store).await, [None]);
    });
}

/// A second reading of a large report costs next to nothing on the wire.
#[test]
fn a_large_report_crosses_the_wire_once() {
    on_runtime(async {
        let harness = Arc::new(RedisHarness::start().await);
        let world = World::new(harness.clone()).await;
        let pod = world.pod("a").await;
        let now = world.now().await;
        let mut report = conformance::report(now);
        for n in 0..5_000 {
            let hash = DefinitionHash::of(format!("{n}").as_bytes());
            report.jobs.insert(
                world.name(&format!("job-{n}")),
                JobReport { hash, since: now },
            );
        }
        world.store.report(&pod, &report).await.expect("report");
        let mut hand = harness.hand().await;
        let mut sent = async || -> u64 {
            let mut cmd = redis::cmd("INFO");
            let info: String = cmd.arg("stats").query_async(&mut hand).await.expect("INFO");
            let line = info
                .lines()
                .find_map(|line| line.strip_prefix("total_net_output_bytes:"));
            line.expect("the statistic")
                .trim()
                .parse()
                .expect("a number")
        };
        let fresh = harness.store(Settings::default()).await;
        let before = sent().await;
        assert_eq!(reports(&*fresh).await[0].as_deref(), Some(&report));
        let once = sent().await;
        for _ in 0..10 {
            assert_eq!(reports(&*fresh).await.len(), 1);
        }
        let later = sent().await;
        assert!(once - before > 400_000, "{}", once - before);
        assert!(later - once < 40_000, "{}", later - once);
    });
}
