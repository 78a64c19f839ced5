//! Puts the definitions in force that the live pods agree on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use wasmcron_core::decide::agenda::Agenda;
use wasmcron_core::decide::definition::{Reconcile, reconcile};
use wasmcron_core::decide::due;
use wasmcron_core::ids::{DefinitionHash, JobName};
use wasmcron_core::job::StoredDefinition;
use wasmcron_core::view::{JobReport, JobView, Pod as PodView, PodReport, Successes};
use wasmcron_store::StoreError;
use wasmcron_store::leadership::TermRef;
use wasmcron_store::schedule::Opened;

use super::pod::Pod;
use super::scheduler::Step;

/// What the leader knows about which definition rules where.
#[derive(Default)]
pub struct Definitions {
    /// What `reports` was made of.
    said: Vec<Arc<PodReport>>,
    reports: BTreeMap<JobName, Vec<JobReport>>,
    dirty: bool,
    pending: BTreeMap<JobName, (Option<DefinitionHash>, StoredDefinition)>,
    disagreeing: BTreeSet<JobName>,
}

impl Definitions {
    /// Takes the reports of the live pods. Costs nothing as long as all say the same.
    pub fn heard(&mut self, live: &[PodView]) {
        let said: Vec<Arc<PodReport>> = live.iter().filter_map(|pod| pod.report.clone()).collect();
        let same = said.len() == self.said.len()
            && said
                .iter()
                .zip(&self.said)
                .all(|(new, old)| Arc::ptr_eq(new, old));
        if same {
            return;
        }
        let mut reports: BTreeMap<JobName, Vec<JobReport>> = BTreeMap::new();
        for report in &said {
            for (job, seen) in &report.jobs {
                reports.entry(job.clone()).or_default().push(seen.clone());
            }
        }
        self.said = said;
        if reports != self.reports {
            self.reports = reports;
            self.dirty = true;
        }
    }

    /// The view was read anew.
    pub fn look_again(&mut self) {
        self.dirty = true;
    }

    /// Up to when the stored definition of a job decides, if another waits to rule from then on.
    #[must_use]
    pub fn ends(&self, job: &JobName) -> Option<wasmcron_core::time::Timestamp> {
        self.pending.get(job).map(|(_, stored)| stored.since)
    }

    /// Compares what is stored with what pods report, and opens what may be opened.
    ///
    /// # Errors
    /// When the store does not answer; what was not opened is tried again.
    pub async fn step(
        &mut self,
        pod: &Pod,
        agenda: &mut Agenda,
        term: &TermRef,
    ) -> Result<Step, StoreError> {
        if self.dirty {
            self.compare(pod, agenda);
            self.dirty = false;
        }
        let mut step = Step::Done;
        for (job, (was, stored)) in self.pending.clone() {
            // What the old definition made due before the new one rules is decided first, unless it
            // waits for a pod in vain: the new definition may be what mends that.
            let owes = agenda.get(job.as_str()).is_some_and(|view| {
                view.waiting.is_none() && due::next_due(view).is_some_and(|at| at <= stored.since)
            });
            if owes {
                continue;
            }
            match pod.store.open(term, &job, was.as_ref(), &stored).await? {
                Opened::Opened { cursor } => {
                    tracing::info!(%job, %cursor, enabled = stored.definition.enabled, "job.opened");
                    pod.metrics.event("job.opened");
                    agenda.upsert(opened(agenda.get(job.as_str()), &job, stored, cursor));
                    step = Step::More;
                }
                Opened::Changed => self.dirty = true,
                Opened::NotLeader => return Ok(Step::NotLeader),
            }
            self.pending.remove(&job);
        }
        Ok(step)
    }

    fn compare(&mut self, pod: &Pod, agenda: &Agenda) {
        let mine = pod.jobs.all();
        self.pending.clear();
        for (job, reports) in &self.reports {
            let reports: Vec<&JobReport> = reports.iter().collect();
            let stored = agenda.get(job.as_str()).map(|view| &view.stored);
            let definition = mine.get(job).map(|known| &known.job.definition);
            match reconcile(stored, definition, &reports) {
                Reconcile::Open { was, stored } => {
                    self.pending.insert(job.clone(), (was, *stored));
                }
                Reconcile::Disagree { definitions } => {
                    if self.disagreeing.insert(job.clone()) {
                        tracing::warn!(%job, definitions, "pods hold different definitions of a job; the stored one rules until they agree");
                    }
                    continue;
                }
                Reconcile::InForce | Reconcile::Orphaned | Reconcile::NotOurs => {}
            }
            self.disagreeing.remove(job);
        }
    }
}

fn opened(
    known: Option<&JobView>,
    job: &JobName,
    stored: StoredDefinition,
    cursor: wasmcron_core::time::Timestamp,
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
mod tests {
    use wasmcron_core::time::Timestamp;
    use wasmcron_core::view::PodLoad;

    use super::*;

    fn pod(address: &str, jobs: &[&str]) -> PodView {
        let since = Timestamp::EPOCH;
        let hash = DefinitionHash::of(b"x");
        let job = |name: &&str| {
            let report = JobReport {
                hash: hash.clone(),
                since,
            };
            (name.parse().expect("a name"), report)
        };
        PodView {
            address: address.parse().expect("an address"),
            session: None,
            heartbeat: None,
            report: Some(Arc::new(PodReport {
                version: String::new(),
                started: since,
                capacity: 1,
                labels: BTreeMap::new(),
                plugins: BTreeMap::new(),
                jobs: jobs.iter().map(job).collect(),
            })),
            load: PodLoad::default(),
            queued: 0,
        }
    }

    #[test]
    fn only_changed_reports_are_looked_into() {
        let job: JobName = "j".parse().expect("a name");
        let mut definitions = Definitions::default();
        let mut live = vec![pod("a", &["j"]), pod("b", &["j"])];
        definitions.heard(&live);
        assert!(definitions.dirty && definitions.reports.contains_key(&job));
        definitions.dirty = false;
        definitions.reports.clear();
        definitions.heard(&live);
        assert!(
            !definitions.dirty && definitions.reports.is_empty(),
            "the same objects"
        );
        live.pop();
        definitions.heard(&live);
        assert!(definitions.dirty && definitions.reports.contains_key(&job));
        definitions.dirty = false;
        live = vec![pod("a", &["j"])];
        definitions.heard(&live);
        assert!(!definitions.dirty, "another object that says the same");
        live = vec![pod("a", &[])];
        definitions.heard(&live);
        assert!(definitions.dirty && !definitions.reports.contains_key(&job));
    }
}
