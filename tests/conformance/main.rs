//! The conformance suite over Redis, a test for each case, and what only Redis can do wrong.

mod harness;

use std::future::Future;
use std::sync::Arc;

use harness::RedisHarness;
use wasmcron_tests::conformance::{self, World};

fn run<F: Future<Output = ()>>(case: impl FnOnce(World) -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
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
