//! The witness before the store: every hook looks at a request when it is executed, whoever still
//! waits for its answer.

use wasmcron_core::ids::Fence;
use wasmcron_core::run::RunState;
use wasmcron_store::queue::Hold;
use wasmcron_store::runs::Next;
use wasmcron_store::schedule::{Promoted, Published};

use super::Witness;
use super::ledger::Holder;
use crate::layer::Layer;

use crate::verbs::words::*;

/// A store that is watched.
pub struct Watched {
    pub(super) witness: Arc<Witness>,
    pub(super) inner: Arc<dyn Store>,
}

impl Watched {
    /// Tells `witness` what `inner` answers.
    #[must_use]
    pub fn new(witness: Arc<Witness>, inner: Arc<dyn Store>) -> Watched {
        Watched { witness, inner }
    }

    /// Whether the caller leads, asked before its verb: the store must have refused it otherwise.
    async fn leads(&self, term: &TermRef) -> bool {
        let leader = self.inner.leader().await.ok().flatten();
        leader.is_some_and(|leader| leader.pod == term.pod && leader.term == term.term)
    }

    fn must_lead(&self, leads: bool, term: &TermRef, what: &str) {
        if !leads {
            let pod = &term.pod.address;
            self.witness.broken(
                5,
                format!("{pod} changed something without leading: {what}"),
            );
        }
    }

    /// How the store's record says a run is.
    async fn state(&self, run: &RunId) -> Option<RunState> {
        let record = self.inner.run(run).await.ok().flatten()?;
        record.state.is_ended().then_some(record.state)
    }

    async fn closed(&self, run: &RunId, fence: Fence) {
        self.witness
            .with(|ledger, broken| ledger.closed(run, fence, broken));
        if let Some(state) = self.state(run).await {
            self.ended(run, state);
        }
    }

    fn ended(&self, run: &RunId, state: RunState) {
        self.witness
            .with(|ledger, broken| ledger.ended(run, state.as_str(), broken));
    }

    /// Whether the lock of the run's job is held by this fence.
    pub(super) async fn is_alive(&self, run: &RunId, fence: Fence) -> bool {
        let locks = self.inner.locks(&[run.job()]).await.unwrap_or_default();
        let holder = locks.into_iter().next().flatten();
        holder.is_some_and(|holder| holder.fence == fence)
    }

    fn must_be_dead(&self, alive: bool, run: &RunId, fence: Fence) {
        if alive {
            self.witness.broken(
                2,
                format!("{run} was taken from fence {fence}, whose lock was held"),
            );
        }
    }
}

fn step_of(data: &[u8]) -> u32 {
    let text = std::str::from_utf8(data).unwrap_or_default();
    text.rsplit_once('|')
        .and_then(|(_, step)| step.parse().ok())
        .unwrap_or(0)
}

#[async_trait]
impl Layer for Watched {
    fn inner(&self) -> &Arc<dyn Store> {
        &self.inner
    }

    async fn campaign(&self, me: &PodRef, ttl: Duration) -> Result<Campaign> {
        let before = self.inner.leader().await.ok().flatten();
        let answer = self.inner.campaign(me, ttl).await?;
        self.campaign_is_fair(me, before.as_ref(), &answer);
        if let Campaign::Won(term) = answer {
            self.witness
                .event("leads", me.address.as_str(), || format!("term {term}"));
            if before.is_some_and(|leader| leader.pod != *me) {
                self.witness
                    .broken(5, format!("{} won the lease of another", me.address));
            }
        }
        Ok(answer)
    }

