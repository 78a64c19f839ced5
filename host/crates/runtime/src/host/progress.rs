//! `wasmcron:job/progress`.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::lock;
use crate::attempt_host::{AttemptHost, Progress};
use crate::bindings::wasmcron::job::progress;
use crate::sandbox::Sandbox;
use crate::text;

/// Longest message, in bytes.
const MESSAGE_MAX: usize = 256;

/// Hands the newest report on, not more often than the interval.
pub(crate) struct ProgressDesk {
    host: Arc<dyn AttemptHost>,
    interval: Duration,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    newest: Option<Progress>,
    last: Option<Instant>,
    /// A task will hand the newest one on.
    timer: bool,
    closed: bool,
}

impl ProgressDesk {
    pub(crate) fn new(host: Arc<dyn AttemptHost>, interval: Duration) -> Arc<Self> {
        Arc::new(Self {
            host,
            interval,
            held: Mutex::default(),
        })
    }

    fn report(self: &Arc<Self>, progress: Progress) {
        let mut held = lock(&self.held);
        held.newest = Some(progress);
        if held.timer {
            return;
        }
        let wait = held.last.map_or(Duration::ZERO, |last| {
            self.interval.saturating_sub(last.elapsed())
        });
        if wait.is_zero() {
            self.hand_on(&mut held);
            return;
        }
        held.timer = true;
        let desk = Arc::downgrade(self);
        tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            if let Some(desk) = desk.upgrade() {
                let mut held = lock(&desk.held);
                held.timer = false;
                if !held.closed {
                    desk.hand_on(&mut held);
                }
            }
        });
    }

    fn hand_on(&self, held: &mut Held) {
        if let Some(progress) = held.newest.take() {
            held.last = Some(Instant::now());
            self.host.progress(progress);
        }
    }

    /// Hands the last report on; later ones are dropped.
    pub(crate) fn finish(&self) {
        let mut held = lock(&self.held);
        held.closed = true;
        self.hand_on(&mut held);
    }
}

impl progress::Host for Sandbox {
    fn report(&mut self, done: f64, total: Option<f64>, message: String) -> wasmtime::Result<()> {
        if done.is_finite() && total.is_none_or(f64::is_finite) {
            self.progress.report(Progress {
                done,
                total,
                message: text::one_line(&message, MESSAGE_MAX).0,
            });
        }
        Ok(())
    }
}
