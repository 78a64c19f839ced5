//! The roles of the recoverer, and of people and tools.

use async_trait::async_trait;
use wasmcron_core::ids::{JobName, PodAddress, RunId};
use wasmcron_core::run::{Checkpoint, RunRecord};
use wasmcron_core::time::Timestamp;
use wasmcron_core::view::{DelayedEntry, Gap, Hold, LockHolder, RunningEntry, ScheduledEntry};

use super::EmbeddedStore;
use super::engine::Engine;
use super::verbs::Call;
use crate::error::Result;
use crate::inspect::{Cleared, Counts, ExecutionEvent, Inspect, LogPage, Rewound};
use crate::leadership::TermRef;
use crate::page::PageCursor;
use crate::recovery::{EntryId, Losing, Loss, Page, Recovery, Register, Republished, Seen};
use crate::runs::Retention;

#[async_trait]
impl<E: Engine> Recovery for EmbeddedStore<E> {
    async fn scheduled(&self, cursor: Option<PageCursor>) -> Result<Page<ScheduledEntry>> {
        let options = self.options;
        self.engine
            .read("scheduled", move |tx| {
                Call::look(tx, options).scheduled(cursor.as_ref())
            })
            .await
    }

    async fn running(&self, cursor: Option<PageCursor>) -> Result<Page<RunningEntry>> {
        let options = self.options;
        self.engine
            .read("running", move |tx| {
                Call::look(tx, options).running(cursor.as_ref())
            })
            .await
    }

    async fn locks(&self, jobs: &[JobName]) -> Result<Vec<Option<LockHolder>>> {
        let (options, of) = (self.options, jobs.to_vec());
        let (locks, too_long) = self
            .engine
            .read("locks", move |tx| Call::look(tx, options).locks(&of))
            .await?;
        if too_long {
            let of = jobs.to_vec();
            self.engine
                .write("locks", move |tx| Call::begin(tx, options)?.cut_locks(&of))
                .await?;
        }
        Ok(locks)
    }

    async fn recoveries(&self, runs: &[RunId]) -> Result<Vec<u32>> {
        let (options, runs) = (self.options, runs.to_vec());
        self.engine
            .read("recoveries", move |tx| {
                Call::look(tx, options).recoveries(&runs)
            })
            .await
    }

    async fn republish(
        &self,
        term: &TermRef,
        run: &RunId,
        seen: Seen,
        to: &PodAddress,
        why: &str,
        counted: bool,
    ) -> Result<Republished> {
        let (options, term, run) = (self.options, term.clone(), run.clone());
        let (to, why) = (to.clone(), why.to_owned());
        self.engine
            .write("republish", move |tx| {
                Call::begin(tx, options)?.republish(&term, &run, seen, &to, why, counted)
            })
            .await
    }

    async fn lose(&self, term: &TermRef, run: &RunId, seen: Seen, loss: &Loss) -> Result<Losing> {
        let (options, term, run, loss) = (self.options, term.clone(), run.clone(), loss.clone());
        self.engine
            .write("lose", move |tx| {
                Call::begin(tx, options)?.lose(&term, &run, seen, loss)
            })
            .await
    }

    async fn began(&self, runs: &[RunId]) -> Result<Vec<Option<Timestamp>>> {
        let (options, runs) = (self.options, runs.to_vec());
        self.engine
            .read("began", move |tx| Call::look(tx, options).began(&runs))
            .await
    }

    async fn give_up(&self, term: &TermRef, run: &RunId, loss: &Loss) -> Result<Losing> {
        let (options, term, run, loss) = (self.options, term.clone(), run.clone(), loss.clone());
        self.engine
            .write("give_up", move |tx| {
                Call::begin(tx, options)?.give_up(&term, &run, loss)
            })
            .await
    }

    async fn bury(
        &self,
        term: &TermRef,
        register: Register,
        id: &EntryId,
        retention: Retention,
    ) -> Result<bool> {
        let (options, term, id) = (self.options, term.clone(), id.to_string());
        self.engine
            .write("bury", move |tx| {
                Call::begin(tx, options)?.bury(&term, register, &id, retention)
            })
            .await
    }
}

#[async_trait]
impl<E: Engine> Inspect for EmbeddedStore<E> {
    async fn run(&self, run: &RunId) -> Result<Option<RunRecord>> {
        let (options, run) = (self.options, run.clone());
        self.engine
            .read("run", move |tx| Call::look(tx, options).run(&run))
            .await
    }

    async fn runs(&self, job: &JobName, limit: usize) -> Result<Vec<RunRecord>> {
        let (options, job) = (self.options, job.clone());
        self.engine
            .read("runs", move |tx| Call::look(tx, options).runs(&job, limit))
            .await
    }

    async fn delayed(&self, run: &RunId) -> Result<Option<DelayedEntry>> {
        let (options, run) = (self.options, run.clone());
        self.engine
            .read("delayed", move |tx| Call::look(tx, options).delayed(&run))
            .await
    }

    async fn gaps(&self, job: &JobName, limit: usize) -> Result<Vec<Gap>> {
        let (options, job) = (self.options, job.clone());
        self.engine
            .read("gaps", move |tx| Call::look(tx, options).gaps(&job, limit))
            .await
    }

    async fn log(&self, run: &RunId, after: Option<&str>, limit: usize) -> Result<LogPage> {
        let (options, run, after) = (self.options, run.clone(), after.map(str::to_owned));
        self.engine
            .read("log", move |tx| {
                Call::look(tx, options).lines(&run, after.as_deref(), limit)
            })
            .await
    }

    async fn execution_log(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ExecutionEvent>> {
        let (options, after) = (self.options, after.map(str::to_owned));
        self.engine
            .read("execution_log", move |tx| {
                Call::look(tx, options).execution_log(after.as_deref(), limit)
            })
            .await
    }

    async fn checkpoint(&self, run: &RunId) -> Result<Option<Checkpoint>> {
        let (options, run) = (self.options, run.clone());
        self.engine
            .read("checkpoint", move |tx| {
                Call::look(tx, options).checkpoint(&run)
            })
            .await
    }

    async fn checkpoints(&self, run: &RunId) -> Result<Vec<Checkpoint>> {
        let (options, run) = (self.options, run.clone());
        self.engine
            .read("checkpoints", move |tx| {
                Call::look(tx, options).checkpoints(&run)
            })
            .await
    }

    async fn rewind_checkpoint(&self, run: &RunId, seq: u64, by: &str) -> Result<Rewound> {
        let (options, run, by) = (self.options, run.clone(), by.to_owned());
        self.engine
            .write("rewind_checkpoint", move |tx| {
                Call::begin(tx, options)?.rewind_checkpoint(&run, seq, by)
            })
            .await
    }

    async fn quarantined(&self) -> Result<Vec<(JobName, Hold)>> {
        let options = self.options;
        self.engine
            .read("quarantined", move |tx| {
                Call::look(tx, options).quarantined()
            })
            .await
    }

    async fn clear_checkpoint(&self, run: &RunId, by: &str) -> Result<Cleared> {
        let (options, run, by) = (self.options, run.clone(), by.to_owned());
        self.engine
            .write("clear_checkpoint", move |tx| {
                Call::begin(tx, options)?.clear_checkpoint(&run, by)
            })
            .await
    }

    async fn warnings(&self) -> Result<Vec<String>> {
        self.engine.warnings().await
    }

    async fn counts(&self) -> Result<Counts> {
        let options = self.options;
        self.engine
            .read("counts", move |tx| Call::look(tx, options).counts())
            .await
    }
}
