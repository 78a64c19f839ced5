//! The caller's hold on a running attempt: ask it to stop, end it, keep its lease alive.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use tokio::sync::Notify;

/// Why a guest is asked to stop, as `control.should-stop` reports it.
///
/// A more urgent reason replaces a milder one, never the other way round; the order here is the
/// order of urgency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum StopReason {
    /// A newer version of the plugin is ready and the job hands over.
    Reload = 1,
    /// The pod shuts down.
    Draining = 2,
    /// The attempt's time is nearly over.
    TimeOutNear = 3,
    /// Somebody cancelled the run.
    Cancelled = 4,
    /// Another attempt may own the run.
    LockLost = 5,
}

/// Why an attempt is ended without waiting for it.
///
/// The first reason given stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Why {
    /// It was cancelled and did not end within the grace.
    Cancelled = 1,
    /// The job's lock belongs to somebody else: nothing it does counts, so nothing is saved.
    LockLost = 2,
    /// The pod's drain is over.
    Shutdown = 3,
    /// It was asked to hand over to a newer plugin and did not within the grace.
    Reload = 4,
}

/// Shared handle of one attempt. Clones are the same attempt; all methods may be called from any
/// thread, before the attempt starts and after it ended, and take effect at most once.
#[derive(Clone, Debug)]
pub struct AttemptControl {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// 0, or a [`StopReason`].
    stop: AtomicU8,
    /// 0, or a [`Why`].
    interrupt: AtomicU8,
    /// Boot-clock milliseconds after which the attempt has no right to effects.
    lease: AtomicU64,
    /// Wakes whoever waits for a change of any of the three.
    changed: Notify,
}

impl Default for AttemptControl {
    fn default() -> Self {
        Self::new()
    }
}

impl AttemptControl {
    /// A handle without a lease deadline: effects are allowed until [`Self::extend_lease`] sets one.
    #[must_use]
    pub fn new() -> Self {
        Self::with_lease(u64::MAX)
    }

    /// A handle whose lease ends at `until`, in milliseconds of [`boot_millis`].
    #[must_use]
    pub fn with_lease(until: u64) -> Self {
        Self {
            shared: Arc::new(Shared {
                stop: AtomicU8::new(0),
                interrupt: AtomicU8::new(0),
                lease: AtomicU64::new(until),
                changed: Notify::new(),
            }),
        }
    }

    /// Asks the guest to stop. It decides when, until [`Self::interrupt`] or a limit ends it.
    pub fn stop(&self, reason: StopReason) {
        if self.shared.stop.fetch_max(reason as u8, Ordering::AcqRel) < reason as u8 {
            self.shared.changed.notify_waiters();
        }
    }

    /// The reason to stop, if there is one.
    #[must_use]
    pub fn stop_reason(&self) -> Option<StopReason> {
        match self.shared.stop.load(Ordering::Acquire) {
            1 => Some(StopReason::Reload),
            2 => Some(StopReason::Draining),
            3 => Some(StopReason::TimeOutNear),
            4 => Some(StopReason::Cancelled),
            5 => Some(StopReason::LockLost),
            _ => None,
        }
    }

    /// Ends the attempt at once, whether it computes or waits in a host call.
    pub fn interrupt(&self, why: Why) {
        let first = self.shared.interrupt.compare_exchange(
            0,
            why as u8,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        if first.is_ok() {
            self.shared.changed.notify_waiters();
        }
    }

    /// Why the attempt was ended, if it was.
    #[must_use]
    pub fn interrupted(&self) -> Option<Why> {
        match self.shared.interrupt.load(Ordering::Acquire) {
            1 => Some(Why::Cancelled),
            2 => Some(Why::LockLost),
            3 => Some(Why::Shutdown),
            4 => Some(Why::Reload),
            _ => None,
        }
    }

    /// Moves the lease deadline to `until` (milliseconds of [`boot_millis`]). Only forwards: an
    /// answer that arrives late never shortens what a newer one gave. A deadline that has passed is
    /// not revived for an attempt that already ended by it.
    pub fn extend_lease(&self, until: u64) {
        let before = self
            .shared
            .lease
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |now| {
                (now == u64::MAX || until > now).then_some(until)
            });
        // Whoever waits looks again when the old deadline comes; only without one must it be woken.
        if before == Ok(u64::MAX) {
            self.shared.changed.notify_waiters();
        }
    }

    /// The lease deadline in milliseconds of [`boot_millis`]; `u64::MAX` for none.
    #[must_use]
    pub fn lease(&self) -> u64 {
        self.shared.lease.load(Ordering::Acquire)
    }

    /// Whether the lease deadline has passed by the clock that runs on while the machine sleeps.
    #[must_use]
    pub fn lease_expired(&self) -> bool {
        self.lease_expired_at(boot_millis())
    }

    /// Whether the lease deadline has passed when the clock that leases are counted by shows `now`,
    /// in milliseconds.
    #[must_use]
    pub fn lease_expired_at(&self, now: u64) -> bool {
        let lease = self.lease();
        lease != u64::MAX && now >= lease
    }

    /// Waits for the next request to stop or interruption, or for the first lease deadline, after
    /// this future was first polled or [enabled](tokio::sync::futures::Notified::enable). A deadline
    /// that moves wakes nobody: whoever waits for one looks again when it comes.
    pub fn changed(&self) -> tokio::sync::futures::Notified<'_> {
        self.shared.changed.notified()
    }
}

/// Milliseconds of `CLOCK_BOOTTIME`: monotonic, the same for every thread of this pod, and running
/// on while the machine is suspended. Only differences and deadlines of the same pod mean anything.
#[must_use]
#[allow(unsafe_code)]
pub fn boot_millis() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is a valid timespec that outlives the call. CLOCK_BOOTTIME exists on every
    // kernel that wasmtime runs on, so the call cannot fail; were it to, `now` would stay 0.
    unsafe {
        libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut now);
    }
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let millis = u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000_000;
    seconds * 1000 + millis
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_more_urgent_reason_replaces_a_milder_one_only() {
        let control = AttemptControl::new();
        assert_eq!(control.stop_reason(), None);
        control.stop(StopReason::Draining);
        control.stop(StopReason::Reload);
        assert_eq!(control.stop_reason(), Some(StopReason::Draining));
        control.stop(StopReason::LockLost);
        assert_eq!(control.stop_reason(), Some(StopReason::LockLost));
    }

    #[test]
    fn the_first_interrupt_stays() {
        let control = AttemptControl::new();
        control.interrupt(Why::Shutdown);
        control.interrupt(Why::LockLost);
        assert_eq!(control.interrupted(), Some(Why::Shutdown));
    }

    #[test]
    fn a_lease_only_moves_forwards() {
        let control = AttemptControl::new();
        assert!(!control.lease_expired());
        let now = boot_millis();
        control.extend_lease(now + 60_000);
        assert_eq!(control.lease(), now + 60_000);
        control.extend_lease(now + 10);
        assert_eq!(control.lease(), now + 60_000);
        let expired = AttemptControl::with_lease(now.saturating_sub(1));
        assert!(expired.lease_expired());
    }

    #[test]
    fn a_lease_ends_by_the_clock_that_is_asked() {
        let control = AttemptControl::with_lease(1_000);
        assert!(!control.lease_expired_at(999) && control.lease_expired_at(1_000));
        assert!(!AttemptControl::new().lease_expired_at(u64::MAX));
    }
}
