//! The store's clock: this machine's, except that it never steps back.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use wasmcron_core::time::{Timestamp, millis};

/// The clock of this machine, as the store asks for it; tests bring their own.
pub type WallClock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The real one.
#[must_use]
pub fn wall_clock() -> WallClock {
    Arc::new(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Timestamp::EPOCH + since.unwrap_or(Duration::ZERO)
    })
}

/// The latest time this process was told, and when that was.
struct Latest {
    told: Timestamp,
    at: Instant,
}

/// The clock that all connections of an engine share.
///
/// After the machine's clock was set back it goes on at half speed until the machine has caught up: a
/// clock that stood still would keep every lease of a dead pod alive, and one that went on at full
/// speed would never be right again.
pub(super) struct StoreClock {
    wall: WallClock,
    latest: Mutex<Latest>,
}

impl StoreClock {
    /// Over the machine's clock.
    pub(super) fn new(wall: WallClock) -> StoreClock {
        StoreClock {
            wall,
            latest: Mutex::new(Latest {
                told: Timestamp::EPOCH,
                at: Instant::now(),
            }),
        }
    }

    /// Now: never before `kept`, the time that stands in the file, nor before what was told already.
    pub(super) fn now(&self, kept: Timestamp) -> Timestamp {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let going_on = latest.told + latest.at.elapsed() / 2;
        let now = (self.wall)().max(kept).max(going_on);
        // Only a step starts the measurement anew, or frequent calls would stop the clock.
        if now > latest.told {
            *latest = Latest {
                told: now,
                at: Instant::now(),
            };
        }
        now
    }

    /// How far the store is ahead of this machine.
    pub(super) fn ahead(&self) -> Duration {
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        latest.told.since((self.wall)())
    }
}

impl fmt::Debug for StoreClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreClock({} ms ahead)", millis(self.ahead()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use super::*;

    fn clock_at(millis: i64) -> (StoreClock, Arc<AtomicI64>) {
        let wall = Arc::new(AtomicI64::new(millis));
        let read = wall.clone();
        let clock = StoreClock::new(Arc::new(move || {
            Timestamp::from_millis(read.load(Ordering::SeqCst))
        }));
        (clock, wall)
    }

    #[test]
    fn it_follows_the_machine() {
        let (clock, wall) = clock_at(5_000);
        assert_eq!(clock.now(Timestamp::EPOCH).as_millis(), 5_000);
        wall.store(900_000, Ordering::SeqCst);
        assert_eq!(clock.now(Timestamp::EPOCH).as_millis(), 900_000);
        assert_eq!(clock.ahead(), Duration::ZERO);
    }

    #[test]
    fn it_is_not_before_what_the_file_holds() {
        let (clock, _) = clock_at(5_000);
        assert_eq!(clock.now(Timestamp::from_millis(7_000)).as_millis(), 7_000);
    }

    #[test]
    fn set_back_it_goes_on_at_half_speed_however_often_it_is_asked() {
        let (clock, wall) = clock_at(3_600_000);
        let began = Instant::now();
        let first = clock.now(Timestamp::EPOCH);
        wall.store(0, Ordering::SeqCst);
        let mut last = first;
        while began.elapsed() < Duration::from_millis(60) {
            let now = clock.now(Timestamp::EPOCH);
            assert!(now >= last);
            last = now;
        }
        let went = last.since(first);
        assert!(went >= Duration::from_millis(20), "{went:?}");
        assert!(went <= began.elapsed() / 2, "{went:?}");
        assert!(clock.ahead() >= Duration::from_secs(3_600));
    }
}
