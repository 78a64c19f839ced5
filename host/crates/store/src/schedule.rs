//! What the leader writes: definitions, firings and gaps; and what people ask for.

use std::time::Duration;

use async_trait::async_trait;
use wasmcron_core::ids::{DefinitionHash, JobName, PodAddress, RunId};
use wasmcron_core::job::StoredDefinition;
use wasmcron_core::task::Task;
use wasmcron_core::time::Timestamp;
use wasmcron_core::view::{DelayedEntry, Gap, JobView, Waiting};

use crate::error::Result;
use crate::leadership::TermRef;
use crate::page::PageCursor;
use crate::recovery::EntryId;

/// Decisions in one `publish` call at most.
pub const PUBLISH_MAX: usize = 100;
/// Jobs or entries in one page of a view at most.
pub const PAGE_MAX: usize = 1_000;
/// Changed jobs that a store remembers. More of them between two looks of a leader mean that it reads
/// everything.
pub const CHANGES_KEPT: usize = 20_000;
/// How far ahead of the store's clock a nominal time may lie, in milliseconds.
pub const EARLY_MS: i64 = 2_000;
/// Why a run waits that somebody asked for.
pub(crate) const ASKED_FOR: &str = "asked for";
/// How long idempotency keys are remembered.
pub(crate) const IDEMPOTENCY_KEPT: Duration = Duration::from_secs(24 * 3_600);
/// Nominal times counted for a gap of a pause; a longer pause counts as this many.
const COUNT_MAX: u64 = 10_000;

/// One decision about nominal times of a job. Decisions of one job stand in the order of their times.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// Make the run of this nominal time and send it to this pod.
    Fire {
        /// What to do. Its nominal time becomes the cursor.
        task: Task,
        /// Who shall do it.
        to: PodAddress,
        /// The cursor it was decided from, or the end of the job's decision before it. A store whose
        /// cursor is earlier has lost what was decided in between, and holds this back.
        after: Timestamp,
    },
    /// Answer these nominal times in bulk.
    Gap {
        /// The job.
        job: JobName,
        /// Which times and why; its end becomes the cursor.
        gap: Gap,
        /// As for a firing.
        after: Timestamp,
    },
}

/// Answer to one decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Published {
    /// Done.
    Published,
    /// The cursor is there already or beyond.
    Deduped {
        /// The cursor.
        cursor: Timestamp,
    },
    /// The run was made before; the cursor moved, and a delivery that nobody claimed was pushed again.
    Exists,
    /// An earlier decision of the job was not applied, or is not there any more, so this one was not
    /// applied either; or the first time of a gap has a run, and the cursor moved to it: look at the job
    /// again.
    Held {
        /// The cursor.
        cursor: Timestamp,
    },
    /// The target is gone or draining; nothing was written, the run stays due.
    NoPod,
    /// An operator paused the job.
    Paused,
    /// The platform holds the job back.
    Quarantined,
    /// The nominal time lies too far ahead of the store's clock.
    Early,
}

/// Answer to `publish`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PublishAnswer {
    /// One answer for each decision, in order.
    Answers(Vec<Published>),
    /// The caller leads no more; nothing was written.
    NotLeader,
}

/// Answer to `open`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opened {
    /// The definition rules from now on, and this is the cursor.
    Opened {
        /// The cursor.
        cursor: Timestamp,
    },
    /// The stored definition is not the one the caller saw; look again.
    Changed,
    /// The caller leads no more.
    NotLeader,
}

/// Answer to one promotion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promoted {
    /// The run is in the pod's queue.
    Promoted,
    /// It is not delayed any more, or not due.
    Changed,
    /// The target is gone or draining.
    NoPod,
}

/// Answer to `promote`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PromoteAnswer {
    /// One answer for each entry, in order.
    Answers(Vec<Promoted>),
    /// The caller leads no more; nothing was written.
    NotLeader,
}

/// A run that somebody asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct Submission {
    /// What to do.
    pub task: Task,
    /// Makes a repeat of the request the same request.
    pub idempotency: Option<IdempotencyKey>,
}

/// The key of a request and what it asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotencyKey {
    /// 1 to 255 printable ASCII characters; remembered for 24 hours.
    pub key: String,
    /// Digest of the request's body.
    pub body: String,
}

/// Answer to `submit`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Submitted {
    /// The run is due now.
    Accepted {
        /// It.
        run: RunId,
    },
    /// The same request came before.
    Same {
        /// The run it made.
        run: RunId,
    },
    /// The key was used for another request.
    Conflict {
        /// The run that one made.
        run: RunId,
    },
    /// A nominal time after the cursor: the schedule itself will fire it.
    NotYet {
        /// The cursor.
        cursor: Timestamp,
    },
    /// The run exists; an ended run is never run again.
    Exists,
    /// No such job.
    UnknownJob,
}

/// Answer to an operator's verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operated {
    /// Done.
    Done,
    /// It was so already.
    Unchanged,
    /// No such job.
    UnknownJob,
}

/// A page of the view.
#[derive(Clone, Debug, PartialEq)]
pub struct ViewPage {
    /// Jobs; one that changes while pages are read may stand on two of them.
    pub jobs: Vec<JobView>,
    /// Entries that did not decode; the others are served all the same.
    pub corrupt: Vec<String>,
    /// Where the next page begins; none after the last.
    pub next: Option<PageCursor>,
}

