//! When a pod campaigns, renews, and must stop taking itself for the leader.
//!
//! Times here are the pod's own monotonic clock, as durations since any fixed moment: a lease is
//! believed from the moment the winning request was *sent*, so that a slow answer shortens it.

use std::time::Duration;

use crate::ids::Term;

/// The lengths that leadership goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElectPolicy {
    /// The lease.
    pub ttl: Duration,
    /// How often it is renewed.
    pub renew_every: Duration,
    /// Subtracted from the lease: the leader stops this long before others may begin.
    pub margin: Duration,
    /// Longest wait between campaigns.
    pub retry_max: Duration,
}

/// A pod's part in the election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Tries again at this time.
    Follower {
        /// When.
        campaign_at: Duration,
    },
    /// Leads in this term.
    Leader {
        /// The term.
        term: Term,
        /// Renews at this time.
        renew_at: Duration,
        /// Leads no longer than this without a renewal.
        until: Duration,
    },
}

/// What the store, or the lack of it, said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// `campaign` was won, or `renew` answered; `sent` is when the request left.
    Lease {
        /// When the request left.
        sent: Duration,
        /// The term.
        term: Term,
    },
    /// Somebody else leads for at most this long.
    Held {
        /// The rest of that lease.
        expires_in: Duration,
        /// A random wait of at most 250 ms, so that followers do not campaign together.
        spread: Duration,
    },
    /// The leader was told that it is none.
    Lost,
    /// No answer, or an error: never leadership, and not its end while the lease lasts.
    Error,
    /// Someone said that nobody leads.
    Free,
    /// Nothing but the time.
    Tick,
}

/// The next part of a pod after what it heard.
#[must_use]
pub fn elect(part: Part, heard: Heard, now: Duration, policy: &ElectPolicy) -> Part {
    let part = expire(part, now);
    match (part, heard) {
        (_, Heard::Lease { sent, term }) => {
            let until = (sent + policy.ttl).saturating_sub(policy.margin);
            let leader = Part::Leader {
                term,
                renew_at: sent + policy.renew_every,
                until,
            };
            expire(leader, now)
        }
        (Part::Leader { .. }, Heard::Lost) => Part::Follower { campaign_at: now },
        (Part::Leader { term, until, .. }, Heard::Error) => {
            // A failed renewal is repeated at a quarter of its interval while the lease lasts.
            Part::Leader {
                term,
                renew_at: now + policy.renew_every / 4,
                until,
            }
        }
        (Part::Follower { .. }, Heard::Held { expires_in, spread }) => Part::Follower {
            campaign_at: now + expires_in.min(policy.retry_max) + spread,
        },
        (Part::Follower { .. }, Heard::Error) => Part::Follower {
            campaign_at: now + policy.renew_every / 4,
        },
        (Part::Follower { .. }, Heard::Free | Heard::Lost) => Part::Follower { campaign_at: now },
        (part, Heard::Tick | Heard::Free | Heard::Held { .. }) => part,
    }
}

/// When something has to be done, if nothing is heard.
#[must_use]
pub fn wake_at(part: Part) -> Duration {
    match part {
        Part::Follower { campaign_at } => campaign_at,
        Part::Leader {
            renew_at, until, ..
        } => renew_at.min(until),
    }
}

/// The term in which the pod may act now.
#[must_use]
pub fn term(part: Part, now: Duration) -> Option<Term> {
    match expire(part, now) {
        Part::Leader { term, .. } => Some(term),
        Part::Follower { .. } => None,
    }
}

fn expire(part: Part, now: Duration) -> Part {
    match part {
        Part::Leader { until, .. } if now >= until => Part::Follower { campaign_at: now },
        part => part,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: ElectPolicy = ElectPolicy {
        ttl: Duration::from_secs(6),
        renew_every: Duration::from_secs(2),
        margin: Duration::from_millis(500),
        retry_max: Duration::from_secs(6),
    };

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn won(sent: u64) -> Part {
        let lease = Heard::Lease {
            sent: at(sent),
            term: Term(3),
        };
        elect(
            Part::Follower { campaign_at: at(0) },
            lease,
            at(sent),
            &POLICY,
        )
    }

    #[test]
    fn c28_an_error_is_never_leadership() {
        let follower = Part::Follower { campaign_at: at(0) };
        let after = elect(follower, Heard::Error, at(100), &POLICY);
        assert_eq!(
            (term(after, at(100)), after),
            (
                None,
                Part::Follower {
                    campaign_at: at(600)
                }
            )
        );
    }

    #[test]
    fn c32_one_failed_renewal_does_not_end_leadership() {
        let after = elect(won(0), Heard::Error, at(2_000), &POLICY);
        assert_eq!(term(after, at(2_000)), Some(Term(3)));
        assert_eq!(wake_at(after), at(2_500));
    }

    #[test]
    fn leadership_ends_by_the_pods_own_clock_before_the_lease_does() {
        assert_eq!(term(won(0), at(5_499)), Some(Term(3)));
        assert_eq!(term(won(0), at(5_500)), None);
    }

    #[test]
    fn an_answer_that_comes_too_late_is_no_lease() {
        let follower = Part::Follower { campaign_at: at(0) };
        let after = elect(
            follower,
            Heard::Lease {
                sent: at(0),
                term: Term(3),
            },
            at(7_000),
            &POLICY,
        );
        assert_eq!(term(after, at(7_000)), None);
    }

    #[test]
    fn followers_wait_for_the_lease_and_come_at_once_when_called() {
        let follower = Part::Follower { campaign_at: at(0) };
        let held = elect(
            follower,
            Heard::Held {
                expires_in: at(4_000),
                spread: at(200),
            },
            at(0),
            &POLICY,
        );
        assert_eq!(wake_at(held), at(4_200));
        assert_eq!(
            wake_at(elect(held, Heard::Free, at(1_000), &POLICY)),
            at(1_000)
        );
        assert_eq!(
            elect(won(0), Heard::Lost, at(1_000), &POLICY),
            Part::Follower {
                campaign_at: at(1_000)
            }
        );
    }
}
