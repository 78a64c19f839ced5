//! The store's clock as this pod knows it, and the clock that leases are counted by.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use wasmcron_core::time::Timestamp;
use wasmcron_runtime::boot_millis;

/// Time since the machine booted, suspended time included. What a pod's own deadlines count.
#[must_use]
pub fn boot() -> Duration {
    Duration::from_millis(boot_millis())
}

/// This machine's wall clock.
fn local_millis() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// An estimate of the store's clock: this machine's wall clock, corrected by the offset measured with
/// the fastest of the recent answers.
#[derive(Debug, Default)]
pub struct StoreClock {
    offset: AtomicI64,
    /// Round trip of the measurement in force, in milliseconds; grows so that it is replaced in time.
    quality: AtomicU64,
    measured: AtomicU64,
}

impl StoreClock {
    /// The store's time, as far as this pod knows.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        Timestamp::from_millis(local_millis() + self.offset.load(Ordering::Relaxed))
    }

    /// Takes an answer that carried the store's time; `sent` is [`boot`] when the request left.
    pub fn measure(&self, sent: Duration, store: Timestamp) {
        let now = boot();
        let trip = u64::try_from(now.saturating_sub(sent).as_millis()).unwrap_or(u64::MAX);
        // An estimate ages by a millisecond each second, since clocks drift and are set.
        let age =
            u64::try_from(now.as_millis()).unwrap_or(0) - self.measured.load(Ordering::Relaxed);
        let aged = self
            .quality
            .load(Ordering::Relaxed)
            .saturating_add(age / 1_000);
        let first = self.measured.load(Ordering::Relaxed) == 0;
        if first || trip <= aged {
            let half = i64::try_from(trip / 2).unwrap_or(0);
            self.offset
                .store(store.as_millis() + half - local_millis(), Ordering::Relaxed);
            self.quality.store(trip, Ordering::Relaxed);
            self.measured.store(
                u64::try_from(now.as_millis()).unwrap_or(0).max(1),
                Ordering::Relaxed,
            );
        }
    }

    /// How far this machine's clock is behind the store's, in milliseconds; negative: ahead.
    #[must_use]
    pub fn offset_millis(&self) -> i64 {
        self.offset.load(Ordering::Relaxed)
    }

    /// How long to wait until the store's clock shows `at`; zero if it does.
    #[must_use]
    pub fn until(&self, at: Timestamp) -> Duration {
        at.since(self.now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measurement_moves_the_clock_to_the_stores() {
        let clock = StoreClock::default();
        let ahead = clock.now() + Duration::from_secs(300);
        clock.measure(boot(), ahead);
        assert!(clock.now() >= ahead && clock.now().since(ahead) < Duration::from_secs(60));
    }

    #[test]
    fn a_slow_answer_does_not_replace_a_fast_one() {
        let clock = StoreClock::default();
        clock.measure(boot(), clock.now());
        let before = clock.offset_millis();
        clock.measure(
            boot().saturating_sub(Duration::from_secs(40)),
            clock.now() + Duration::from_secs(9),
        );
        assert_eq!(clock.offset_millis(), before);
    }
}
