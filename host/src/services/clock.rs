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

/// An estimate of the store's clock: the time since this machine booted, and the offset from that to
/// the store's clock, measured with the fastest of the recent answers. This machine's wall clock has
/// no part in it, so setting that changes nothing.
pub struct StoreClock {
    machine: Arc<dyn Machine>,
    /// The store's clock less the time since boot, in milliseconds.
    offset: AtomicI64,
    /// Round trip of the measurement in force, in milliseconds; grows so that it is replaced in time.
    quality: AtomicU64,
    measured: AtomicU64,
}

impl StoreClock {
    /// For a pod on this machine; the wall clock's time until it is measured.
    #[must_use]
    pub fn new(machine: Arc<dyn Machine>) -> Self {
        let offset = machine.wall().as_millis() - since_boot(&*machine);
        StoreClock {
            machine,
            offset: AtomicI64::new(offset),
            quality: AtomicU64::default(),
            measured: AtomicU64::default(),
        }
    }

    /// The store's time, as far as this pod knows.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        let offset = self.offset.load(Ordering::Relaxed);
        Timestamp::from_millis(since_boot(&*self.machine) + offset)
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
            let now_boot = i64::try_from(now).unwrap_or(i64::MAX);
            self.offset
                .store(store.as_millis() + half - now_boot, Ordering::Relaxed);
            self.quality.store(trip, Ordering::Relaxed);
            self.measured.store(now.max(1), Ordering::Relaxed);
        }
    }

    /// How far this machine's wall clock is behind the store's, in milliseconds; negative: ahead.
    /// Nothing is decided by it: people are shown it.
    #[must_use]
    pub fn wall_offset_millis(&self) -> i64 {
        self.now().as_millis() - self.machine.wall().as_millis()
    }

    /// How long to wait until the store's clock shows `at`; zero if it does, as far as this pod knows.
    /// The store may still say that it does not: whoever asks it in a loop waits a little between.
    #[must_use]
    pub fn until(&self, at: Timestamp) -> Duration {
        at.since(self.now())
    }
}

fn since_boot(machine: &dyn Machine) -> i64 {
    i64::try_from(boot_millis(machine)).unwrap_or(i64::MAX)
}

#[cfg(test)]
pub(crate) mod testing {
    use std::io;
    use std::sync::atomic::AtomicU64;

    use futures::future::BoxFuture;
    use tokio::task::JoinHandle;

    use super::super::machine::RealMachine;
    use super::*;

    /// A machine whose clocks a test sets, in milliseconds.
    #[derive(Default)]
    pub(crate) struct SetMachine {
        pub(crate) boot: AtomicU64,
        pub(crate) wall: AtomicI64,
    }

    impl Machine for SetMachine {
        fn boot(&self) -> Duration {
            Duration::from_millis(self.boot.load(Ordering::Relaxed))
        }

        fn wall(&self) -> Timestamp {
            Timestamp::from_millis(self.wall.load(Ordering::Relaxed))
        }

        fn random(&self) -> u64 {
            0
        }

        fn spawn(&self, task: BoxFuture<'static, ()>) -> JoinHandle<()> {
            RealMachine.spawn(task)
        }

        fn spawn_apart(
            &self,
            _: &'static str,
            task: BoxFuture<'static, ()>,
        ) -> io::Result<JoinHandle<()>> {
            Ok(RealMachine.spawn(task))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::SetMachine;
    use super::*;

    /// A clock on a machine that has been up for 100 s; its wall clock shows 5,000 s.
    fn clock() -> (Arc<SetMachine>, StoreClock) {
        let machine = Arc::new(SetMachine::default());
        machine.boot.store(100_000, Ordering::Relaxed);
        machine.wall.store(5_000_000, Ordering::Relaxed);
        (machine.clone(), StoreClock::new(machine))
    }

    fn ms(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn a_measurement_moves_the_clock_to_the_stores() {
        let (machine, clock) = clock();
        assert_eq!(clock.now(), ms(5_000_000));
        clock.measure(Duration::from_secs(90), ms(6_000_000));
        assert_eq!(clock.now(), ms(6_005_000), "half the trip went by since");
        machine.boot.fetch_add(7_000, Ordering::Relaxed);
        assert_eq!(clock.now(), ms(6_012_000));
        assert_eq!(
            clock.until(ms(6_013_000)),
            Duration::from_secs(1),
            "by the store's clock"
        );
    }

    #[test]
    fn a_slow_answer_does_not_replace_a_fast_one() {
        let (machine, clock) = clock();
        clock.measure(machine.boot(), ms(6_000_000));
        clock.measure(Duration::from_secs(60), ms(9_000_000));
        assert_eq!(clock.now(), ms(6_000_000));
    }

    #[test]
    fn a_wall_clock_that_is_set_moves_nothing_but_what_is_shown_of_it() {
        let (machine, clock) = clock();
        clock.measure(machine.boot(), ms(5_000_200));
        assert_eq!(clock.wall_offset_millis(), 200);
        machine.wall.fetch_add(3_600_000, Ordering::Relaxed);
        assert_eq!(clock.now(), ms(5_000_200));
        assert_eq!(clock.wall_offset_millis(), 200 - 3_600_000);
    }
}
