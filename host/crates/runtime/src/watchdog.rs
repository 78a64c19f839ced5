//! What ends an attempt from outside. The same check runs in the epoch callback, which reaches a
//! guest that computes, and in a timer beside the call, which reaches one that waits in the host.

use std::time::{Duration, Instant};

use crate::control::{AttemptControl, StopReason, Why, boot_millis};
use crate::spec::Limits;

/// Why the host ends an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Halt {
    #[error("ended by the host: {0:?}")]
    Interrupted(Why),
    #[error("ended by the host: the lease ran out")]
    LeaseLost,
    #[error("ended by the host: the time limit of {0:?} is over")]
    TimedOut(Duration),
}

/// The deadlines of one attempt.
#[derive(Clone, Debug)]
pub(crate) struct Watchdog {
    control: AttemptControl,
    /// The limit and when it is over.
    deadline: Option<(Duration, Instant)>,
    /// When the guest is told that the time is nearly over.
    notice: Option<Instant>,
}

impl Watchdog {
    pub(crate) fn new(control: AttemptControl, limits: &Limits, started: Instant) -> Self {
        // A limit too large for the clock is none.
        let deadline = limits
            .time
            .and_then(|limit| Some((limit, started.checked_add(limit)?)));
        let notice = deadline.and_then(|(_, at)| at.checked_sub(limits.notice()));
        Self {
            control,
            deadline,
            notice,
        }
    }

    /// Why the attempt must end now, if it must. Tells the guest when the time is nearly over.
    pub(crate) fn check(&self) -> Option<Halt> {
        if let Some(why) = self.control.interrupted() {
            return Some(Halt::Interrupted(why));
        }
        if self.control.lease_expired() {
            return Some(Halt::LeaseLost);
        }
        if let Some((limit, at)) = self.deadline {
            let now = Instant::now();
            if now >= at {
                return Some(Halt::TimedOut(limit));
            }
            if self.notice.is_some_and(|notice| now >= notice) {
                self.control.stop(StopReason::TimeOutNear);
            }
        }
        None
    }

    /// Waits until the attempt must end.
    pub(crate) async fn wait(&self) -> Halt {
        loop {
            let changed = self.control.changed();
            tokio::pin!(changed);
            // Listen before looking, or a change between the two is missed.
            changed.as_mut().enable();
            if let Some(halt) = self.check() {
                return halt;
            }
            match self.next_look() {
                Some(wait) => {
                    let _ = tokio::time::timeout(wait, changed).await;
                }
                None => changed.await,
            }
        }
    }

    /// Time to the next deadline of any kind.
    fn next_look(&self) -> Option<Duration> {
        let now = Instant::now();
        let lease = match self.control.lease() {
            u64::MAX => None,
            until => Some(Duration::from_millis(until.saturating_sub(boot_millis()))),
        };
        let notice = self
            .notice
            .and_then(|at| at.checked_duration_since(now))
            .filter(|wait| !wait.is_zero());
        let end = self
            .deadline
            .map(|(_, at)| at.saturating_duration_since(now));
        [lease, notice, end].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(time: u64) -> Limits {
        Limits {
            time: Some(Duration::from_millis(time)),
            ..Limits::default()
        }
    }

    #[test]
    fn the_notice_comes_before_the_end() {
        let control = AttemptControl::new();
        let started = Instant::now()
            .checked_sub(Duration::from_millis(9950))
            .unwrap_or_else(Instant::now);
        let dog = Watchdog::new(control.clone(), &limits(10_000), started);
        assert_eq!(dog.check(), None);
        assert_eq!(control.stop_reason(), Some(StopReason::TimeOutNear));
    }

    #[tokio::test]
    async fn waiting_ends_by_whatever_comes_first() {
        let control = AttemptControl::new();
        let dog = Watchdog::new(control.clone(), &limits(20), Instant::now());
        assert_eq!(dog.wait().await, Halt::TimedOut(Duration::from_millis(20)));

        let dog = Watchdog::new(control.clone(), &limits(60_000), Instant::now());
        let waiting = tokio::spawn(async move { dog.wait().await });
        control.extend_lease(boot_millis() + 20);
        assert!(matches!(waiting.await, Ok(Halt::LeaseLost)));

        let control = AttemptControl::new();
        let dog = Watchdog::new(control.clone(), &limits(60_000), Instant::now());
        let waiting = tokio::spawn(async move { dog.wait().await });
        control.interrupt(Why::Shutdown);
        assert!(matches!(
            waiting.await,
            Ok(Halt::Interrupted(Why::Shutdown))
        ));
    }
}
