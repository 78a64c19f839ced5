//! What a pod gets from the computer it runs on: clocks, chance, and somewhere to run.
//!
//! No other file of the services asks for any of these, so that a simulation can stop, shift and
//! repeat them. Waiting (`tokio::time`) is the tokio runtime's: a simulation pauses its clock.

use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::future::BoxFuture;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use ulid::Ulid;
use wasmcron_core::time::Timestamp;
use wasmcron_runtime::boot_millis;

/// The computer under a pod.
pub trait Machine: Send + Sync {
    /// Time since the machine booted, suspended time included. Never goes back. What a pod's own
    /// deadlines count.
    fn boot(&self) -> Duration;

    /// The wall clock. May be wrong, and may be set while the pod runs.
    fn wall(&self) -> Timestamp;

    /// A number that nobody foresees and no other pod draws.
    fn random(&self) -> u64;

    /// Runs a task of the pod, beside the caller. Every task that a pod starts comes through here or
    /// through [`Self::spawn_apart`].
    fn spawn(&self, task: BoxFuture<'static, ()>) -> JoinHandle<()>;

    /// Runs a task that nothing else of the pod may make late. What it opens, it opens where it runs.
    ///
    /// # Errors
    /// When the machine has no room for it.
    fn spawn_apart(
        &self,
        name: &'static str,
        task: BoxFuture<'static, ()>,
    ) -> io::Result<JoinHandle<()>>;

    /// A random wait below `limit`, so that pods that met by chance do not meet again and again.
    fn jitter(&self, limit: Duration) -> Duration {
        const STEPS: u32 = 1_000;
        let step = u32::try_from(self.random() % u64::from(STEPS)).unwrap_or(0);
        limit * step / STEPS
    }

    /// A new id: the wall clock's milliseconds and 80 random bits.
    fn ulid(&self) -> Ulid {
        let millis = u64::try_from(self.wall().as_millis()).unwrap_or(0);
        let random = u128::from(self.random()) << 64 | u128::from(self.random());
        Ulid::from_parts(millis, random)
    }
}

/// The machine that this process runs on.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealMachine;

impl Machine for RealMachine {
    fn boot(&self) -> Duration {
        Duration::from_millis(boot_millis())
    }

    fn wall(&self) -> Timestamp {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    fn random(&self) -> u64 {
        // The kernel only refuses before it has gathered entropy at boot.
        getrandom::u64().unwrap_or_else(|_| fastrand::u64(..))
    }

    /// On the tokio runtime that the caller runs on.
    fn spawn(&self, task: BoxFuture<'static, ()>) -> JoinHandle<()> {
        tokio::spawn(task)
    }

    /// On an OS thread of its own, with a tokio runtime of its own.
    fn spawn_apart(
        &self,
        name: &'static str,
        task: BoxFuture<'static, ()>,
    ) -> io::Result<JoinHandle<()>> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (alive, ended) = oneshot::channel::<()>();
        std::thread::Builder::new()
            .name(name.into())
            .spawn(move || {
                runtime.block_on(task);
                drop(alive);
            })?;
        Ok(tokio::spawn(async move {
            // Nothing is ever sent: the sender goes when the thread does, even if it panics.
            let _ = ended.await;
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_new_and_carry_the_wall_clock() {
        let (first, second) = (RealMachine.ulid(), RealMachine.ulid());
        assert_ne!(first, second);
        let now = u64::try_from(RealMachine.wall().as_millis()).expect("after 1970");
        assert!(now.abs_diff(first.timestamp_ms()) < 60_000);
    }

    #[test]
    fn jitter_stays_below_its_limit() {
        let limit = Duration::from_millis(250);
        assert!((0..100).all(|_| RealMachine.jitter(limit) < limit));
        assert_eq!(RealMachine.jitter(Duration::ZERO), Duration::ZERO);
    }

    #[tokio::test]
    async fn what_runs_apart_runs_on_a_thread_of_its_own() {
        let (tell, told) = oneshot::channel();
        let task = Box::pin(async move {
            let _ = tell.send(std::thread::current().name().map(str::to_owned));
        });
        let ended = RealMachine.spawn_apart("apart", task).expect("a thread");
        assert_eq!(told.await.expect("its name").as_deref(), Some("apart"));
        ended.await.expect("its end");
    }
}
