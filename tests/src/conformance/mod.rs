//! What every coordination store must do, as cases over its role traits.
//!
//! A case gets a [`World`]: an empty store, and helpers that do in one line what a test does not mean
//! to test. It never sees which backend it runs on; what no verb can do (break an entry, lose a
//! reply's effect on the clock) it asks of the backend's [`Harness`]. [`conformance_cases!`] names
//! every case, so that a backend's test binary can make a test of each.
//!
//! A lost reply is a call whose answer the case ignores; a late request is a call that comes after
//! what overtook it. Time passes only through [`World::pass`] and [`World::until`], so a backend may
//! bring a clock of its own.
//!
//! [`conformance_cases!`]: crate::conformance_cases

#![allow(
    clippy::panic,
    clippy::expect_used,
    reason = "cases are tests: an answer other than the promised one ends them, and the panic says which"
)]

mod world;

pub mod life;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use wasmcron_core::ids::{JobName, PodRef, RunId};
use wasmcron_store::Store;
use wasmcron_store::recovery::Register;
use wasmcron_store::runs::Retention;

pub use world::{LONG, Running, World};

/// Settings of a store that answers depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// In how long a window recoveries of a run add up.
    pub recovery_window: Duration,
    /// What is kept of runs whose verb does not say it, such as skipped ones.
    pub retention: Retention,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            recovery_window: Duration::from_secs(3_600),
            retention: Retention {
                age: Duration::from_secs(3_600),
                runs: 100,
            },
        }
    }
}

/// Damage that crashes, failovers and hands do, and no verb.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Damage {
    /// The pod's queue and its unclaimed entries are gone.
    QueueLost(PodRef),
    /// An entry stands in the pod's queue that nobody put there.
    QueueEntry(PodRef, String),
    /// The job's lock is gone.
    LockLost(JobName),
    /// The entry of a run in a register is gone.
    EntryLost(Register, RunId),
    /// The entry of a run in a register ends in the middle.
    EntryCut(Register, RunId),
    /// The entry that a run has in the first register stands in the second again, as it was
    /// before a move that a crash interrupted.
    EntryAlso(Register, RunId),
    /// The latest checkpoint of a run is gone, and with it every earlier one.
    AllLost,
}

/// One backend, with nothing in it at first.
#[async_trait]
pub trait Harness: Send + Sync {
    /// A store over the harness's data; all of them share it.
    async fn store(&self, settings: Settings) -> Arc<dyn Store>;

    /// Lets time pass by the store's clock.
    async fn pass(&self, time: Duration);

    /// Does damage.
    async fn damage(&self, damage: Damage);
}

/// Hands all cases to a macro, as `module: [case, …], …`.
#[macro_export]
macro_rules! conformance_cases {
    ($macro:ident) => {
        $macro! {
            life: [from_registration_to_success],
        }
    };
}
