//! The store's clock as this pod knows it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use wasmcron_core::time::Timestamp;

use super::machine::Machine;

/// [`Machine::boot`] in milliseconds.
#[must_use]
pub fn boot_millis(machine: &dyn Machine) -> u64 {
    u64::try_from(machine.boot().as_millis()).unwrap_or(u64::MAX)
}

/// An estimate of the store's clock: this machine's wall clock, corrected by the offset measured with
/// the fastest of the recent answers.
pub struct StoreClock {
    machine: Arc<dyn Machine>,
    offset: AtomicI64,
    /// Round trip of the measurement in force, in milliseconds; grows so that it is replaced in time.
    quality: AtomicU64,
    measured: AtomicU64,
}

impl StoreClock {
    /// For a pod on this machine; the wall clock's time until it is measured.
    #[must_use]
    pub fn new(machine: Arc<dyn Machine>) -> Self {
        StoreClock {
            machine,
            offset: AtomicI64::default(),
            quality: AtomicU64::default(),
            measured: AtomicU64::default(),
        }
    }

    /// The store's time, as far as this pod knows.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        let local = self.machine.wall().as_millis();
        Timestamp::from_millis(local + self.offset.load(Ordering::Relaxed))
    }

    /// Takes an answer that carried the store's time; `sent` is [`Machine::boot`] when the request left.
    pub fn measure(&self, sent: Duration, store: Timestamp) {
        let now = self.machine.boot();
        let trip = u64::try_from(now.saturating_sub(sent).as_millis()).unwrap_or(u64::MAX);
        let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let measured = self.measured.load(Ordering::Relaxed);
        // An estimate ages by a millisecond each second, since clocks drift and are set.
        let aged = self
            .quality
            .load(Ordering::Relaxed)
            .saturating_add(now.saturating_sub(measured) / 1_000);
        let first = measured == 0;
        if first || trip <= aged {
            let half = i64::try_from(trip / 2).unwrap_or(0);
            self.offset.store(
                store.as_millis() + half - self.machine.wall().as_millis(),
                Ordering::Relaxed,
            );
            self.quality.store(trip, Ordering::Relaxed);
            self.measured.store(now.max(1), Ordering::Relaxed);
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
    use super::super::machine::RealMachine;
    use super::*;

    fn clock() -> StoreClock {
        StoreClock::new(Arc::new(RealMachine))
    }

    #[test]
    fn a_measurement_moves_the_clock_to_the_stores() {
        let clock = clock();
        let ahead = clock.now() + Duration::from_secs(300);
        clock.measure(RealMachine.boot(), ahead);
        assert!(clock.now() >= ahead && clock.now().since(ahead) < Duration::from_secs(60));
    }

    #[test]
    fn a_slow_answer_does_not_replace_a_fast_one() {
        let clock = clock();
        clock.measure(RealMachine.boot(), clock.now());
        let before = clock.offset_millis();
        clock.measure(
            RealMachine.boot().saturating_sub(Duration::from_secs(40)),
            clock.now() + Duration::from_secs(9),
        );
        assert_eq!(clock.offset_millis(), before);
    }
}
