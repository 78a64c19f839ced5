//! What the store acknowledged, kept a second time and by other means than the store's own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use wasmcron_core::ids::{Delivery, Fence, JobName, PodAddress, RunId, Token};
use wasmcron_core::job::StoredDefinition;
use wasmcron_core::time::Timestamp;

/// Numbers of broken invariants with what broke them.
pub type Broken = Vec<(u8, String)>;

/// One run as its writes told.
#[derive(Clone, Debug, Default)]
pub struct RunFacts {
    /// It is over, in this state.
    pub ended: Option<String>,
    /// An attempt of it was claimed.
    pub begun: bool,
    /// The attempt that may write.
    pub open: Option<Fence>,
    /// Who holds it.
    pub holder: Option<Holder>,
    /// Deliveries that became attempts.
    pub used: BTreeSet<Delivery>,
    /// Attempts that their own pods ended.
    pub finished: BTreeSet<Fence>,
    /// Somebody asked for it, so it is no answer to a nominal time and is never skipped.
    pub asked_for: bool,
    /// Sequence and step of the last acknowledged checkpoint.
    pub saved: Option<(u64, u32)>,
    /// An operator removed its checkpoints, so a resume may begin anew.
    pub cleared: bool,
    /// The store stopped half-way in making it: only the scan for what waits too long may find it, and a
    /// pause or a new definition, which answer all times since the cursor unseen, may pass its time.
    pub half: bool,
    /// A failover lost something of it: it may do things twice.
    pub tainted: bool,
}

/// Who was given an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The pod.
    pub pod: PodAddress,
    /// By which take.
    pub token: Token,
    /// When, since the world began.
    pub at: Duration,
    /// Its guest began.
    pub guest: bool,
}

/// One job as its writes told.
#[derive(Clone, Debug, Default)]
pub struct JobFacts {
    /// Definitions with the cursor from which each ruled.
    pub opened: Vec<(Timestamp, StoredDefinition)>,
    /// An operator was told that it is paused.
    pub paused: bool,
    /// The newest fence that was given out for it.
    pub newest: Option<Fence>,
    /// The run that has begun and not ended.
    pub active: Option<RunId>,
    /// A failover lost something of a run of it: its old attempts may go on for a while.
    pub tainted: bool,
}

/// The ledger.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// Every run that was made.
    pub runs: BTreeMap<RunId, Arc<RunFacts>>,
    /// Every job that was opened.
    pub jobs: BTreeMap<JobName, Arc<JobFacts>>,
    /// Runs whose facts changed since the last snapshot was taken.
    pub touched: BTreeSet<RunId>,
    /// The largest fence that was ever given out.
    newest: Option<Fence>,
}

impl Ledger {
    /// The facts of a run, to be changed.
    pub fn run(&mut self, run: &RunId) -> &mut RunFacts {
        self.touched.insert(run.clone());
        Arc::make_mut(self.runs.entry(run.clone()).or_default())
    }

    /// The facts of a job, to be changed.
    pub fn job(&mut self, job: &JobName) -> &mut JobFacts {
        Arc::make_mut(self.jobs.entry(job.clone()).or_default())
    }

    /// A run is made.
    pub fn made(&mut self, run: &RunId, broken: &mut Broken) {
        match self.runs.get(run) {
            Some(known) if !known.tainted => {
                broken.push((1, format!("{run} was made a second time")));
            }
            _ => {
                self.run(run);
            }
        }
    }

    /// An attempt is given out, or given again to the one who asks again.
    pub fn claimed(
        &mut self,
        (run, delivery): (&RunId, Delivery),
        fence: Fence,
        holder: Holder,
        checkpoint: Option<u64>,
        broken: &mut Broken,
    ) {
        let job = run.job();
        let facts = self.runs.get(run).cloned().unwrap_or_default();
        if !self.runs.contains_key(run) {
            broken.push((1, format!("{run} was claimed and never made")));
        }
        if let Some(state) = &facts.ended
            && !facts.tainted
        {
            broken.push((3, format!("{run} had ended as {state} and was claimed")));
        }
        if facts.open == Some(fence) {
            return;
        }
        if let Some(open) = facts.open
            && !facts.tainted
        {
            broken.push((
                2,
                format!("{run}: fence {fence} was given out while {open} was valid"),
            ));
        }
        if facts.used.contains(&delivery) && !facts.tainted {
            broken.push((
                2,
                format!("{run}: delivery {delivery} became a second attempt"),
            ));
        }
        if self.newest.is_some_and(|newest| fence <= newest) {
            broken.push((
                2,
                format!("{run}: fence {fence} is not larger than every earlier one"),
            ));
        }
        self.check_alone(run, &job, broken);
        let sequence = facts.saved.map(|(sequence, _)| sequence);
        if checkpoint < sequence && !facts.cleared && !facts.tainted {
            broken.push((
                6,
                format!(
                    "{run}: an attempt got checkpoint {checkpoint:?}, {sequence:?} was acknowledged"
                ),
            ));
        }
        self.newest = Some(fence);
        let of = self.job(&job);
        of.newest = Some(fence);
        of.active = Some(run.clone());
        let facts = self.run(run);
        facts.begun = true;
        facts.open = Some(fence);
        facts.holder = Some(holder);
        facts.used.insert(delivery);
    }

