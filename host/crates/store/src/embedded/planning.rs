//! The roles of who leads, and of pods.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use wasmcron_core::ids::{DefinitionHash, JobName, PodAddress, PodRef, RunId};
use wasmcron_core::job::StoredDefinition;
use wasmcron_core::time::Timestamp;
use wasmcron_core::view::{JobView, Leader, Pod, PodLoad, PodReport, Waiting};

use super::EmbeddedStore;
use super::engine::{Engine, Tx as _};
use super::limits::{task_within, within};
use super::verbs::Call;
use crate::error::Result;
use crate::leadership::{Campaign, Leadership, Renewal, TermRef};
use crate::page::PageCursor;
use crate::pods::{Draining, Forgotten, Pods, Standing};
use crate::schedule::{
    Changes, Decision, DueDelayed, Opened, Operated, PAGE_MAX, PUBLISH_MAX, PromoteAnswer,
    PublishAnswer, Schedules, Submission, Submitted, ViewPage, ViewVersion,
};

#[async_trait]
impl<E: Engine> Leadership for EmbeddedStore<E> {
    async fn campaign(&self, me: &PodRef, ttl: Duration) -> Result<Campaign> {
        let (options, me) = (self.options, me.clone());
        self.engine
            .write("campaign", move |tx| {
                Call::begin(tx, options)?.campaign(&me, ttl)
            })
            .await
    }

    async fn renew(&self, me: &TermRef, ttl: Duration) -> Result<Renewal> {
        let (options, me) = (self.options, me.clone());
        self.engine
            .write("renew", move |tx| Call::begin(tx, options)?.renew(&me, ttl))
            .await
    }

    async fn resign(&self, me: &TermRef) -> Result<Renewal> {
        let (options, me) = (self.options, me.clone());
        self.engine
            .write("resign", move |tx| Call::begin(tx, options)?.resign(&me))
            .await
    }

    async fn leader(&self) -> Result<Option<Leader>> {
        let options = self.options;
        self.engine
            .read("leader", move |tx| Call::look(tx, options).leader())
            .await
    }
}

#[async_trait]
impl<E: Engine> Pods for EmbeddedStore<E> {
    async fn now(&self) -> Result<Timestamp> {
        self.engine.read("now", |tx| Ok(tx.now())).await
    }

    async fn register(
        &self,
        me: &PodRef,
        started: Timestamp,
        report: &PodReport,
    ) -> Result<Standing> {
        let (options, me, report) = (self.options, me.clone(), Arc::new(report.clone()));
        self.engine
            .write("register", move |tx| {
                Call::begin(tx, options)?.register(&me, started, report)
            })
            .await
    }

    async fn report(&self, me: &PodRef, report: &PodReport) -> Result<Standing> {
        let (options, me, report) = (self.options, me.clone(), Arc::new(report.clone()));
        self.engine
            .write("report", move |tx| {
                Call::begin(tx, options)?.report(&me, report)
            })
            .await
    }

    async fn heartbeat(&self, me: &PodRef, load: &PodLoad, window: Duration) -> Result<Standing> {
        let (options, me, load) = (self.options, me.clone(), load.clone());
        self.engine
            .write("heartbeat", move |tx| {
                Call::begin(tx, options)?.heartbeat(&me, load, window)
            })
            .await
    }

    async fn leave(&self, me: &PodRef) -> Result<Standing> {
        let (options, me) = (self.options, me.clone());
        self.engine
            .write("leave", move |tx| Call::begin(tx, options)?.leave(&me))
            .await
    }

    async fn drain(&self, pod: &PodAddress, by: &str) -> Result<Draining> {
        let (options, pod, by) = (self.options, pod.clone(), by.to_owned());
        self.engine
            .write("drain", move |tx| Call::begin(tx, options)?.drain(&pod, by))
            .await
    }

    async fn forget(
        &self,
        term: &TermRef,
        pod: &PodAddress,
        window: Duration,
    ) -> Result<Forgotten> {
        // Apart from the write, as it reads whole registers: should one name the pod by then, its
        // target counts as gone and the run is moved.
        let (options, named) = (self.options, pod.clone());
        let is_named = self
            .engine
            .read("forget", move |tx| Call::look(tx, options).is_named(&named));
        if is_named.await? {
            return Ok(Forgotten::InUse);
        }
        let (term, pod) = (term.clone(), pod.clone());
        self.engine
            .write("forget", move |tx| {
                Call::begin(tx, options)?.forget(&term, &pod, window)
            })
            .await
    }

    async fn pods(&self) -> Result<Vec<Pod>> {
        let (options, reports) = (self.options, self.reports.clone());
        self.engine
            .read("pods", move |tx| Call::look(tx, options).pods(&reports))
            .await
    }
}

#[async_trait]
impl<E: Engine> Schedules for EmbeddedStore<E> {
    async fn view(&self, cursor: Option<PageCursor>) -> Result<ViewPage> {
        let options = self.options;
        self.engine
            .read("view", move |tx| {
                Call::look(tx, options).view(cursor.as_ref())
            })
            .await
    }

