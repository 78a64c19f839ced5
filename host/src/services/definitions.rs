//! Puts the definitions in force that the live pods agree on.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use indexmap::IndexMap;
use wasmcron_core::decide::agenda::Agenda;
use wasmcron_core::decide::definition::{Reconcile, reconcile};
use wasmcron_core::decide::due;
use wasmcron_core::ids::{DefinitionHash, JobName};
use wasmcron_core::job::StoredDefinition;
use wasmcron_core::time::Timestamp;
use wasmcron_core::view::{JobReport, JobView, Pod as PodView, PodReport, Successes};
use wasmcron_store::StoreError;
use wasmcron_store::leadership::TermRef;
use wasmcron_store::schedule::Opened;

use super::jobs::Known;
use super::pod::Pod;
use super::scheduler::Step;

/// Jobs that one step looks into.
const LOOK_MAX: usize = 1_000;
/// Jobs that one step opens: firings that are due meanwhile must not wait for all of a new folder.
const OPENS_MAX: usize = 200;

/// The jobs of one pod's folder.
type Mine = Arc<IndexMap<JobName, Known>>;

/// What the leader knows about which definition rules where.
///
/// Only what changed is looked into: reports are shared with whoever read them, and a report that is
/// new is compared once with what is stored.
#[derive(Default)]
pub struct Definitions {
    /// What the live pods say.
    said: Vec<Arc<PodReport>>,
    /// Which of these were not compared with what is stored since one or the other changed.
    unread: VecDeque<Arc<PodReport>>,
    /// The leader's own jobs when it last looked.
    mine: Mine,
    /// Jobs to look into.
    look: BTreeSet<JobName>,
    /// Jobs whose stored definition is not what every pod has that has the job.
    unsettled: BTreeSet<JobName>,
    pending: BTreeMap<JobName, (Option<DefinitionHash>, StoredDefinition)>,
    /// The last pending job that was tried, while there are more behind it.
    tried: Option<JobName>,
    disagreeing: BTreeSet<JobName>,
}

impl Definitions {
    /// Takes the reports of the live pods. Costs nothing as long as they are the same objects.
    pub fn heard(&mut self, live: &[PodView]) {
        let said: Vec<Arc<PodReport>> = live.iter().filter_map(|pod| pod.report.clone()).collect();
        let has = |all: &[Arc<PodReport>], one| all.iter().any(|other| Arc::ptr_eq(other, one));
        for old in self.said.iter().filter(|old| !has(&said, old)) {
            self.unread.retain(|unread| !Arc::ptr_eq(unread, old));
            // Where all pods have what is stored, one pod less changes nothing.
            let left = self.unsettled.iter();
            self.look
                .extend(left.filter(|job| old.jobs.contains_key(*job)).cloned());
        }
        let new = said.iter().filter(|new| !has(&self.said, new));
        self.unread.extend(new.cloned());
        self.said = said;
    }

    /// What is stored of a job was read anew.
    pub fn view_changed(&mut self, job: JobName) {
        self.look.insert(job);
    }

    /// What is stored of all jobs was read anew.
    pub fn look_at_all(&mut self) {
        self.unread = self.said.iter().cloned().collect();
        self.look.extend(self.unsettled.iter().cloned());
    }

    /// Up to when the stored definition of a job decides, if another waits to rule from then on.
    #[must_use]
    pub fn ends(&self, job: &JobName) -> Option<Timestamp> {
        self.pending.get(job).map(|(_, stored)| stored.since)
    }

    /// Compares what is stored with what pods report, and opens what may be opened; a bounded part of
    /// it at a time.
    ///
    /// # Errors
    /// When the store does not answer; what was not opened is tried again.
    pub async fn step(
        &mut self,
        pod: &Pod,
        agenda: &mut Agenda,
        term: &TermRef,
    ) -> Result<Step, StoreError> {
        self.look_around(pod.jobs.all(), agenda);
        let opened = self.open(pod, agenda, term).await?;
        let more = !self.look.is_empty() || !self.unread.is_empty() || self.tried.is_some();
        Ok(match opened {
            Step::Done if more => Step::More,
            step => step,
        })
    }

    /// Finds out what is to be opened.
    fn look_around(&mut self, mine: Mine, agenda: &Agenda) {
        if !Arc::ptr_eq(&mine, &self.mine) {
            self.look.extend(self.unsettled.iter().cloned());
            self.mine = mine;
        }
        if let Some(report) = self.unread.pop_front() {
            self.compare(&report, agenda);
        }
        for _ in 0..LOOK_MAX {
            let Some(job) = self.look.pop_first() else {
                break;
            };
            self.look_into(job, agenda);
        }
    }

