//! Pods that are broken on purpose: what stands between a pod and its way to the store.

use tokio::sync::watch;

use crate::clock::Wall;
use crate::layer::Layer;
use crate::verbs::words::*;

/// What such a mutant knows of its pod.
pub struct Seat {
    /// The pod's way to the store.
    pub way: Arc<dyn Store>,
    /// False once it was told to leave.
    pub stays: watch::Receiver<bool>,
    /// Its machine's clock.
    pub wall: Wall,
}

/// See [`super::Mutant::ClaimForgotten`].
pub struct ClaimForgotten(pub Seat);

#[async_trait]
impl Layer for ClaimForgotten {
    fn inner(&self) -> &Arc<dyn Store> {
        &self.0.way
    }

    async fn claim(&self, claim: &Claim) -> Result<Claimed> {
        Ok(self.0.way.claim(claim).await.unwrap_or(Claimed::Stale))
    }
}

/// See [`super::Mutant::DrainForgets`].
pub struct DrainForgets(pub Seat);

#[async_trait]
impl Layer for DrainForgets {
    fn inner(&self) -> &Arc<dyn Store> {
        &self.0.way
    }

    async fn claim(&self, claim: &Claim) -> Result<Claimed> {
        let answer = self.0.way.claim(claim).await;
        if *self.0.stays.borrow() {
            return answer;
        }
        Ok(answer.unwrap_or(Claimed::Stale))
    }
}

/// See [`super::Mutant::OwnClock`].
pub struct OwnClock(pub Seat);

#[async_trait]
impl Layer for OwnClock {
    fn inner(&self) -> &Arc<dyn Store> {
        &self.0.way
    }

    async fn now(&self) -> Result<Timestamp> {
        self.0.way.now().await?;
        Ok(self.0.wall.now())
    }

    async fn heartbeat(&self, me: &PodRef, load: &PodLoad, window: Duration) -> Result<Standing> {
        let mut standing = self.0.way.heartbeat(me, load, window).await?;
        if let Standing::Current { now } | Standing::AskedToLeave { now, .. } = &mut standing {
            *now = self.0.wall.now();
        }
        Ok(standing)
    }
}
