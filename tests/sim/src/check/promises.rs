//! What the witness expects of single answers: a repeat by the rightful owner is answered as the first
//! request was, and what people were told holds.

use std::time::Duration;

use wasmcron_core::ids::{Fence, JobName, PodRef, RunId};
use wasmcron_core::job::StoredDefinition;
use wasmcron_core::view::Leader;
use wasmcron_store::leadership::Campaign;
use wasmcron_store::queue::{Claim, Claimed};
use wasmcron_store::recovery::Seen;
use wasmcron_store::runs::Finished;
use wasmcron_store::schedule::{Decision, Opened};

use super::Watched;
use super::ledger::{Ledger, RunFacts};

/// So many repeats of a claim fit into the time of its lock: with as many that did not reach the store the
/// pod could not know what it holds.
const REPEATS_IN_A_LOCK: usize = 2;

impl Ledger {
    /// What is known of a run that nothing was lost of.
    fn sound(&self, run: &RunId) -> Option<&RunFacts> {
        let of_job = self.jobs.get(&run.job());
        let facts = self.runs.get(run).map(|facts| &**facts);
        facts.filter(|facts| !facts.tainted && of_job.is_none_or(|job| !job.tainted))
    }

    /// The guest of an attempt begins.
    pub fn guest_begins(&mut self, run: &RunId, fence: Fence) {
        if self
            .runs
            .get(run)
            .is_some_and(|facts| facts.open == Some(fence))
            && let Some(holder) = &mut self.run(run).holder
        {
            holder.guest = true;
        }
    }
}

impl Watched {
    fn sound<T>(&self, run: &RunId, look: impl FnOnce(&RunFacts) -> T) -> Option<T> {
        self.witness.with(|ledger, _| ledger.sound(run).map(look))
    }

    /// The session that leads is told so again.
    pub(super) fn campaign_is_fair(&self, me: &PodRef, before: Option<&Leader>, answer: &Campaign) {
        if let Some(leader) = before.filter(|leader| leader.pod == *me)
            && *answer != Campaign::Won(leader.term)
        {
            let (pod, term) = (&me.address, leader.term);
            self.witness.broken(
                8,
                format!("{pod} leads in term {term} and was told {answer:?}"),
            );
        }
    }

    /// A new job's cursor is when it was first reported.
    pub(super) async fn opens_as_reported(
        &self,
        job: &JobName,
        stored: &StoredDefinition,
        answer: &Opened,
    ) {
        let Ok(now) = self.inner.now().await else {
            return;
        };
        let since = stored.since.min(now);
        if let Opened::Opened { cursor } = answer
            && *cursor != since
        {
            self.witness.broken(
                7,
                format!("{job} is there since {since}, its cursor began at {cursor}"),
            );
        }
    }

    /// Who has an attempt and claims it again gets it again; who gets one has its lock in full.
    pub(super) async fn claim_is_fair(&self, claim: &Claim, answer: &Claimed) {
        let run = &claim.taken.run;
        match answer {
            Claimed::Claimed(attempt) => {
                let locks = self.inner.locks(&[run.job()]).await.unwrap_or_default();
                let left = locks.into_iter().flatten().next();
                let left = left.filter(|lock| lock.fence == attempt.fence);
                let left = left.map_or(Duration::ZERO, |lock| lock.expires_in);
                if left < claim.lock_ttl {
                    let fence = attempt.fence;
                    self.witness.broken(
                        8,
                        format!("{run}: fence {fence} was given out with {left:?} of lock left"),
                    );
                }
            }
            Claimed::Superseded => {}
            Claimed::Stale | Claimed::Overlap { .. } => {
                let has = |facts: &RunFacts| {
                    facts.open.filter(|_| {
                        let holder = facts.holder.as_ref();
                        holder.is_some_and(|holder| holder.token == claim.token)
                    })
                };
                if let Some(fence) = self.sound(run, has).flatten() {
                    self.witness.broken(
                        8,
                        format!("{run}: a repeated claim of fence {fence} was refused: {answer:?}"),
                    );
                }
            }
        }
    }

    /// A write may only be refused if the attempt was closed or its lock ran out.
    pub(super) async fn must_be_fenced(&self, run: &RunId, fence: Fence) {
        let open = self.sound(run, |facts| facts.open == Some(fence));
        if open == Some(true) && self.is_alive(run, fence).await {
            self.witness.broken(
                8,
                format!("{run}: fence {fence} holds its lock and was told that it is fenced"),
            );
        }
    }

    /// An attempt that is open may end, and one that its pod ended has ended.
    pub(super) fn finish_is_fair(&self, run: &RunId, fence: Fence, answer: Finished) {
        let known = self.sound(run, |facts| {
            (facts.open == Some(fence), facts.finished.contains(&fence))
        });
        let fair = match (known, answer) {
            (Some((true, _)), Finished::Fenced | Finished::AlreadyFinished) => false,
            (Some((_, true)), answer) => answer == Finished::AlreadyFinished,
            _ => true,
        };
        if !fair {
            self.witness.broken(
                8,
                format!("{run}: a finish of fence {fence} was answered {answer:?}"),
            );
        }
        if answer == Finished::Finished {
            self.witness
                .with(|ledger, _| ledger.run(run).finished.insert(fence));
        }
    }

    /// A paused job does not fire.
    pub(super) fn may_fire(&self, decision: &Decision) {
        let Decision::Fire { task, .. } = decision else {
            return;
        };
        let is_paused =
            |ledger: &mut Ledger| ledger.jobs.get(&task.job).is_some_and(|job| job.paused);
        if self.witness.with(|ledger, _| is_paused(ledger)) {
            self.witness.broken(
                9,
                format!("{} was published after its job was paused", task.run),
            );
        }
    }

    /// Only a firing that has not begun is skipped.
    pub(super) fn may_be_skipped(&self, run: &RunId) {
        let why = self.sound(run, |facts| match (facts.begun, facts.asked_for) {
            (true, _) => Some("had begun"),
            (_, true) => Some("was asked for"),
            _ => None,
        });
        if let Some(why) = why.flatten() {
            self.witness
                .broken(9, format!("{run} {why} and was skipped"));
        }
    }

    /// What is taken from a pod that was well all the time was not known to anybody.
    pub(super) fn was_not_forgotten(&self, run: &RunId, seen: Seen, why: &str) {
        let is_half = self
            .witness
            .with(|ledger, _| ledger.runs.get(run).is_some_and(|facts| facts.half));
        if why.starts_with("scheduled too long") && !is_half {
            self.witness
                .broken(4, format!("{run} was forgotten in a queue: {why}"));
        }
        let Seen::Running(fence) = seen else { return };
        let holder = self.sound(run, |facts| {
            facts.holder.clone().filter(|_| facts.open == Some(fence))
        });
        if let Some(holder) = holder.flatten()
            && !holder.guest
            && self.witness.was_well(&holder.pod, holder.at)
            && self.witness.claims_in_vain(&holder.pod, holder.at) < REPEATS_IN_A_LOCK
        {
            let pod = &holder.pod;
            self.witness.broken(
                4,
                format!("{run}: {pod} claimed fence {fence}, was well, and began nothing"),
            );
        }
    }
}
