//! Whether this pod leads, as every loop of it sees the same way.

use std::sync::Arc;
use std::time::Duration;

use wasmcron_core::decide::elect::{self, Part};
use wasmcron_core::ids::PodRef;
use wasmcron_store::leadership::TermRef;

use super::machine::Machine;
use super::observed::{Observer, Source};

/// The elector's end: it alone says what part the pod plays.
#[derive(Debug)]
pub struct LeadSetter(Source<Part>);

/// What the other loops see. A term is only handed out while the lease lasts by this pod's clock;
/// the store refuses what is written with one that ended.
#[derive(Clone)]
pub struct Lead {
    me: PodRef,
    machine: Arc<dyn Machine>,
    part: Observer<Part>,
}

/// Both ends; the pod begins as a follower that campaigns at once.
#[must_use]
pub fn channel(me: PodRef, machine: Arc<dyn Machine>) -> (LeadSetter, Lead) {
    let source = Source::new(Part::Follower {
        campaign_at: Duration::ZERO,
    });
    let part = source.observe();
    (LeadSetter(source), Lead { me, machine, part })
}

impl LeadSetter {
    /// Says what part the pod plays from now on.
    pub fn set(&self, part: Part) {
        self.0.change_if(|known| {
            let changed = *known != part;
            *known = part;
            changed
        });
    }
}

impl Lead {
    /// The pod's claim, if it leads now.
    #[must_use]
    pub fn term(&self) -> Option<TermRef> {
        let term = elect::term(self.part.get(), self.machine.boot())?;
        Some(TermRef {
            pod: self.me.clone(),
            term,
        })
    }

    /// Waits until the pod leads.
    pub async fn wait(&mut self) -> TermRef {
        loop {
            if let Some(term) = self.term() {
                return term;
            }
            self.part.changed().await;
        }
    }

    /// Waits for the next change of the pod's part.
    pub async fn changed(&mut self) {
        self.part.changed().await;
    }
}