    /// No other run of the job has begun and not ended.
    fn check_alone(&self, run: &RunId, job: &JobName, broken: &mut Broken) {
        let Some(facts) = self.jobs.get(job).filter(|job| !job.tainted) else {
            return;
        };
        if let Some(other) = facts.active.as_ref().filter(|active| *active != run) {
            broken.push((
                2,
                format!("{run} was claimed while {other} had begun and not ended"),
            ));
        }
    }

    /// An attempt is closed: by its own finish, a hand-back or the recoverer.
    pub fn closed(&mut self, run: &RunId, fence: Fence, broken: &mut Broken) {
        let facts = self.run(run);
        if facts.open != Some(fence) && !facts.tainted {
            let open = facts.open;
            broken.push((
                5,
                format!("{run}: fence {fence} was closed, {open:?} was open"),
            ));
        }
        facts.open = None;
    }

    /// A run is over.
    pub fn ended(&mut self, run: &RunId, state: &str, broken: &mut Broken) {
        let facts = self.run(run);
        if let Some(before) = &facts.ended
            && !facts.tainted
        {
            broken.push((3, format!("{run} ended as {before} and again as {state}")));
        }
        if let Some(open) = facts.open.take()
            && !facts.tainted
        {
            broken.push((2, format!("{run} ended while fence {open} was valid")));
        }
        facts.ended = Some(state.to_owned());
        let of = self.job(&run.job());
        if of.active.as_ref() == Some(run) {
            of.active = None;
        }
    }

    /// A checkpoint is acknowledged.
    pub fn saved(
        &mut self,
        run: &RunId,
        fence: Fence,
        sequence: u64,
        step: u32,
        broken: &mut Broken,
    ) {
        let facts = self.run(run);
        if facts.open != Some(fence) && !facts.tainted {
            let open = facts.open;
            broken.push((
                2,
                format!("{run}: fence {fence} saved a checkpoint, {open:?} was open"),
            ));
        }
        if let Some((last, at)) = facts.saved
            && (sequence < last || (sequence > last && step < at))
            && !facts.tainted
            && !facts.cleared
        {
            broken.push((
                6,
                format!("{run}: checkpoint {sequence} (step {step}) came after {last} (step {at})"),
            ));
        }
        if facts.saved.is_none_or(|(last, _)| sequence >= last) {
            facts.saved = Some((sequence, step));
        }
    }

    /// A guest does something.
    pub fn effect(
        &mut self,
        job: &JobName,
        run: &RunId,
        fence: Fence,
        step: u32,
        broken: &mut Broken,
    ) {
        let facts = self.runs.get(run).cloned().unwrap_or_default();
        let job_facts = self.jobs.get(job).cloned().unwrap_or_default();
        if facts.tainted || job_facts.tainted {
            return;
        }
        if job_facts.newest != Some(fence) {
            let newest = job_facts.newest;
            broken.push((
                2,
                format!("{run}: a guest of fence {fence} acted, {newest:?} is the newest"),
            ));
        }
        if let Some(state) = &facts.ended {
            broken.push((
                3,
                format!("{run}: a guest acted after the run ended as {state}"),
            ));
        }
        if let Some((sequence, saved)) = facts.saved
            && step < saved
            && !facts.cleared
        {
            broken.push((
                6,
                format!("{run}: step {step} was done again after checkpoint {sequence} at {saved}"),
            ));
        }
    }

    /// Forgets what is not in `then`, and marks whatever changed since.
    pub fn fall_back_to(&mut self, then: &Ledger) {
        let touched: BTreeSet<RunId> = self
            .touched
            .iter()
            .filter(|run| {
                let (now, before) = (self.runs.get(*run), then.runs.get(*run));
                !matches!((now, before), (Some(now), Some(before)) if Arc::ptr_eq(now, before))
            })
            .cloned()
            .collect();
        let newest = self.newest;
        let jobs = std::mem::take(&mut self.jobs);
        *self = then.clone();
        self.newest = newest;
        for (job, now) in jobs {
            let known = self.job(&job);
            known.newest = now.newest;
            known.tainted |= now.tainted;
        }
        for run in touched {
            let was_known = self.runs.contains_key(&run);
            self.job(&run.job()).tainted = true;
            if was_known {
                self.run(&run).tainted = true;
            }
        }
    }
}
