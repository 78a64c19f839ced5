//! How pods are timed.

use std::time::Duration;

use crate::history::Bounds;

/// The settings that decide how soon others take over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Timing {
    /// Lease 1.5 s, lock 2 s, heartbeat 0.3 s, window 1.2 s, scan 0.2 s: the ratios of the defaults.
    Fast,
    /// As shipped.
    Defaults,
}

impl Timing {
    /// The lines of a pod's settings that say so, all of them top-level keys.
    #[must_use]
    pub fn settings(self) -> &'static str {
        match self {
            Timing::Defaults => "",
            Timing::Fast => {
                "store_timeout = \"300ms\"\n\
                 leader.ttl = \"1500ms\"\nleader.renewal = \"300ms\"\n\
                 subscribers.heartbeat = \"300ms\"\nsubscribers.window = \"1200ms\"\n\
                 lock.ttl = \"2s\"\nlock.renewal = \"300ms\"\nlock.margin = \"300ms\"\n\
                 recovery.scan = \"200ms\"\nrecovery.session_grace = \"500ms\"\n"
            }
        }
    }

    /// `store_timeout`: how long one answer of the store is waited for.
    #[must_use]
    pub fn answer(self) -> Duration {
        match self {
            Timing::Fast => Duration::from_millis(300),
            Timing::Defaults => Duration::from_secs(1),
        }
    }

    /// `lock.ttl`.
    #[must_use]
    pub fn lock_ttl(self) -> Duration {
        match self {
            Timing::Fast => Duration::from_secs(2),
            Timing::Defaults => Duration::from_secs(10),
        }
    }

    /// `subscribers.window`.
    #[must_use]
    pub fn window(self) -> Duration {
        match self {
            Timing::Fast => Duration::from_millis(1200),
            Timing::Defaults => Duration::from_secs(8),
        }
    }

    /// What the checker of a history allows on a machine that does other things as well.
    #[must_use]
    pub fn bounds(self) -> Bounds {
        let (scan, margin) = match self {
            Timing::Fast => (200, 300),
            Timing::Defaults => (1000, 1500),
        };
        Bounds {
            lock_ttl: self.lock_ttl(),
            scan: Duration::from_millis(scan),
            margin: Duration::from_millis(margin),
            answer: self.answer(),
            slack: Duration::from_secs(3),
        }
    }
}
