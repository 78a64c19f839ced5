//! Simulated time: tokio's paused clock, and what each machine's wall clock makes of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::time::Instant;
use wasmcron_core::time::Timestamp;

/// True time in a simulated world. Clones are the same clock.
#[derive(Clone, Debug)]
pub struct Clock {
    start: Instant,
    epoch: Timestamp,
}

impl Clock {
    /// Begins now, which shall be `epoch` on every wall.
    #[must_use]
    pub fn starting_at(epoch: Timestamp) -> Clock {
        Clock {
            start: Instant::now(),
            epoch,
        }
    }

    /// Time since the world began.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// The moment `after` the world's beginning; one far away for a time without end.
    #[must_use]
    pub fn at(&self, after: Duration) -> Instant {
        const FAR: Duration = Duration::from_secs(86_400 * 365);
        self.start + after.min(FAR)
    }

    /// The true time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.epoch + self.elapsed()
    }
}

/// Runs a world on a clock that only goes on when nothing is left to do.
///
/// # Errors
/// The world's own, or that there is no runtime for it.
pub fn on_paused_time<T>(world: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .context("cannot create a runtime")?;
    let outcome = runtime.block_on(world);
    // What still waits for ever goes with the runtime.
    runtime.shutdown_background();
    outcome
}

/// A wall clock that is wrong by so many milliseconds. Clones are the same clock.
#[derive(Clone, Debug)]
pub struct Wall {
    clock: Clock,
    off: Arc<AtomicI64>,
}

impl Wall {
    /// Wrong by `off` milliseconds.
    #[must_use]
    pub fn new(clock: Clock, off: i64) -> Wall {
        Wall {
            clock,
            off: Arc::new(AtomicI64::new(off)),
        }
    }

    /// What it shows.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        let off = self.off.load(Ordering::Relaxed);
        Timestamp::from_millis(self.clock.now().as_millis() + off)
    }

    /// Sets it forward or back by so many milliseconds.
    pub fn step(&self, by: i64) {
        self.off.fetch_add(by, Ordering::Relaxed);
    }
}