    async fn open(
        &self,
        term: &TermRef,
        job: &JobName,
        was: Option<&DefinitionHash>,
        stored: &StoredDefinition,
    ) -> Result<Opened> {
        let leads = self.leads(term).await;
        let first = self.inner.job(job).await?.is_none();
        let answer = self.inner.open(term, job, was, stored).await?;
        if first {
            self.opens_as_reported(job, stored, &answer).await;
        }
        if let Opened::Opened { cursor } = answer {
            self.must_lead(leads, term, "a definition");
            self.witness
                .event("opened", job.as_str(), || format!("cursor {cursor}"));
            self.witness.with(|ledger, _| {
                let opened = &mut ledger.job(job).opened;
                if opened
                    .last()
                    .is_none_or(|(_, known)| known.hash != stored.hash)
                {
                    opened.push((cursor, stored.clone()));
                }
            });
        }
        Ok(answer)
    }

    async fn publish(&self, term: &TermRef, decisions: &[Decision]) -> Result<PublishAnswer> {
        let leads = self.leads(term).await;
        let answer = self.inner.publish(term, decisions).await?;
        let PublishAnswer::Answers(answers) = &answer else {
            return Ok(answer);
        };
        for (decision, answer) in decisions.iter().zip(answers) {
            let (of, done) = match decision {
                Decision::Fire { task, .. } => (task.run.as_str(), *answer == Published::Published),
                Decision::Gap { job, .. } => (job.as_str(), *answer == Published::Published),
            };
            self.witness.event("publish", of, || format!("{answer:?}"));
            if !done {
                continue;
            }
            self.may_fire(decision);
            self.must_lead(leads, term, of);
            if let Decision::Fire { task, .. } = decision {
                self.witness
                    .with(|ledger, broken| ledger.made(&task.run, broken));
            }
        }
        Ok(answer)
    }

    async fn promote(
        &self,
        term: &TermRef,
        moves: &[(RunId, PodAddress)],
    ) -> Result<PromoteAnswer> {
        let leads = self.leads(term).await;
        let answer = self.inner.promote(term, moves).await?;
        if let PromoteAnswer::Answers(answers) = &answer {
            for ((run, to), answer) in moves.iter().zip(answers) {
                self.witness
                    .event("promote", run.as_str(), || format!("to {to}: {answer:?}"));
                if *answer == Promoted::Promoted {
                    self.must_lead(leads, term, run.as_str());
                }
            }
        }
        Ok(answer)
    }

    async fn submit(&self, submission: &Submission) -> Result<Submitted> {
        let answer = self.inner.submit(submission).await?;
        if let Submitted::Accepted { run } = &answer {
            self.witness.event("submit", run.as_str(), String::new);
            self.witness.with(|ledger, broken| {
                ledger.made(run, broken);
                ledger.run(run).asked_for = true;
            });
        }
        Ok(answer)
    }

    async fn claim(&self, claim: &Claim) -> Result<Claimed> {
        let answer = self.inner.claim(claim).await?;
        self.claim_is_fair(claim, &answer).await;
        self.witness
            .event("claim", claim.taken.run.as_str(), || match &answer {
                Claimed::Claimed(attempt) => format!(
                    "by {}: attempt {} fence {}",
                    claim.me.address, attempt.task.attempt, attempt.fence
                ),
                other => format!("by {}: {other:?}", claim.me.address),
            });
        if let Claimed::Claimed(attempt) = &answer {
            let sequence = attempt.checkpoint.as_ref().map(|kept| kept.seq);
            let holder = Holder {
                pod: claim.me.address.clone(),
                token: claim.token.clone(),
                at: self.witness.elapsed(),
                guest: false,
            };
            let taken = (&claim.taken.run, claim.taken.delivery);
            self.witness.with(|ledger, broken| {
                ledger.claimed(taken, attempt.fence, holder, sequence, broken);
            });
        }
        Ok(answer)
    }

    async fn skip(&self, me: &PodRef, taken: &Taken, why: &str) -> Result<Moved> {
        let before = self.state(&taken.run).await;
        let answer = self.inner.skip(me, taken, why).await?;
        self.witness
            .event("skip", taken.run.as_str(), || format!("{answer:?}"));
        if answer == Moved::Moved && before.is_none() {
            self.may_be_skipped(&taken.run);
            self.ended(&taken.run, RunState::Skipped);
        }
        Ok(answer)
    }

