//! Stores that are broken on purpose, each by one rule of the protocol: what the simulation must notice.
//!
//! A mutant is a [`Layer`](crate::layer::Layer) below the witness that changes one or two verbs and may
//! edit the records between them. The product knows nothing of it.

mod claim;
mod ends;
mod publish;
mod term;

use std::sync::{Arc, Mutex, PoisonError};

use wasmcron_core::ids::{Delivery, RunId};
use wasmcron_store::embedded::engine::{Key, Record, Tx as _};
use wasmcron_store::{Result, Store};
use wasmcron_tests::memory_store::MemoryEngine;

use crate::layer::Layered;

pub(crate) use claim::ClaimForgotten;

/// What a mutant stands on.
struct Under {
    store: Arc<dyn Store>,
    engine: Arc<MemoryEngine>,
    dice: Mutex<fastrand::Rng>,
}

impl Under {
    fn get<R: Record>(&self, key: &Key) -> Option<Arc<R>> {
        self.engine.look(|tx| tx.get::<R>(key).ok().flatten())
    }

    /// Puts a record, or takes it away.
    fn set<R: Record>(&self, key: &Key, record: Option<R>) -> Result<()> {
        self.engine.edit(|tx| match record {
            Some(record) => tx.put(key.clone(), record),
            None => tx.remove::<R>(key).map(drop),
        })
    }

    /// Throws the dice.
    fn chance(&self, per_cent: u8) -> bool {
        let mut dice = self.dice.lock().unwrap_or_else(PoisonError::into_inner);
        dice.u8(0..100) < per_cent
    }
}

/// Where a run's records stand.
fn of_run(run: &RunId) -> Key {
    Key::named(run.as_str())
}

/// Where those of its job stand.
fn of_job(run: &RunId) -> Key {
    Key::named(run.job().as_str())
}

/// Where an entry of a pod's list stands.
fn entry(pod: &str, delivery: Delivery, run: &RunId) -> Key {
    let order = i64::try_from(delivery.0).unwrap_or(i64::MAX);
    Key::new(pod, order, run.as_str())
}

macro_rules! mutants {
    ($( $(#[doc = $doc:literal])* $name:ident => $layer:path; )*) => {
        /// A rule that is left out.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
        pub enum Mutant {
            $( $(#[doc = $doc])* $name, )*
            /// A pod forgets a claim that was not answered instead of repeating it.
            ClaimForgotten,
        }

        impl Mutant {
            /// Its name on the command line.
            #[must_use]
            pub fn name(self) -> String {
                let value = clap::ValueEnum::to_possible_value(&self);
                value.map_or_else(String::new, |value| value.get_name().to_owned())
            }

            /// Breaks a store.
            #[must_use]
            pub fn wrap(self, store: Arc<dyn Store>, engine: Arc<MemoryEngine>, seed: u64) -> Arc<dyn Store> {
                let dice = Mutex::new(fastrand::Rng::with_seed(seed));
                let under = Under { store, engine, dice };
                match self {
                    $( Mutant::$name => Arc::new(Layered($layer(under))), )*
                    // This one is in the pods.
                    Mutant::ClaimForgotten => under.store,
                }
            }
        }
    };
}

mutants! {
    /// The address is the leader, whichever of its processes asks.
    AddressLeads => term::AddressLeads;
    /// A campaign by the session that leads is told that somebody leads.
    CampaignHeld => term::CampaignHeld;
    /// Who led once may publish for ever.
    UnledPublish => term::UnledPublish;
    /// The cursor moves in a step of its own before the firing is written.
    CursorFirst => publish::CursorFirst;
    /// Followers advance due times as they look at schedules.
    FollowerAdvances => publish::FollowerAdvances;
    /// A decision counts although the cursor it was made from is not there any more.
    AfterIgnored => publish::AfterIgnored;
    /// A decision counts although an earlier one of its job was not applied.
    HeldLeftOut => publish::HeldLeftOut;
    /// A run that exists and was not claimed is not pushed again.
    ExistsNotPushed => publish::ExistsNotPushed;
    /// Whether a job is paused is read from a copy that may be two seconds old.
    PauseFromCopy => publish::PauseFromCopy;
    /// The cursor dedupes delayed runs.
    PromoteDedupes => publish::PromoteDedupes;
    /// A backfill may name a time that the schedule did not reach.
    BackfillAhead => publish::BackfillAhead;
    /// A new job starts when it is opened, not when it was first reported.
    OpenAtNow => publish::OpenAtNow;
    /// An entry that is taken stands in no list.
    PopWithoutMove => claim::PopWithoutMove;
    /// What was taken and not claimed is not read again.
    ClaimingNotRead => claim::ClaimingNotRead;
    /// A claim that comes again is refused.
    ClaimOnce => claim::ClaimOnce;
    /// A claim that comes again does not renew the lock.
    RepeatKeepsLock => claim::RepeatKeepsLock;
    /// An old copy of an entry may be claimed.
    CopiesLive => claim::CopiesLive;
    /// A run may be claimed while another of its job waits to go on.
    ActiveIgnored => claim::ActiveIgnored;
    /// An overlap may skip what somebody asked for, and what has begun.
    SkipAnything => claim::SkipAnything;
    /// A checkpoint is saved by whatever fence.
    SaveUnfenced => ends::SaveUnfenced;
    /// A checkpoint that comes again is refused.
    SaveOnce => ends::SaveOnce;
    /// A finish releases the job's lock, whose it may be.
    UnlockAnyone => ends::UnlockAnyone;
    /// A finish that comes again is refused.
    FinishOnce => ends::FinishOnce;
    /// A run that waits to go on is not the job's active one.
    ActiveClearedEarly => ends::ActiveClearedEarly;
    /// The end of a run does not make a parked one due.
    ParkedForgotten => ends::ParkedForgotten;
    /// A run is sent elsewhere whatever became of it since it was looked at.
    RepublishUnseen => ends::RepublishUnseen;
    /// A run is sent elsewhere although its lock is held.
    RepublishAlive => ends::RepublishAlive;
}
