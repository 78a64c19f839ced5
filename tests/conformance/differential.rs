//! Random verbs from a seed, for Redis, SQLite and memory alike: every answer and what is left of it
//! must be the same.
//!
//! What fails prints the seed and a short list of steps that shows it. The ignored test plays the seeds
//! of `WASMCRON_SEEDS`; `WASMCRON_STEPS` says how many steps of each, here and there.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use wasmcron_core::time::Timestamp;
use wasmcron_tests::conformance::Harness;
use wasmcron_tests::differential::{Difference, Step, play, shortest, steps};
use wasmcron_tests::memory_store::MemoryEngine;
use wasmcron_tests::redis_server::RedisServer;

use crate::harness::{RedisHarness, on_runtime};
use crate::memory::MemoryHarness;
use crate::sqlite::SqliteHarness;

/// Steps of a seed.
const STEPS: usize = 150;

/// Empty stores of each kind, over one server.
struct Sides {
    server: Arc<RedisServer>,
    made: AtomicU64,
}

impl Sides {
    fn fresh(&self) -> Vec<(&'static str, Arc<dyn Harness>)> {
        let namespace = format!("seed{}", self.made.fetch_add(1, Ordering::Relaxed));
        let redis = RedisHarness::sharing(self.server.clone(), &namespace);
        let now = Timestamp::from(chrono::Utc::now());
        let memory = MemoryHarness::over(Arc::new(MemoryEngine::on_tokio(now)));
        vec![
            ("Redis", Arc::new(redis)),
            ("SQLite", Arc::new(SqliteHarness::start())),
            ("memory", Arc::new(memory)),
        ]
    }

    async fn plays(&self, steps: &[Step]) -> Result<(), Difference> {
        Box::pin(play(self.fresh(), steps)).await
    }
}

fn number(text: &str) -> u64 {
    let parsed = text.parse();
    parsed.unwrap_or_else(|_| panic!("{text:?} in WASMCRON_SEEDS or WASMCRON_STEPS is no number"))
}

fn compare(usual: Range<u64>) {
    let count = std::env::var("WASMCRON_STEPS").map_or(STEPS, |text| {
        usize::try_from(number(&text)).expect("a number of steps")
    });
    on_runtime(async {
        let sides = Sides {
            server: Arc::new(RedisServer::start().await),
            made: AtomicU64::new(0),
        };
        for seed in usual {
            let all = steps(seed, count);
            let Err(first) = sides.plays(&all).await else {
                continue;
            };
            let plays = async |steps: &[Step]| sides.plays(steps).await;
            let (few, shown) = Box::pin(shortest(&all, first.clone(), plays)).await;
            let few: Vec<String> = few.iter().map(|step| format!("  {step:?}")).collect();
            panic!(
                "seed {seed} differs first at {first:?}\n{} steps show:\n{}\n{shown:?}",
                few.len(),
                few.join("\n")
            );
        }
    });
}

#[test]
fn the_stores_agree_on_some_seeds() {
    compare(0..8);
}

#[test]
fn the_stores_agree_on_other_seeds() {
    compare(8..16);
}

/// For hours of leisure: `WASMCRON_SEEDS=0..1000 cargo test … -- --ignored many_seeds`.
#[test]
#[ignore = "takes as long as one likes"]
fn the_stores_agree_on_many_seeds() {
    let seeds = std::env::var("WASMCRON_SEEDS").unwrap_or_else(|_| "100..200".into());
    let (from, to) = seeds.split_once("..").expect("seeds as from..to");
    compare(number(from)..number(to));
}