    async fn changes(&self, since: Option<ViewVersion>) -> Result<Changes> {
        let options = self.options;
        self.engine
            .read("changes", move |tx| Call::look(tx, options).changes(since))
            .await
    }

    async fn jobs(&self, jobs: &[JobName]) -> Result<Vec<Option<JobView>>> {
        let mut found = Vec::with_capacity(jobs.len());
        for page in jobs.chunks(PAGE_MAX) {
            let (options, page) = (self.options, page.to_vec());
            let views = self
                .engine
                .read("jobs", move |tx| Call::look(tx, options).jobs(&page))
                .await?;
            found.extend(views);
        }
        Ok(found)
    }

    async fn job(&self, job: &JobName) -> Result<Option<JobView>> {
        let (options, job) = (self.options, job.clone());
        self.engine
            .read("job", move |tx| Call::look(tx, options).job(&job))
            .await
    }

    async fn open(
        &self,
        term: &TermRef,
        job: &JobName,
        was: Option<&DefinitionHash>,
        stored: &StoredDefinition,
    ) -> Result<Opened> {
        let (options, term, job) = (self.options, term.clone(), job.clone());
        let (was, stored) = (was.cloned(), Arc::new(stored.clone()));
        self.engine
            .write("open", move |tx| {
                Call::begin(tx, options)?.open(&term, &job, was.as_ref(), stored)
            })
            .await
    }

    async fn publish(&self, term: &TermRef, decisions: &[Decision]) -> Result<PublishAnswer> {
        within("decisions in one publish", decisions.len(), PUBLISH_MAX)?;
        for decision in decisions {
            if let Decision::Fire { task, .. } = decision {
                task_within(task)?;
            }
        }
        let (options, term, decisions) = (self.options, term.clone(), decisions.to_vec());
        self.engine
            .write("publish", move |tx| {
                Call::begin(tx, options)?.publish(&term, decisions)
            })
            .await
    }

    async fn due_delayed(&self, limit: usize) -> Result<DueDelayed> {
        let options = self.options;
        self.engine
            .read("due_delayed", move |tx| {
                Call::look(tx, options).due_delayed(limit)
            })
            .await
    }

    async fn promote(
        &self,
        term: &TermRef,
        moves: &[(RunId, PodAddress)],
    ) -> Result<PromoteAnswer> {
        within("moves in one promote", moves.len(), PAGE_MAX)?;
        let (options, term, moves) = (self.options, term.clone(), moves.to_vec());
        self.engine
            .write("promote", move |tx| {
                Call::begin(tx, options)?.promote(&term, &moves)
            })
            .await
    }

    async fn explain_delayed(
        &self,
        term: &TermRef,
        run: &RunId,
        why: &str,
        look_again_in: Duration,
    ) -> Result<()> {
        let (options, term, run, why) = (self.options, term.clone(), run.clone(), why.to_owned());
        self.engine
            .write("explain_delayed", move |tx| {
                Call::begin(tx, options)?.explain_delayed(&term, &run, why, look_again_in)
            })
            .await
    }

    async fn submit(&self, submission: &Submission) -> Result<Submitted> {
        task_within(&submission.task)?;
        let (options, submission) = (self.options, submission.clone());
        self.engine
            .write("submit", move |tx| {
                Call::begin(tx, options)?.submit(submission)
            })
            .await
    }

    async fn pause(&self, job: &JobName, by: &str, why: &str) -> Result<Operated> {
        let (options, job, by, why) = (self.options, job.clone(), by.to_owned(), why.to_owned());
        self.engine
            .write("pause", move |tx| {
                Call::begin(tx, options)?.pause(&job, by, why)
            })
            .await
    }

    async fn resume(&self, job: &JobName, by: &str) -> Result<Operated> {
        let (options, job, by) = (self.options, job.clone(), by.to_owned());
        self.engine
            .write("resume", move |tx| {
                Call::begin(tx, options)?.resume(&job, by)
            })
            .await
    }

    async fn release(&self, job: &JobName, by: &str) -> Result<Operated> {
        let (options, job, by) = (self.options, job.clone(), by.to_owned());
        self.engine
            .write("release", move |tx| {
                Call::begin(tx, options)?.release(&job, by)
            })
            .await
    }

    async fn set_waiting(
        &self,
        term: &TermRef,
        job: &JobName,
        waiting: Option<&Waiting>,
    ) -> Result<()> {
        let (options, term, job) = (self.options, term.clone(), job.clone());
        let waiting = waiting.cloned();
        self.engine
            .write("set_waiting", move |tx| {
                Call::begin(tx, options)?.set_waiting(&term, &job, waiting)
            })
            .await
    }

    async fn retire(&self, term: &TermRef, job: &JobName) -> Result<Operated> {
        let (options, term, job) = (self.options, term.clone(), job.clone());
        self.engine
            .write("retire", move |tx| {
                Call::begin(tx, options)?.retire(&term, &job)
            })
            .await
    }
}
