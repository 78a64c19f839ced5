//! Who may publish.

use std::time::Duration;

use async_trait::async_trait;
use wasmcron_core::ids::{PodAddress, PodRef, Term};
use wasmcron_core::view::Leader;

use crate::error::Result;

/// A pod's claim to lead in a term; every write of a leader carries it and may be refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TermRef {
    /// The pod and session that won.
    pub pod: PodRef,
    /// The term it won.
    pub term: Term,
}

/// Answer to `campaign`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Campaign {
    /// The caller leads in this term until the lease runs out.
    Won(Term),
    /// Somebody else leads; worth trying again after `expires_in`.
    Held {
        /// The leading pod's address; another session of the caller's own address counts as anyone.
        by: PodAddress,
        /// Rest of its lease.
        expires_in: Duration,
    },
}

/// Answer to `renew`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// The lease runs for its full length again.
    Renewed,
    /// The caller leads no more and must stop publishing.
    Lost,
}

/// The leader's lease.
#[async_trait]
pub trait Leadership: Send + Sync {
    /// Takes the lease if it is free. A repeat by the session that holds it renews it and answers
    /// `Won` with the same term, since its first answer may have been lost. A new term is larger
    /// than every earlier one. An error is never leadership.
    async fn campaign(&self, me: &PodRef, ttl: Duration) -> Result<Campaign>;

    /// Sets the lease to its full length if the caller still holds it in this term.
    async fn renew(&self, me: &TermRef, ttl: Duration) -> Result<Renewal>;

    /// Frees the lease if the caller holds it in this term, and wakes the others.
    async fn resign(&self, me: &TermRef) -> Result<Renewal>;

    /// Who leads.
    async fn leader(&self) -> Result<Option<Leader>>;
}