    async fn park(&self, me: &PodRef, taken: &Taken, queue_max: u32) -> Result<Parked> {
        let answer = self.inner.park(me, taken, queue_max).await?;
        self.witness
            .event("park", taken.run.as_str(), || format!("{answer:?}"));
        Ok(answer)
    }

    async fn hand_back(&self, back: &HandBack) -> Result<Moved> {
        let executes = match back.hold {
            Hold::Fence { fence, .. } => self.is_open(&back.run, fence).then_some(fence),
            Hold::Delivery(_) => None,
        };
        let answer = self.inner.hand_back(back).await?;
        self.witness.event("hand-back", back.run.as_str(), || {
            format!("by {}: {answer:?} ({})", back.me.address, back.why)
        });
        if let (Moved::Moved, Some(fence)) = (answer, executes) {
            self.closed(&back.run, fence).await;
        }
        Ok(answer)
    }

    /// A failover may lose what was promised here: whoever was promised then acts longer than it may.
    async fn extend(
        &self,
        me: &PodRef,
        attempts: &[AttemptRef],
        lock_ttl: Duration,
    ) -> Result<Vec<Extension>> {
        let answers = self.inner.extend(me, attempts, lock_ttl).await?;
        self.witness.with(|ledger, _| {
            for (attempt, answer) in attempts.iter().zip(&answers) {
                if *answer != Extension::Lost {
                    ledger.run(&attempt.run);
                }
            }
        });
        Ok(answers)
    }

    async fn save_checkpoint(&self, save: &SaveCheckpoint) -> Result<Saved> {
        let answer = self.inner.save_checkpoint(save).await?;
        let (run, fence) = (&save.attempt.run, save.attempt.fence);
        self.witness.event("save", run.as_str(), || {
            format!("fence {fence}: {answer:?}")
        });
        if answer == Saved::Fenced {
            self.must_be_fenced(run, fence).await;
        }
        // A late repeat is told that it was saved and changes nothing: what counts is what is kept.
        let kept = match answer {
            Saved::Saved(_) => self.inner.checkpoint(run).await?,
            _ => None,
        };
        if let Some(kept) = kept.filter(|kept| kept.fence == fence) {
            let (sequence, step) = (kept.seq, step_of(&kept.data));
            self.witness.with(|ledger, broken| {
                ledger.saved(run, fence, sequence, step, broken);
            });
        }
        Ok(answer)
    }

    async fn finish(&self, finish: &Finish) -> Result<Finished> {
        let (run, fence) = (&finish.attempt.run, finish.attempt.fence);
        let answer = self.inner.finish(finish).await?;
        self.witness.event("finish", run.as_str(), || {
            let goes_on = matches!(finish.next, Next::Again { .. });
            let outcome = finish.outcome.as_str();
            format!("fence {fence} {outcome} goes on: {goes_on}: {answer:?}")
        });
        self.finish_is_fair(run, fence, answer);
        if answer == Finished::Finished {
            self.closed(run, fence).await;
        }
        Ok(answer)
    }

