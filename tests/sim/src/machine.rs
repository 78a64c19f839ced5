//! The computer under a simulated pod.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::task::JoinHandle;
use wasmcron_core::ids::RunId;
use wasmcron_core::time::Timestamp;
use wasmcron_host::services::Machine;

use crate::clock::{Clock, Wall};
use crate::gate::{Gate, Gated};

/// One start of one pod's machine: its clocks, its chance and its tasks.
pub struct SimMachine {
    clock: Clock,
    wall: Wall,
    /// How long the machine had been up when the world began.
    uptime: Duration,
    seed: u64,
    dice: Mutex<fastrand::Rng>,
    gate: Arc<Gate>,
}

impl SimMachine {
    /// Of a world of this seed, with dice and a gate of its own, and a wall clock that outlives it.
    #[must_use]
    pub fn new(
        clock: Clock,
        wall: Wall,
        seed: u64,
        mut dice: fastrand::Rng,
        gate: Arc<Gate>,
    ) -> SimMachine {
        SimMachine {
            clock,
            wall,
            uptime: Duration::from_secs(dice.u64(60..=1_000_000)),
            seed,
            dice: Mutex::new(dice),
            gate,
        }
    }

    /// True time.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Dice for one attempt, the same wherever and whenever it runs.
    #[must_use]
    pub fn dice_for(&self, run: &RunId, attempt: u32) -> fastrand::Rng {
        let mut hasher = DefaultHasher::new();
        (run.as_str(), attempt, self.seed).hash(&mut hasher);
        fastrand::Rng::with_seed(hasher.finish())
    }

    /// A moment of the boot clock, in milliseconds, as time since the world began.
    #[must_use]
    pub fn since_boot(&self, millis: u64) -> Duration {
        Duration::from_millis(millis).saturating_sub(self.uptime)
    }
}

impl Machine for SimMachine {
    fn boot(&self) -> Duration {
        self.uptime + self.clock.elapsed()
    }

    fn wall(&self) -> Timestamp {
        self.wall.now()
    }

    fn random(&self) -> u64 {
        self.dice
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .u64(..)
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) -> JoinHandle<()> {
        tokio::spawn(Gated::new(self.gate.clone(), task))
    }

    fn spawn_apart(
        &self,
        _: &'static str,
        task: BoxFuture<'static, ()>,
    ) -> io::Result<JoinHandle<()>> {
        Ok(self.spawn(task))
    }
}
