//! A fleet that runs, and what is written down about it.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use tokio::time::Instant;
use wasmcron_core::time::Timestamp;

use super::backing::{Backing, StoreKind};
use super::pod::Signal;
use super::site::Site;
use super::slot::Slot;
use super::timing::Timing;
use crate::history::{Event, Fault, log};
use crate::servers::requests::now_ms;

/// How often pods are looked after.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How long a pod may take to end after SIGTERM: its drain, and much slack.
const END: Duration = Duration::from_secs(60);
/// Settings of every pod: room for jobs that mostly wait, a short drain, every record, and no quarantine
/// although pods are killed for minutes on end.
const SETTINGS: &str = "pod.capacity = 12\npod.drain_timeout = \"5s\"\nretention.runs = 1000000\n\
                        recovery.max_recoveries = 1000\n";

/// What a fleet consists of.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Part of the folder's name.
    pub name: &'static str,
    /// How many pods.
    pub pods: usize,
    /// How they are timed.
    pub timing: Timing,
    /// Where they meet.
    pub store: StoreKind,
}

/// Pods on a store, in a folder.
pub struct Fleet {
    /// Plugins, job files, settings and logs.
    pub site: Site,
    /// The store.
    pub backing: Backing,
    /// The pods' places.
    pub slots: Vec<Slot>,
    /// How the pods are timed.
    pub timing: Timing,
    notes: Mutex<Notes>,
}

#[derive(Default)]
struct Notes {
    faults: Vec<Fault>,
    ended: Vec<String>,
    failed_starts: u32,
}

impl Fleet {
    /// A store and a folder; no pod runs yet.
    ///
    /// # Errors
    /// When the store, a proxy or a file cannot be made.
    pub async fn new(plan: Plan) -> Result<Fleet> {
        let site = Site::new(plan.name, plan.timing)?;
        let backing = Backing::start(plan.store, site.path()).await?;
        let mut slots = Vec::new();
        for letter in ('a'..='z').take(plan.pods) {
            let address = format!("pod-{letter}");
            let (url, proxy) = backing.way().await?;
            let config = site.configure(&address, &url, SETTINGS)?;
            slots.push(Slot::new(address, proxy, config));
        }
        Ok(Fleet {
            site,
            backing,
            slots,
            timing: plan.timing,
            notes: Mutex::default(),
        })
    }

    /// Starts every pod and waits until all live and one leads.
    ///
    /// # Errors
    /// When one does not start.
    pub async fn start(&self) -> Result<()> {
        for slot in &self.slots {
            slot.start(&mut slot.hold().await).await?;
        }
        self.whole(END).await
    }

    /// Waits until every pod lives and one leads, by the store.
    ///
    /// # Errors
    /// When that does not come about in time.
    pub async fn whole(&self, patience: Duration) -> Result<()> {
        let end = Instant::now() + patience;
        loop {
            if self.is_whole().await.unwrap_or(false) {
                return Ok(());
            }
            if Instant::now() >= end {
                bail!("not every pod lives and one leads after {patience:?}");
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn is_whole(&self) -> Result<bool> {
        let store = &self.backing.store;
        let now = store.now().await?;
        let window = self.timing.window();
        let pods = store.pods().await?;
        let live = pods.iter().filter(|pod| pod.is_active(now, window)).count();
        Ok(live == self.slots.len() && store.leader().await?.is_some())
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes down a fault.
    pub fn note(&self, fault: Fault) {
        self.notes().faults.push(fault);
    }

    /// Writes down that a pod ended against its orders.
    pub fn note_end(&self, text: String) {
        self.notes().ended.push(text);
    }

    /// Writes down starts that failed.
    pub fn note_failed_starts(&self, count: u32) {
        self.notes().failed_starts += count;
    }

    /// Faults so far.
    #[must_use]
    pub fn faults(&self) -> Vec<Fault> {
        self.notes().faults.clone()
    }

    /// Ends of pods that nobody asked for, in words.
    #[must_use]
    pub fn ends(&self) -> Vec<String> {
        self.notes().ended.clone()
    }

    /// How often a pod ended before it served, since the store was away.
    #[must_use]
    pub fn failed_starts(&self) -> u32 {
        self.notes().failed_starts
    }

    /// Looks after pods for ever: one that ended by itself is written down and started again.
    ///
    /// # Errors
    /// When one cannot be started.
    pub async fn supervise(&self) -> Result<()> {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            for slot in &self.slots {
                let Some(mut held) = slot.try_hold() else {
                    continue;
                };
                let Some(process) = held.as_mut() else {
                    continue;
                };
                if let Some(status) = process.exited()? {
                    let words = process.last_words(12);
                    let address = &slot.address;
                    self.note_end(format!("{address} ended by itself, {status}:\n{words}"));
                    self.note_failed_starts(slot.start(&mut held).await?);
                }
            }
        }
    }

    /// Ends every pod with SIGTERM.
    ///
    /// # Errors
    /// When one cannot be ended, or ends badly.
    pub async fn end(&self) -> Result<()> {
        for slot in &self.slots {
            if let Some(process) = slot.hold().await.as_ref() {
                process.signal(Signal::Terminate)?;
            }
        }
        for slot in &self.slots {
            if let Some(process) = slot.hold().await.as_mut() {
                let status = process.ended(END).await?;
                if !status.success() {
                    let words = process.last_words(12);
                    bail!(
                        "{} ended with {status} after SIGTERM:\n{words}",
                        slot.address
                    );
                }
            }
        }
        Ok(())
    }

    /// What all pods logged so far.
    ///
    /// # Errors
    /// When a log cannot be read.
    pub fn events(&self) -> Result<Vec<Event>> {
        let mut events = Vec::new();
        for slot in &self.slots {
            events.extend(log::read(&slot.address, &self.site.log(&slot.address))?);
        }
        Ok(events)
    }

    /// Keeps the folder; answers where it lies.
    #[must_use]
    pub fn keep(self) -> PathBuf {
        self.site.keep()
    }

    /// The slot of an address.
    ///
    /// # Errors
    /// When there is none.
    pub fn slot(&self, address: &str) -> Result<&Slot> {
        let found = self.slots.iter().find(|slot| slot.address == address);
        found.with_context(|| format!("there is no pod {address}"))
    }
}

/// The machine's clock, which pods and targets write down.
#[must_use]
pub fn now() -> Timestamp {
    Timestamp::from_millis(i64::try_from(now_ms()).unwrap_or(i64::MAX))
}

/// Shared by the tasks that harm it.
pub type SharedFleet = Arc<Fleet>;