    async fn cancel(&self, run: &RunId, by: &str, retention: Retention) -> Result<Cancelled> {
        let before = self.state(run).await;
        let answer = self.inner.cancel(run, by, retention).await?;
        self.witness
            .event("cancel", run.as_str(), || format!("{answer:?}"));
        if answer == Cancelled::Ended && before.is_none() {
            self.ended(run, RunState::Cancelled);
        }
        Ok(answer)
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
        let leads = self.leads(term).await;
        let before = self.state(run).await;
        let alive = match seen {
            Seen::Running(fence) => self.is_alive(run, fence).await,
            Seen::Scheduled(_) => false,
        };
        let answer = self
            .inner
            .republish(term, run, seen, to, why, counted)
            .await?;
        self.witness.event("republish", run.as_str(), || {
            format!("{seen:?} to {to}: {answer:?} ({why})")
        });
        if answer == Republished::Cancelled && before.is_none() {
            self.must_lead(leads, term, run.as_str());
            if let Seen::Running(fence) = seen {
                self.must_be_dead(alive, run, fence);
                self.witness
                    .with(|ledger, broken| ledger.closed(run, fence, broken));
            }
            self.ended(run, RunState::Cancelled);
        }
        if answer == Republished::Republished {
            self.must_lead(leads, term, run.as_str());
            self.was_not_forgotten(run, seen, why);
            if let Seen::Running(fence) = seen {
                self.must_be_dead(alive, run, fence);
                self.closed(run, fence).await;
            }
        }
        Ok(answer)
    }

    async fn lose(&self, term: &TermRef, run: &RunId, seen: Seen, loss: &Loss) -> Result<Losing> {
        let leads = self.leads(term).await;
        let before = self.state(run).await;
        let alive = match seen {
            Seen::Running(fence) => self.is_alive(run, fence).await,
            Seen::Scheduled(_) => false,
        };
        let answer = self.inner.lose(term, run, seen, loss).await?;
        self.witness.event("lose", run.as_str(), || {
            format!("{seen:?}: {answer:?} ({})", loss.reason)
        });
        if answer == Losing::Lost && before.is_none() {
            self.must_lead(leads, term, run.as_str());
            self.was_not_forgotten(run, seen, &loss.reason);
            if let Seen::Running(fence) = seen {
                self.must_be_dead(alive, run, fence);
                self.witness
                    .with(|ledger, broken| ledger.closed(run, fence, broken));
            }
            self.ended(run, loss.state);
        }
        Ok(answer)
    }

    async fn give_up(&self, term: &TermRef, run: &RunId, loss: &Loss) -> Result<Losing> {
        let leads = self.leads(term).await;
        let answer = self.inner.give_up(term, run, loss).await?;
        self.witness.event("give-up", run.as_str(), || {
            format!("{answer:?} ({})", loss.reason)
        });
        if answer == Losing::Lost {
            self.must_lead(leads, term, run.as_str());
            self.ended(run, loss.state);
        }
        Ok(answer)
    }

    async fn pause(&self, job: &JobName, by: &str, why: &str) -> Result<Operated> {
        let answer = self.inner.pause(job, by, why).await?;
        if answer == Operated::Done {
            self.witness.with(|ledger, _| ledger.job(job).paused = true);
        }
        Ok(answer)
    }

    async fn rewind_checkpoint(&self, run: &RunId, seq: u64, by: &str) -> Result<Rewound> {
        let answer = self.inner.rewind_checkpoint(run, seq, by).await?;
        if answer == Rewound::Rewound {
            self.witness
                .with(|ledger, _| ledger.run(run).cleared = true);
        }
        Ok(answer)
    }

    async fn resume(&self, job: &JobName, by: &str) -> Result<Operated> {
        let answer = self.inner.resume(job, by).await?;
        if answer == Operated::Done {
            self.witness
                .with(|ledger, _| ledger.job(job).paused = false);
        }
        Ok(answer)
    }

    async fn clear_checkpoint(&self, run: &RunId, by: &str) -> Result<Cleared> {
        let answer = self.inner.clear_checkpoint(run, by).await?;
        if answer == Cleared::Cleared {
            self.witness
                .with(|ledger, _| ledger.run(run).cleared = true);
        }
        Ok(answer)
    }
}

impl Watched {
    /// Whether the ledger knows this fence as the one that may write.
    fn is_open(&self, run: &RunId, fence: Fence) -> bool {
        self.witness.with(|ledger, _| {
            ledger
                .runs
                .get(run)
                .is_some_and(|facts| facts.open == Some(fence))
        })
    }
}
