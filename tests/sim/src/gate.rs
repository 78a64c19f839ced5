//! The gate through which every task of a pod is polled: shut, the pod stands still as after SIGSTOP;
//! gone, it is dead as after SIGKILL.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::future::BoxFuture;

/// One pod's gate.
#[derive(Debug, Default)]
pub struct Gate {
    shut: AtomicBool,
    dead: AtomicBool,
    waiting: Mutex<Vec<Waker>>,
    meter: Option<Meter>,
}

/// What a pod's tasks cost in CPU time.
#[derive(Debug, Default)]
pub struct Meter {
    nanos: AtomicU64,
}

impl Meter {
    /// CPU time so far.
    #[must_use]
    pub fn spent(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::Relaxed))
    }

    /// Takes off what somebody else did meanwhile.
    pub fn forgive(&self, nanos: u64) {
        self.nanos.fetch_sub(nanos, Ordering::Relaxed);
    }
}

impl Gate {
    /// An open gate.
    #[must_use]
    pub fn open(metered: bool) -> Arc<Gate> {
        Arc::new(Gate {
            meter: metered.then(Meter::default),
            ..Gate::default()
        })
    }

    /// The meter, if the gate has one.
    #[must_use]
    pub fn meter(&self) -> Option<&Meter> {
        self.meter.as_ref()
    }

    /// Stops all tasks where they are.
    pub fn shut(&self) {
        self.shut.store(true, Ordering::Relaxed);
    }

    /// Lets them go on.
    pub fn reopen(&self) {
        self.shut.store(false, Ordering::Relaxed);
        self.wake();
    }

    /// Ends all tasks without another word.
    pub fn kill(&self) {
        self.dead.store(true, Ordering::Relaxed);
        self.shut.store(false, Ordering::Relaxed);
        self.wake();
    }

    /// Whether the pod is dead.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    fn wake(&self) {
        let waiting =
            std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        for waker in waiting {
            waker.wake();
        }
    }
}

/// A task of a pod.
pub struct Gated {
    gate: Arc<Gate>,
    task: Option<BoxFuture<'static, ()>>,
}

impl Gated {
    /// Behind a gate.
    #[must_use]
    pub fn new(gate: Arc<Gate>, task: BoxFuture<'static, ()>) -> Gated {
        Gated {
            gate,
            task: Some(task),
        }
    }
}

impl Future for Gated {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let gate = self.gate.clone();
        if gate.is_dead() {
            self.task = None;
            return Poll::Ready(());
        }
        if gate.shut.load(Ordering::Relaxed) {
            gate.waiting
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(context.waker().clone());
            return Poll::Pending;
        }
        let Some(task) = &mut self.task else {
            return Poll::Ready(());
        };
        match gate.meter() {
            None => task.as_mut().poll(context),
            Some(meter) => {
                let began = cpu_nanos();
                let polled = task.as_mut().poll(context);
                let spent = cpu_nanos().saturating_sub(began);
                meter.nanos.fetch_add(spent, Ordering::Relaxed);
                polled
            }
        }
    }
}

/// CPU time of this thread, in nanoseconds.
#[must_use]
pub fn cpu_nanos() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let (seconds, nanos) = (time.tv_sec, time.tv_nsec);
    u64::try_from(seconds).unwrap_or(0) * 1_000_000_000 + u64::try_from(nanos).unwrap_or(0)
}