    /// Finds the jobs of a report that are worth a look.
    fn compare(&mut self, report: &PodReport, agenda: &Agenda) {
        for (job, said) in &report.jobs {
            let stored = agenda.get(job.as_str());
            let rules = stored.is_some_and(|view| view.stored.hash == said.hash);
            if !rules || self.unsettled.contains(job) {
                self.look.insert(job.clone());
            }
        }
    }

    fn look_into(&mut self, job: JobName, agenda: &Agenda) {
        let reports = self.said.iter().filter_map(|said| said.jobs.get(&job));
        let reports: Vec<&JobReport> = reports.collect();
        let stored = agenda.get(job.as_str()).map(|view| &view.stored);
        let mine = self.mine.get(&job).map(|known| &known.job.definition);
        let found = reconcile(stored, mine, &reports);
        self.pending.remove(&job);
        if let Reconcile::Disagree { definitions } = found {
            if self.disagreeing.insert(job.clone()) {
                tracing::warn!(%job, definitions, "pods hold different definitions of a job; the stored one rules until they agree");
            }
        } else {
            self.disagreeing.remove(&job);
        }
        match found {
            Reconcile::InForce | Reconcile::Orphaned => {
                self.unsettled.remove(&job);
                return;
            }
            Reconcile::Open { was, stored } => {
                self.pending.insert(job.clone(), (was, *stored));
            }
            Reconcile::Disagree { .. } | Reconcile::NotOurs => {}
        }
        self.unsettled.insert(job);
    }

    /// Opens what may be opened of the next pending jobs.
    async fn open(
        &mut self,
        pod: &Pod,
        agenda: &mut Agenda,
        term: &TermRef,
    ) -> Result<Step, StoreError> {
        let from = self.tried.take().map_or(Bound::Unbounded, Bound::Excluded);
        let behind = self.pending.range((from, Bound::Unbounded));
        let batch: Vec<JobName> = behind.take(OPENS_MAX).map(|(job, _)| job.clone()).collect();
        let mut step = Step::Done;
        for job in &batch {
            let Some((was, stored)) = self.pending.get(job) else {
                continue;
            };
            // What the old definition made due before the new one rules is decided first, unless it
            // waits for a pod in vain: the new definition may be what mends that.
            let owes = agenda.get(job.as_str()).is_some_and(|view| {
                view.waiting.is_none() && due::next_due(view).is_some_and(|at| at <= stored.since)
            });
            if owes {
                continue;
            }
            match pod.store.open(term, job, was.as_ref(), stored).await? {
                Opened::Opened { cursor } => {
                    tracing::info!(%job, %cursor, enabled = stored.definition.enabled, "job.opened");
                    pod.metrics.event("job.opened");
                    let view = opened(agenda.get(job.as_str()), job, stored.clone(), cursor);
                    agenda.upsert(view);
                    self.look.insert(job.clone());
                    step = Step::More;
                }
                Opened::Changed => self.read_again(pod, agenda, job).await?,
                Opened::NotLeader => return Ok(Step::NotLeader),
            }
            self.pending.remove(job);
        }
        self.tried = batch.into_iter().nth(OPENS_MAX - 1);
        Ok(step)
    }

    /// What is stored of a job is not what this leader knows. Should it find nothing new, as when that
    /// does not decode, the job waits for its next change: asking again would be answered the same.
    async fn read_again(
        &mut self,
        pod: &Pod,
        agenda: &mut Agenda,
        job: &JobName,
    ) -> Result<(), StoreError> {
        let found = pod.store.jobs(std::slice::from_ref(job)).await?;
        let found = found.into_iter().next().flatten();
        let hash = |view: &JobView| view.stored.hash.clone();
        if found.as_ref().map(hash) != agenda.get(job.as_str()).map(hash) {
            self.look.insert(job.clone());
        }
        agenda.learn(job, found);
        Ok(())
    }
}

fn opened(
    known: Option<&JobView>,
    job: &JobName,
    stored: StoredDefinition,
    cursor: Timestamp,
) -> JobView {
    let mut view = known.cloned().unwrap_or_else(|| JobView {
        job: job.clone(),
        stored: stored.clone(),
        cursor,
        paused: None,
        quarantined: None,
        active: None,
        waiting: None,
        successes: Successes::default(),
    });
    view.stored = stored;
    view.cursor = cursor;
    view
}

#[cfg(test)]
#[path = "definitions_tests.rs"]
mod tests;
