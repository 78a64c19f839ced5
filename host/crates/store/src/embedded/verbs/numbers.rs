//! Counters that give no number twice.

use wasmcron_core::ids::{Delivery, Fence};

use super::Call;
use crate::embedded::engine::{Key, Tx};
use crate::embedded::records::Counter;
use crate::error::Result;

impl<T: Tx> Call<'_, T> {
    /// The next number: larger than every earlier one, and at least the store's clock, so that it is
    /// new even where a copy of the store lost the last ones.
    fn next_number(&mut self, name: &str) -> Result<u64> {
        let key = Key::named(name);
        let last = self.good::<Counter>(&key)?.map_or(0, |counter| counter.0);
        let now = u64::try_from(self.now.as_millis()).unwrap_or(0);
        let next = last.saturating_add(1).max(now);
        self.tx.put(key, Counter(next))?;
        Ok(next)
    }

    pub(super) fn next_fence(&mut self) -> Result<Fence> {
        self.next_number("fence").map(Fence)
    }

    pub(super) fn next_delivery(&mut self) -> Result<Delivery> {
        self.next_number("delivery").map(Delivery)
    }
}
