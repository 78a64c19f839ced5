//! Stores that are broken on purpose, each by one rule of the protocol: what the simulation must notice.
//!
//! A mutant is a [`Layer`](crate::layer::Layer) below the witness that changes one or two verbs and may
//! edit the records between them, or one between a pod and its way to the store. The product knows
//! nothing of it.

mod claim;
mod ends;
mod pods;
mod publish;
mod term;

use std::sync::{Arc, Mutex, PoisonError};

use wasmcron_core::ids::{Delivery, RunId};
use wasmcron_store::embedded::engine::{Key, Record, Tx as _};
use wasmcron_store::leadership::TermRef;
use wasmcron_store::{Result, Store};
use wasmcron_tests::memory_store::MemoryEngine;

use crate::layer::Layered;

pub(crate) use pods::Seat;

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

    /// Whether the caller of a verb leads.
    async fn leads(&self, term: &TermRef) -> Result<bool> {
        let leader = self.store.leader().await?;
        Ok(leader.is_some_and(|leader| leader.pod == term.pod && leader.term == term.term))
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
    (store { $( $(#[doc = $doc:literal])* $name:ident => $layer:path; )* }
     pods { $( $(#[doc = $of_pod:literal])* $pod:ident => $seated:path; )* }) => {
        /// A rule that is left out.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
        pub enum Mutant {
            $( $(#[doc = $doc])* $name, )*
            $( $(#[doc = $of_pod])* $pod, )*
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
                    $( Mutant::$pod => under.store, )*
                }
            }

            /// Breaks a pod.
            pub(crate) fn seat(self, seat: Seat) -> Arc<dyn Store> {
                match self {
                    $( Mutant::$name => seat.way, )*
                    $( Mutant::$pod => Arc::new(Layered($seated(seat))), )*
                }
            }
        }
    };
}

mutants! {
    store {
        /// The address is the leader, whichever of its processes asks.
        AddressLeads => term::AddressLeads;
        /// A campaign by the session that leads is told that somebody leads.
        CampaignHeld => term::CampaignHeld;
        /// Who led once may publish for ever.
        UnledPublish => term::UnledPublish;
        /// Who begins to lead does not know what fired before.
        FiringsForgotten => term::FiringsForgotten;
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
        /// A firing is written whether or not there is a record of its run.
        RecordOverwritten => publish::RecordOverwritten;
        /// A firing that is more than a second late is passed without a word.
        LateDropped => publish::LateDropped;
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
        /// A run that is to wait for the active one stands in no list.
        ParkNowhere => claim::ParkNowhere;
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
        /// An attempt may be finished by whatever fence.
        FinishUnfenced => ends::FinishUnfenced;
        /// A run that waits to go on is not the job's active one.
        ActiveClearedEarly => ends::ActiveClearedEarly;
        /// The end of a run does not make a parked one due.
        ParkedForgotten => ends::ParkedForgotten;
        /// A run is sent elsewhere whatever became of it since it was looked at.
        RepublishUnseen => ends::RepublishUnseen;
        /// A run is sent elsewhere although its lock is held.
        RepublishAlive => ends::RepublishAlive;
    }
    pods {
        /// A pod forgets a claim that was not answered instead of repeating it.
        ClaimForgotten => pods::ClaimForgotten;
        /// A pod that is told to leave forgets its claims that were not answered.
        DrainForgets => pods::DrainForgets;
        /// A pod takes its machine's clock for the store's.
        OwnClock => pods::OwnClock;
    }
}
