//! The conformance suite over Redis and over memory, a test for each case, and what only Redis can do wrong.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "all of it is test code; clippy exempts only functions that are tests themselves"
)]

mod differential;
mod embedded;
mod harness;
mod memory;
mod redis_binary;
mod redis_broken_keys;
mod redis_changes;
mod redis_cluster;
mod redis_connect;
mod redis_expiry;
mod redis_faults;
mod redis_half_published;
mod redis_memory;
mod redis_outage;
mod redis_reports;
mod redis_scripts;
mod redis_tls;
mod redis_topology;
mod sqlite;
mod sqlite_faults;

use std::sync::Arc;

use harness::{RedisHarness, on_runtime};
use wasmcron_tests::conformance::{self, World};

fn run<F: Future<Output = ()>>(case: impl FnOnce(World) -> F) {
    on_runtime(async {
        let harness = Arc::new(RedisHarness::start().await);
        case(World::new(harness).await).await;
    });
}

macro_rules! tests {
    ($($group:ident: [$($case:ident),* $(,)?]),* $(,)?) => {
        $(mod $group {
            $(
                #[test]
                fn $case() {
                    crate::run(crate::conformance::$group::$case);
                }
            )*
        })*
    };
}

wasmcron_tests::conformance_cases!(tests);
