//! Stores that are broken on purpose, each by one rule: what the simulation must notice.

use std::sync::Arc;

use wasmcron_store::Store;
use wasmcron_tests::memory_store::MemoryEngine;

/// A rule that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Mutant {
    /// None.
    None,
}

impl Mutant {
    /// Breaks a store.
    #[must_use]
    pub fn wrap(self, store: Arc<dyn Store>, _: Arc<MemoryEngine>, _: u64) -> Arc<dyn Store> {
        store
    }
}
