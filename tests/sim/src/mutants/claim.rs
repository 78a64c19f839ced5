//! Taking and claiming.

use wasmcron_core::task::Reason;
use wasmcron_store::embedded::records::{Active, Claiming, Lock, Running, Scheduled};

use super::{Under, entry, of_job, of_run};
use crate::layer::Layer;
use crate::verbs::words::*;

/// See [`super::Mutant::PopWithoutMove`].
pub struct PopWithoutMove(pub Under);

struct Popping {
    pod: PodAddress,
    engine: Arc<wasmcron_tests::memory_store::MemoryEngine>,
    inner: Box<dyn Consumer>,
}

#[async_trait]
impl Consumer for Popping {
    async fn take(&mut self, wait: Duration, max: usize) -> Result<Vec<Taken>> {
        use wasmcron_store::embedded::engine::Tx as _;
        let taken = self.inner.take(wait, max).await?;
        self.engine.edit(|tx| {
            for one in &taken {
                tx.remove::<Claiming>(&entry(self.pod.as_str(), one.delivery, &one.run))?;
            }
            Ok(())
        })?;
        Ok(taken)
    }
}

#[async_trait]
impl Layer for PopWithoutMove {
    fn inner(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    fn consumer(&self, me: &PodRef) -> Box<dyn Consumer> {
        Box::new(Popping {
            pod: me.address.clone(),
            engine: self.0.engine.clone(),
            inner: self.0.store.consumer(me),
        })
    }
}

/// See [`super::Mutant::ClaimingNotRead`].
pub struct ClaimingNotRead(pub Under);

#[async_trait]
impl Layer for ClaimingNotRead {
    fn inner(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    async fn claiming(&self, _: &PodRef) -> Result<Vec<Taken>> {
        Ok(Vec::new())
    }
}

impl Under {
    /// Whether a claim comes again.
    fn is_repeat(&self, claim: &Claim) -> bool {
        let running = self.get::<Running>(&of_run(&claim.taken.run));
        running.is_some_and(|running| running.token == claim.token)
    }
}

/// See [`super::Mutant::ClaimOnce`].
pub struct ClaimOnce(pub Under);

#[async_trait]
impl Layer for ClaimOnce {
    fn inner(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    async fn claim(&self, claim: &Claim) -> Result<Claimed> {
        if self.0.is_repeat(claim) {
            return Ok(Claimed::Stale);
        }
        self.0.store.claim(claim).await
    }
}

/// See [`super::Mutant::RepeatKeepsLock`].
pub struct RepeatKeepsLock(pub Under);

#[async_trait]
impl Layer for RepeatKeepsLock {
    fn inner(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    async fn claim(&self, claim: &Claim) -> Result<Claimed> {
        let repeat = self.0.is_repeat(claim);
        let key = of_job(&claim.taken.run);
        let lock = self.0.get::<Lock>(&key);
        let answer = self.0.store.claim(claim).await?;
        if repeat {
            self.0.set(&key, lock.map(|lock| Lock::clone(&lock)))?;
        }
        Ok(answer)
    }
}

/// See [`super::Mutant::ParkNowhere`].
pub struct ParkNowhere(pub Under);

#[async_trait]
impl Layer for ParkNowhere {
    fn inner(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    async fn park(&self, me: &PodRef, taken: &Taken, _: u32) -> Result<Parked> {
        let taken = entry(me.address.as_str(), taken.delivery, &taken.run);
        self.0.set::<Claiming>(&taken, None)?;
        Ok(Parked::Parked)
    }
}

/// See [`super::Mutant::CopiesLive`].
pub struct CopiesLive(pub Under);

#[async_trait]
impl Layer for CopiesLive {
    fn inner(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    async fn claim(&self, claim: &Claim) -> Result<Claimed> {
        let key = of_run(&claim.taken.run);
        let Some(there) = self.0.get::<Scheduled>(&key) else {
            return self.0.store.claim(claim).await;
        };
        let mut copy = Scheduled::clone(&there);
        copy.delivery = claim.taken.delivery;
        copy.pod = claim.me.address.clone();
        self.0.set(&key, Some(copy))?;
        let answer = self.0.store.claim(claim).await;
        if self.0.get::<Scheduled>(&key).is_some() {
            self.0.set(&key, Some(Scheduled::clone(&there)))?;
        }
        answer
    }
}

/// See [`super::Mutant::ActiveIgnored`].
pub struct ActiveIgnored(pub Under);

#[async_trait]
impl Layer for ActiveIgnored {
    fn inner(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    async fn claim(&self, claim: &Claim) -> Result<Claimed> {
        let key = of_job(&claim.taken.run);
        let locks = self.0.store.locks(&[claim.taken.run.job()]).await?;
        let active = self.0.get::<Active>(&key);
        let Some(active) = active.filter(|_| locks.iter().all(Option::is_none)) else {
            return self.0.store.claim(claim).await;
        };
        self.0.set::<Active>(&key, None)?;
        let answer = self.0.store.claim(claim).await;
        if self.0.get::<Active>(&key).is_none() {
            self.0.set(&key, Some(Active::clone(&active)))?;
        }
        answer
    }
}

/// See [`super::Mutant::SkipAnything`].
pub struct SkipAnything(pub Under);

#[async_trait]
impl Layer for SkipAnything {
    fn inner(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    async fn skip(&self, me: &PodRef, taken: &Taken, why: &str) -> Result<Moved> {
        let key = of_run(&taken.run);
        let there = self.0.get::<Scheduled>(&key);
        if let Some(there) = &there {
            let mut first = Scheduled::clone(there);
            first.task.attempt = 1;
            first.task.reason = Reason::Scheduled;
            self.0.set(&key, Some(first))?;
        }
        let answer = self.0.store.skip(me, taken, why).await;
        if let Some(there) = there.filter(|_| self.0.get::<Scheduled>(&key).is_some()) {
            self.0.set(&key, Some(Scheduled::clone(&there)))?;
        }
        answer
    }
}
