//! Scripts that the server forgets (C59).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use wasmcron_tests::conformance::{LONG, World};

use crate::harness::{RedisHarness, on_runtime};

async fn flush_scripts(harness: &RedisHarness) {
    let mut hand = harness.hand().await;
    let done: redis::RedisResult<()> = redis::cmd("SCRIPT")
        .arg("FLUSH")
        .query_async(&mut hand)
        .await;
    done.expect("SCRIPT FLUSH");
}

/// Between any two calls of a job's life.
#[test]
fn c59_scripts_vanish_between_calls() {
    on_runtime(async {
        let harness = Arc::new(RedisHarness::start().await);
        let world = World::new(harness.clone()).await;
        let pod = world.pod("a").await;
        let term = world.lead(&pod).await;
        let job = world.job(&term, "j").await;
        let mut consumer = world.store.consumer(&pod);
        for seconds in 1..=3 {
            flush_scripts(&harness).await;
            world.fire(&term, &job, seconds, &pod).await;
            flush_scripts(&harness).await;
            let taken = consumer.take(Duration::ZERO, 4).await.expect("take");
            flush_scripts(&harness).await;
            let running = world.claimed(world.claim_of(&pod, &taken[0])).await;
            flush_scripts(&harness).await;
            running.save(&world, 1, b"x").await;
            flush_scripts(&harness).await;
            world
                .store
                .finish(&running.success())
                .await
                .expect("finish");
        }
        assert_eq!(world.store.runs(&job, 10).await.expect("runs").len(), 3);
    });
}

/// While many calls are under way on one connection.
#[test]
fn c59_scripts_vanish_between_calls_of_a_pipeline() {
    on_runtime(async {
        let harness = Arc::new(RedisHarness::start().await);
        let world = World::new(harness.clone()).await;
        let pod = world.pod("a").await;
        let term = world.lead(&pod).await;
        let mut jobs = Vec::new();
        for n in 0..20 {
            jobs.push(world.job(&term, &format!("j{n}")).await);
        }
        let done = AtomicBool::new(false);
        let flush = async {
            while !done.load(Ordering::Relaxed) {
                flush_scripts(&harness).await;
            }
        };
        let work = async {
            for seconds in 1..=10 {
                let fires = jobs.iter().map(|job| world.fire(&term, job, seconds, &pod));
                futures::future::join_all(fires).await;
                let taken = world.take(&pod).await;
                assert_eq!(taken.len(), jobs.len());
                let claims = taken
                    .iter()
                    .map(|taken| world.claimed(world.claim_of(&pod, taken)));
                let running = futures::future::join_all(claims).await;
                let attempts: Vec<_> = running.iter().map(|one| one.at.clone()).collect();
                world
                    .store
                    .extend(&pod, &attempts, LONG)
                    .await
                    .expect("extend");
                let finishes: Vec<_> = running.iter().map(|one| one.success()).collect();
                let ends = finishes.iter().map(|finish| world.store.finish(finish));
                for end in futures::future::join_all(ends).await {
                    end.expect("finish");
                }
            }
            done.store(true, Ordering::Relaxed);
        };
        tokio::join!(flush, work);
        let counts = world.store.counts().await.expect("counts");
        assert_eq!((counts.scheduled, counts.running), (0, 0));
    });
}
