//! The memory limit of one attempt.
//!
//! Growth beyond the limit is refused the way WebAssembly knows it: `memory.grow` answers −1, and a
//! guest that copes with that goes on. Most cannot and abort, and the trap says nothing of memory;
//! so the refusal is remembered, and the report of a guest that breaks afterwards names the limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use wasmtime::ResourceLimiter;

/// Config key of the limit.
pub(crate) const MEMORY_KEY: &str = "limits.memory";

/// Core instances, memories and tables that one component may have; each costs the host memory
/// that the byte limit does not see.
const INSTANCES_MAX: usize = 1000;

/// Bytes that the host keeps on behalf of a guest. Shared by everything that keeps some.
#[derive(Clone, Debug, Default)]
pub(crate) struct Retained(Arc<AtomicU64>);

impl Retained {
    /// Counts `new` bytes in the place of `old` ones.
    pub(crate) fn replace(&self, old: usize, new: usize) {
        self.0.fetch_add(new as u64, Ordering::Relaxed);
        self.0.fetch_sub(old as u64, Ordering::Relaxed);
    }

    /// Bytes kept now.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Growth that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The limit, in bytes.
    pub(crate) limit: u64,
    /// What the guest would have had, in bytes.
    pub(crate) wanted: u64,
}

/// Sums all memories and tables of an attempt.
#[derive(Debug)]
pub(crate) struct MemoryLimiter {
    limit: u64,
    used: u64,
    peak: u64,
    retained: Retained,
    refused: Option<Refusal>,
}

impl MemoryLimiter {
    pub(crate) fn new(limit: u64, retained: Retained) -> Self {
        Self {
            limit,
            used: 0,
            peak: 0,
            retained,
            refused: None,
        }
    }

    /// The most that memories and tables held, in bytes.
    pub(crate) fn peak(&self) -> u64 {
        self.peak
    }

    /// The first growth that was refused.
    pub(crate) fn refusal(&self) -> Option<Refusal> {
        self.refused
    }

    fn grow(&mut self, current: u64, desired: u64) -> bool {
        let used = self.used.saturating_add(desired.saturating_sub(current));
        let wanted = used.saturating_add(self.retained.bytes());
        if wanted > self.limit {
            self.refused.get_or_insert(Refusal {
                limit: self.limit,
                wanted,
            });
            return false;
        }
        self.used = used;
        self.peak = self.peak.max(used);
        true
    }
}

impl ResourceLimiter for MemoryLimiter {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        // Growth beyond the memory's own maximum fails by itself and must not be counted.
        if maximum.is_some_and(|maximum| desired > maximum) {
            return Ok(false);
        }
        Ok(self.grow(current as u64, desired as u64))
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        if maximum.is_some_and(|maximum| desired > maximum) {
            return Ok(false);
        }
        let entry = size_of::<usize>() as u64;
        Ok(self.grow(current as u64 * entry, desired as u64 * entry))
    }

    fn instances(&self) -> usize {
        INSTANCES_MAX
    }

    fn tables(&self) -> usize {
        INSTANCES_MAX
    }

    fn memories(&self) -> usize {
        INSTANCES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memories_tables_and_what_the_host_keeps_count_together() {
        let retained = Retained::default();
        let mut limiter = MemoryLimiter::new(1000, retained.clone());
        assert!(limiter.memory_growing(0, 400, None).is_ok_and(|ok| ok));
        assert!(limiter.memory_growing(0, 400, None).is_ok_and(|ok| ok));
        assert!(limiter.table_growing(0, 10, None).is_ok_and(|ok| ok));
        assert_eq!(limiter.refusal(), None);
        retained.replace(0, 100);
        assert!(limiter.memory_growing(400, 440, None).is_ok_and(|ok| !ok));
        assert_eq!(
            limiter.refusal(),
            Some(Refusal {
                limit: 1000,
                wanted: 1020
            })
        );
        retained.replace(100, 0);
        assert!(limiter.memory_growing(400, 440, None).is_ok_and(|ok| ok));
        assert_eq!(limiter.peak(), 920);
    }

    #[test]
    fn growth_beyond_the_memorys_own_maximum_is_no_refusal_of_ours() {
        let mut limiter = MemoryLimiter::new(1000, Retained::default());
        assert!(
            limiter
                .memory_growing(0, 500, Some(400))
                .is_ok_and(|ok| !ok)
        );
        assert_eq!(limiter.refusal(), None);
    }
}
