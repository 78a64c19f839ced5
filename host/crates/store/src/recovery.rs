//! Finding what stands still, and moving it.

use std::fmt;

use async_trait::async_trait;
use wasmcron_core::ids::{Delivery, Digest, Fence, JobName, PodAddress, RunId};
use wasmcron_core::run::RunState;
use wasmcron_core::time::Timestamp;
use wasmcron_core::view::{LockHolder, RunningEntry, ScheduledEntry};

use crate::error::Result;
use crate::leadership::TermRef;
use crate::page::PageCursor;
use crate::runs::Retention;

/// Who quarantines.
pub(crate) const PLATFORM: &str = "wasmcron";
/// Why a run ends whose entry is buried.
pub(crate) const BURIED: &str = "its entry in the store was corrupt";

/// How the caller saw an entry; a verb is applied only if it still is so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// In a queue, by this delivery.
    Scheduled(Delivery),
    /// Executing, with this fence.
    Running(Fence),
}

/// What an entry that does not decode is called in the store: the very bytes, since a text made of them
/// need not name the entry any more. Shown as text, with a sign for each byte that is none.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct EntryId(Vec<u8>);

impl EntryId {
    /// As it stands in the store.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The text, if it is one.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }
}

impl From<Vec<u8>> for EntryId {
    fn from(bytes: Vec<u8>) -> EntryId {
        EntryId(bytes)
    }
}

impl From<&str> for EntryId {
    fn from(text: &str) -> EntryId {
        EntryId(text.as_bytes().to_vec())
    }
}

impl From<&RunId> for EntryId {
    fn from(run: &RunId) -> EntryId {
        EntryId::from(run.as_str())
    }
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl fmt::Debug for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&String::from_utf8_lossy(&self.0), f)
    }
}

/// A page of a register.
#[derive(Clone, Debug, PartialEq)]
pub struct Page<T> {
    /// The entries.
    pub entries: Vec<T>,
    /// Ids of entries that did not decode; give them to `bury`.
    pub corrupt: Vec<EntryId>,
    /// Where the next page begins; none after the last.
    pub next: Option<PageCursor>,
}

/// Answer to `republish`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Republished {
    /// The run is in the pod's queue as a new delivery.
    Republished,
    /// Somebody had asked for the run's end: it is over, and its lost attempt is closed.
    Cancelled,
    /// It is not as seen; nothing changed.
    Changed,
    /// Its lock is held by the seen fence; nothing changed.
    Alive,
    /// The target is gone or draining; nothing changed.
    NoPod,
    /// The caller leads no more.
    NotLeader,
}

/// Answer to `lose`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Losing {
    /// The run is over.
    Lost,
    /// It is not as seen; nothing changed.
    Changed,
    /// Its lock is held by the seen fence; nothing changed.
    Alive,
    /// The caller leads no more.
    NotLeader,
}

/// A register by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Register {
    /// Runs in queues.
    Scheduled,
    /// Runs that execute.
    Running,
    /// Runs that wait.
    Delayed,
}

/// How a run ends that the platform gives up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// `Lost`, or `TimedOut` for an attempt past its end.
    pub state: RunState,
    /// Why, for people.
    pub reason: String,
    /// Hold the job's firings back until an operator releases it.
    pub quarantine: bool,
    /// The plugin version that is taken for the cause of a quarantine.
    pub digest: Option<Digest>,
    /// What is kept.
    pub retention: Retention,
}

/// What the recoverer reads and writes.
#[async_trait]
pub trait Recovery: Send + Sync {
    /// Runs in queues, a page from `cursor`.
    async fn scheduled(&self, cursor: Option<PageCursor>) -> Result<Page<ScheduledEntry>>;

    /// Runs that execute, a page from `cursor`.
    async fn running(&self, cursor: Option<PageCursor>) -> Result<Page<RunningEntry>>;

    /// Who holds these jobs' locks; in order, 1,000 at most.
    async fn locks(&self, jobs: &[JobName]) -> Result<Vec<Option<LockHolder>>>;

    /// How often each run's attempts were lost with their pods, in the current window; in order.
    async fn recoveries(&self, runs: &[RunId]) -> Result<Vec<u32>>;

    /// Sends a run to another pod. A seen `Running` is closed as lost with its pod, counted, and
    /// followed by a new attempt; where somebody asked for the end of the run, it ends as cancelled
    /// instead, whether or not there is a pod. `counted`: whether a moved delivery counts as well.
    async fn republish(
        &self,
        term: &TermRef,
        run: &RunId,
        seen: Seen,
        to: &PodAddress,
        why: &str,
        counted: bool,
    ) -> Result<Republished>;

    /// Ends a run that cannot go on.
    async fn lose(&self, term: &TermRef, run: &RunId, seen: Seen, loss: &Loss) -> Result<Losing>;

    /// When each run's first attempt was claimed; in order, none for one that has not begun.
    async fn began(&self, runs: &[RunId]) -> Result<Vec<Option<Timestamp>>>;

    /// Ends a run that waits, is due and is not parked: as `TimedOut`, or as `Skipped` if it never
    /// began. Whoever waits for it goes on.
    async fn give_up(&self, term: &TermRef, run: &RunId, loss: &Loss) -> Result<Losing>;

    /// Moves an entry that does not decode to the dead letters and ends its run as lost, so that a
    /// scan goes on. Answers whether there was one.
    async fn bury(
        &self,
        term: &TermRef,
        register: Register,
        id: &EntryId,
        retention: Retention,
    ) -> Result<bool>;
}
