//! Who leads.

use wasmcron_store::embedded::engine::{Found, Key, Range, Tx as _};
use wasmcron_store::embedded::records;

use super::Under;
use crate::layer::Layer;
use crate::verbs::words::*;

impl Under {
    fn held(&self) -> Option<Arc<records::Leadership>> {
        self.get::<records::Leadership>(&Key::named(""))
    }
}

/// See [`super::Mutant::AddressLeads`].
pub struct AddressLeads(pub Under);

impl AddressLeads {
    /// The term as the process that holds it would show it.
    fn rightful(&self, term: &TermRef) -> TermRef {
        let held = self
            .0
            .held()
            .filter(|held| held.term == term.term && held.holder.address == term.pod.address);
        TermRef {
            pod: held.map_or_else(|| term.pod.clone(), |held| held.holder.clone()),
            term: term.term,
        }
    }
}

#[async_trait]
impl Layer for AddressLeads {
    fn inner(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    async fn campaign(&self, me: &PodRef, ttl: Duration) -> Result<Campaign> {
        if let Some(held) = self
            .0
            .held()
            .filter(|held| held.holder.address == me.address)
        {
            let mut held = records::Leadership::clone(&held);
            held.holder = me.clone();
            self.0.set(&Key::named(""), Some(held))?;
        }
        self.0.store.campaign(me, ttl).await
    }

    async fn renew(&self, me: &TermRef, ttl: Duration) -> Result<Renewal> {
        self.0.store.renew(&self.rightful(me), ttl).await
    }

    async fn publish(&self, term: &TermRef, decisions: &[Decision]) -> Result<PublishAnswer> {
        self.0.store.publish(&self.rightful(term), decisions).await
    }
}

/// See [`super::Mutant::CampaignHeld`].
pub struct CampaignHeld(pub Under);

#[async_trait]
impl Layer for CampaignHeld {
    fn inner(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    async fn campaign(&self, me: &PodRef, ttl: Duration) -> Result<Campaign> {
        match self.0.store.leader().await? {
            Some(leader) if leader.pod == *me => Ok(Campaign::Held {
                by: leader.pod.address,
                expires_in: leader.expires_in,
            }),
            _ => self.0.store.campaign(me, ttl).await,
        }
    }
}

/// See [`super::Mutant::UnledPublish`].
pub struct UnledPublish(pub Under);

#[async_trait]
impl Layer for UnledPublish {
    fn inner(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    async fn publish(&self, term: &TermRef, decisions: &[Decision]) -> Result<PublishAnswer> {
        let leading = self.0.store.leader().await?;
        let term = leading.map_or_else(
            || term.clone(),
            |leader| TermRef {
                pod: leader.pod,
                term: leader.term,
            },
        );
        self.0.store.publish(&term, decisions).await
    }
}

/// See [`super::Mutant::FiringsForgotten`].
pub struct FiringsForgotten(pub Under);

impl FiringsForgotten {
    /// Makes each job's latest firing undone, if its run has ended.
    fn forget(&self) -> Result<()> {
        self.0.engine.edit(|tx| {
            for (key, found) in tx.scan::<records::Cursor>(&Range::all(""), 1_000)? {
                let Found::Good(cursor) = found else { continue };
                let Ok(job) = key.name.parse() else { continue };
                let run = of_nominal(&job, cursor.0);
                let row = tx.get::<records::RunRow>(&run)?;
                if row.is_some_and(|row| row.ended_at.is_some()) {
                    tx.remove::<records::RunRow>(&run)?;
                    tx.put(key, records::Cursor(cursor.0 - Duration::from_millis(1)))?;
                }
            }
            Ok(())
        })
    }
}

fn of_nominal(job: &JobName, at: Timestamp) -> Key {
    super::of_run(&RunId::nominal(job, at))
}

#[async_trait]
impl Layer for FiringsForgotten {
    fn inner(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    async fn campaign(&self, me: &PodRef, ttl: Duration) -> Result<Campaign> {
        let before = self.0.store.leader().await?.map(|leader| leader.term);
        let answer = self.0.store.campaign(me, ttl).await?;
        if matches!(answer, Campaign::Won(term) if before != Some(term)) {
            self.forget()?;
        }
        Ok(answer)
    }
}