/// A state of what the leader decides from; later ones are greater. No failover gives one twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ViewVersion(pub u64);

/// What changed since a version of the view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changes {
    /// These jobs, at least; a job that is gone is among them too.
    Jobs {
        /// What the caller knows once it has read them.
        version: ViewVersion,
        /// Each once, [`PAGE_MAX`] at most. So many may not be all: ask again with `version`.
        jobs: Vec<JobName>,
    },
    /// That is not known any more: the version is too old, or from before the store lost something.
    Everything {
        /// What the caller knows once it has read every page of the view from now on.
        version: ViewVersion,
    },
}

/// Delayed runs that are due, and when the next one is.
#[derive(Clone, Debug, PartialEq)]
pub struct DueDelayed {
    /// The store's clock.
    pub now: Timestamp,
    /// The due ones, earliest first.
    pub entries: Vec<DelayedEntry>,
    /// Ids of entries that did not decode; give them to `bury`.
    pub corrupt: Vec<EntryId>,
    /// When the next one after these is due.
    pub next: Option<Timestamp>,
}

/// How many nominal times of a definition lie in `(after, until]`, at most [`COUNT_MAX`].
pub(crate) fn count_between(stored: &StoredDefinition, after: Timestamp, until: Timestamp) -> u64 {
    let schedule = &stored.definition.schedule;
    let times = std::iter::successors(schedule.next_after(after), |at| schedule.next_after(*at));
    let within = times.take_while(|at| *at <= until);
    within
        .zip(0..COUNT_MAX)
        .count()
        .try_into()
        .unwrap_or(COUNT_MAX)
}

/// The durable schedule.
#[async_trait]
pub trait Schedules: Send + Sync {
    /// A page of jobs from `cursor` (none: the first), [`PAGE_MAX`] at most.
    async fn view(&self, cursor: Option<PageCursor>) -> Result<ViewPage>;

    /// The jobs that somebody changed since the view of that version (none: nothing was read yet):
    /// opened, paused, resumed, quarantined, released, retired. What `publish` and `set_waiting` wrote
    /// is not among them: the leader did that itself. A leader that was told `Everything` and then read
    /// all pages misses nothing if it goes on from the version of that answer.
    async fn changes(&self, since: Option<ViewVersion>) -> Result<Changes>;

    /// These jobs, in order, [`PAGE_MAX`] at most in one request to the store; none for one that is
    /// not there or does not decode.
    async fn jobs(&self, jobs: &[JobName]) -> Result<Vec<Option<JobView>>>;

    /// One job.
    async fn job(&self, job: &JobName) -> Result<Option<JobView>>;

    /// Puts a definition in force if the stored one is still `was` (none: there was none). The
    /// cursor becomes the later of itself and `stored.since`. What that leaves unanswered of the old
    /// schedule is one gap: `disabled`, `paused` or `quarantined` if that held it back, else
    /// `schedule changed`.
    async fn open(
        &self,
        term: &TermRef,
        job: &JobName,
        was: Option<&DefinitionHash>,
        stored: &StoredDefinition,
    ) -> Result<Opened>;

    /// Applies decisions, [`PUBLISH_MAX`] at most; each is applied whole or not at all, each moves
    /// its job's cursor in the same step, and nothing is written unless the caller leads.
    async fn publish(&self, term: &TermRef, decisions: &[Decision]) -> Result<PublishAnswer>;

    /// Delayed runs that are due by the store's clock, at most `limit`.
    async fn due_delayed(&self, limit: usize) -> Result<DueDelayed>;

    /// Moves due delayed runs into queues. Leaving the delayed runs is what makes it happen once.
    async fn promote(&self, term: &TermRef, moves: &[(RunId, PodAddress)])
    -> Result<PromoteAnswer>;

    /// Says why a due run still waits, and makes it due again after `look_again_in`, so that runs
    /// that cannot be moved do not stand in front of those that can. A run that is parked or not due
    /// yet keeps its time.
    async fn explain_delayed(
        &self,
        term: &TermRef,
        run: &RunId,
        why: &str,
        look_again_in: Duration,
    ) -> Result<()>;

    /// Makes a run that somebody asks for due now. Any pod may call it; it wakes the leader. A
    /// backfilled run waits for its turn: the first becomes the job's active run at once, others are
    /// parked behind the active one in the order of their times.
    async fn submit(&self, submission: &Submission) -> Result<Submitted>;

    /// Stops a job's firings until `resume`.
    async fn pause(&self, job: &JobName, by: &str, why: &str) -> Result<Operated>;

    /// Lets a paused job fire again, from now on: the times in between become one gap `paused`.
    async fn resume(&self, job: &JobName, by: &str) -> Result<Operated>;

    /// Ends a job's quarantine.
    async fn release(&self, job: &JobName, by: &str) -> Result<Operated>;

    /// Says why a job's due firing waits, or that none does. Only people read it.
    async fn set_waiting(
        &self,
        term: &TermRef,
        job: &JobName,
        waiting: Option<&Waiting>,
    ) -> Result<()>;

    /// Removes what the store knows of a job that no pod has a file of; its records stay.
    async fn retire(&self, term: &TermRef, job: &JobName) -> Result<Operated>;
}
