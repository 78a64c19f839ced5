//! The job definitions this pod has read.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use indexmap::IndexMap;
use wasmcron_core::ids::JobName;
use wasmcron_core::job::Job;
use wasmcron_core::time::Timestamp;
use wasmcron_core::view::JobReport;

use super::observed::{Observer, Source};

/// A job this pod serves.
#[derive(Clone, Debug)]
pub struct Known {
    /// The definition.
    pub job: Arc<Job>,
    /// What the pod reports of it.
    pub report: JobReport,
}

/// Jobs whose latest file was refused, with what is wrong with it.
pub type Refused = BTreeMap<JobName, String>;

/// The book of jobs: written by the reloader, read by everybody.
#[derive(Debug)]
pub struct JobBook {
    jobs: RwLock<Arc<IndexMap<JobName, Known>>>,
    refused: RwLock<Arc<Refused>>,
    version: Source<()>,
}

impl Default for JobBook {
    fn default() -> Self {
        JobBook {
            jobs: RwLock::default(),
            refused: RwLock::default(),
            version: Source::new(()),
        }
    }
}

impl JobBook {
    /// All jobs as they are now.
    #[must_use]
    pub fn all(&self) -> Arc<IndexMap<JobName, Known>> {
        self.jobs
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// One job.
    #[must_use]
    pub fn get(&self, job: &JobName) -> Option<Known> {
        self.all().get(job).cloned()
    }

    /// Replaces all jobs. A job whose definition stays the same keeps the time since when it is
    /// reported; true if anything changed.
    pub fn replace(&self, jobs: impl IntoIterator<Item = Arc<Job>>, now: Timestamp) -> bool {
        let before = self.all();
        let after: IndexMap<JobName, Known> = jobs
            .into_iter()
            .map(|job| {
                let hash = job.definition.hash();
                let since = before
                    .get(&job.name)
                    .filter(|known| known.report.hash == hash);
                let since = since.map_or(now, |known| known.report.since);
                (
                    job.name.clone(),
                    Known {
                        report: JobReport { hash, since },
                        job,
                    },
                )
            })
            .collect();
        let same = before.len() == after.len()
            && after
                .iter()
                .all(|(name, new)| before.get(name).is_some_and(|old| *old.job == *new.job));
        if same {
            return false;
        }
        *self.jobs.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(after);
        self.version.change_if(|()| true);
        true
    }

    /// From now on every job counts as reported for the first time: whoever was told of them forgot it, and
    /// with it which of their times have their answer.
    pub fn reported_anew(&self, now: Timestamp) {
        let mut jobs = self.jobs.write().unwrap_or_else(PoisonError::into_inner);
        let stamped = jobs.iter().map(|(name, known)| {
            let mut known = known.clone();
            known.report.since = now;
            (name.clone(), known)
        });
        *jobs = Arc::new(stamped.collect());
    }

    /// Jobs whose latest file was refused.
    #[must_use]
    pub fn refused(&self) -> Arc<Refused> {
        self.refused
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Replaces what is known of refused files.
    pub fn refuse(&self, refused: Refused) {
        if *self.refused() != refused {
            *self.refused.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(refused);
            self.version.change_if(|()| true);
        }
    }

    /// Tells of every change from now on.
    #[must_use]
    pub fn changes(&self) -> Observer<()> {
        self.version.observe()
    }
}
