//! The epoch ticker: a plain OS thread, so that no amount of guest work can delay it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::Duration;

use wasmtime::Engine;

/// Ticks without an attempt before the thread parks. Short attempts that follow each other
/// closely then cost no wake-up.
const IDLE_TICKS: u32 = 100;

/// Advances the engine's epoch while attempts run, and sleeps while none does.
#[derive(Debug)]
pub(crate) struct Ticker {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Attempts that run now.
    active: AtomicUsize,
    /// The thread parks, or is about to.
    parked: AtomicBool,
    closing: AtomicBool,
    thread: OnceLock<Thread>,
}

/// Keeps the ticker awake while it lives.
#[derive(Debug)]
pub(crate) struct Ticking(Arc<Shared>);

impl Ticker {
    /// Starts the thread.
    pub(crate) fn start(engine: &Engine, tick: Duration) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            active: AtomicUsize::new(0),
            parked: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            thread: OnceLock::new(),
        });
        let (engine, inner) = (engine.clone(), shared.clone());
        let handle = std::thread::Builder::new()
            .name("epoch".to_owned())
            .stack_size(64 << 10)
            .spawn(move || run(&engine, &inner, tick))?;
        // Set before any attempt can start: `hold` needs it.
        let _ = shared.thread.set(handle.thread().clone());
        Ok(Self { shared })
    }

    /// Ticks until the guard is dropped.
    pub(crate) fn hold(&self) -> Ticking {
        self.shared.active.fetch_add(1, Ordering::SeqCst);
        if self.shared.parked.load(Ordering::SeqCst)
            && let Some(thread) = self.shared.thread.get()
        {
            thread.unpark();
        }
        Ticking(self.shared.clone())
    }

    /// Whether the thread sleeps.
    #[cfg(test)]
    pub(crate) fn is_parked(&self) -> bool {
        self.shared.parked.load(Ordering::SeqCst)
    }
}

impl Drop for Ticking {
    fn drop(&mut self) {
        self.0.active.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::SeqCst);
        if let Some(thread) = self.shared.thread.get() {
            thread.unpark();
        }
    }
}

fn run(engine: &Engine, shared: &Shared, tick: Duration) {
    let mut idle = 0;
    while !shared.closing.load(Ordering::SeqCst) {
        if shared.active.load(Ordering::SeqCst) > 0 {
            idle = 0;
        } else {
            idle += 1;
        }
        if idle > IDLE_TICKS {
            // Announce first, look second: an attempt that starts between the two either sees the
            // announcement and unparks, or is seen here.
            shared.parked.store(true, Ordering::SeqCst);
            while shared.active.load(Ordering::SeqCst) == 0
                && !shared.closing.load(Ordering::SeqCst)
            {
                std::thread::park();
            }
            shared.parked.store(false, Ordering::SeqCst);
            idle = 0;
        }
        std::thread::sleep(tick);
        engine.increment_epoch();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_parks_while_idle_and_wakes_for_an_attempt() {
        let engine = Engine::default();
        let ticker =
            Ticker::start(&engine, Duration::from_micros(100)).unwrap_or_else(|e| panic!("{e}"));
        for _ in 0..3 {
            while !ticker.is_parked() {
                std::thread::yield_now();
            }
            let ticking = ticker.hold();
            while ticker.is_parked() {
                std::thread::yield_now();
            }
            drop(ticking);
        }
    }
}
