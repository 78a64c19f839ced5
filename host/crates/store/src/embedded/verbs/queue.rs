//! Taking, claiming and giving back.

use std::time::Duration;

use wasmcron_core::ids::{PodAddress, PodRef, RunId};
use wasmcron_core::run::{Checkpoint, Outcome, RunState};
use wasmcron_core::task::Reason;
use wasmcron_core::time::millis;

use super::base::{delay, place, px};
use super::ending::{ENDED, End};
use super::entries::{attempt_key, parked_name};
use super::{Call, Names};
use crate::embedded::engine::{Found, Key, Range, Tx};
use crate::embedded::records::{
    Active, AttemptEnd, AttemptRow, CheckpointBytes, Claiming, Closer, Delayed, Kept, Lock, Parked,
    Queued, Running, Scheduled, Stats, TaskRow,
};
use crate::error::Result;
use crate::queue::{Attempt, Claim, Claimed, HandBack, Hold, Moved, Parked as ParkedAnswer, Taken};

/// The longest list of unclaimed entries that is read.
const CLAIMING_MAX: usize = 1_000;

/// By what right an entry is given back.
enum Held {
    Delivery(std::sync::Arc<Scheduled>),
    Attempt(std::sync::Arc<Running>),
}

impl<T: Tx> Call<'_, T> {
    /// Whether something waits in a pod's queue.
    pub(in crate::embedded) fn is_queued(&mut self, pod: &PodAddress) -> Result<bool> {
        let first = self.tx.scan::<Queued>(&Range::all(pod.as_str()), 1)?;
        Ok(!first.is_empty())
    }

    /// Moves what waits in a pod's queue to its unclaimed entries.
    pub(in crate::embedded) fn take(&mut self, pod: &PodAddress, max: usize) -> Result<Vec<Taken>> {
        let mut taken = Vec::new();
        for (key, found) in self.tx.scan::<Queued>(&Range::all(pod.as_str()), max)? {
            self.tx.remove::<Queued>(&key)?;
            match found {
                Found::Good(entry) => {
                    let (run, delivery) = (entry.run.clone(), entry.delivery);
                    taken.push(Taken {
                        run: run.clone(),
                        delivery,
                    });
                    self.tx.put(key, Claiming { run, delivery })?;
                }
                Found::Broken { text, message } => {
                    tracing::error!(entry = text, message, "a queue entry does not decode");
                    self.bury_text("tasks", pod.as_str(), &text)?;
                }
            }
        }
        Ok(taken)
    }

    /// What a pod took and did not claim, and whether something stands there that does not decode.
    pub(in crate::embedded) fn claiming(&mut self, pod: &PodAddress) -> Result<(Vec<Taken>, bool)> {
        let (mut taken, mut broken) = (Vec::new(), false);
        let all = Range::all(pod.as_str());
        for (_, found) in self.tx.scan::<Claiming>(&all, CLAIMING_MAX)? {
            match found {
                Found::Good(entry) => taken.push(Taken {
                    run: entry.run.clone(),
                    delivery: entry.delivery,
                }),
                Found::Broken { .. } => broken = true,
            }
        }
        Ok((taken, broken))
    }

    /// Moves what does not decode from a pod's unclaimed entries to the dead letters.
    pub(in crate::embedded) fn reject(&mut self, pod: &PodAddress) -> Result<()> {
        let all = Range::all(pod.as_str());
        for (key, found) in self.tx.scan::<Claiming>(&all, CLAIMING_MAX)? {
            if let Found::Broken { text, message } = found {
                tracing::error!(entry = text, message, "a queue entry does not decode");
                self.tx.remove::<Claiming>(&key)?;
                self.bury_text("tasks", pod.as_str(), &text)?;
            }
        }
        Ok(())
    }

    pub(in crate::embedded) fn claim(&mut self, claim: &Claim) -> Result<Claimed> {
        let me = &claim.me;
        if self.is_current(&me.address, &me.session)? == Some(false) {
            return Ok(Claimed::Superseded);
        }
        let names = Names::of(&claim.taken.run);
        if self.tx.contains::<Running>(&names.run_key)? {
            return self.claim_again(&names, claim);
        }
        let scheduled = self.good::<Scheduled>(&names.run_key)?;
        let scheduled = scheduled.filter(|entry| {
            entry.delivery == claim.taken.delivery && entry.pod == claim.me.address
        });
        let Some(scheduled) = scheduled else {
            return self.stale(claim);
        };
        if self.drop_stray::<Scheduled>(&names)? {
            return self.stale(claim);
        }
        if let Some(holder) = self.active_of(&names.job_key)?
            && holder != names.run
        {
            return Ok(Claimed::Overlap { holder });
        }
        let running = Running {
            fence: self.next_fence()?,
            pod: me.address.clone(),
            session: me.session.clone(),
            claimed_at: self.now,
            ends_by: self.now + px(claim.ends_in),
            token: claim.token.clone(),
            cancel: None,
            progress: None,
            task: scheduled.task.clone(),
        };
        let kept = self.kept(&names.run_key)?;
        self.tx.remove::<Scheduled>(&names.run_key)?;
        self.tx
            .put(names.job_key.clone(), Active(names.run.clone()))?;
        self.take_lock(&names, claim, &running)?;
        self.drop_claiming(&me.address, &claim.taken)?;
        self.begin_attempt(&names, claim, &running, kept.as_ref())?;
        let answer = self.claimed(&names, &running, kept)?;
        self.tx.put(names.run_key.clone(), running)?;
        Ok(answer)
    }

    /// The entry means nothing any more.
    fn stale(&mut self, claim: &Claim) -> Result<Claimed> {
        self.drop_claiming(&claim.me.address, &claim.taken)?;
        Ok(Claimed::Stale)
    }

    /// A claim of a run that executes: the same one again gets the same answer.
    fn claim_again(&mut self, names: &Names, claim: &Claim) -> Result<Claimed> {
        let running = self.good::<Running>(&names.run_key)?.filter(|running| {
            running.token == claim.token
                && running.pod == claim.me.address
                && running.session == claim.me.session
        });
        let Some(running) = running else {
            return self.stale(claim);
        };
        let lock = self.lock(&names.job_key)?;
        if lock.is_some_and(|lock| lock.run != names.run || lock.fence != running.fence) {
            return self.stale(claim);
        }
        self.take_lock(names, claim, &running)?;
        self.drop_claiming(&claim.me.address, &claim.taken)?;
        let kept = self.kept(&names.run_key)?;
        self.claimed(names, &running, kept)
    }

    fn take_lock(&mut self, names: &Names, claim: &Claim, running: &Running) -> Result<()> {
        let ttl = px(claim.lock_ttl);
        let lock = Lock {
            pod: claim.me.clone(),
            run: names.run.clone(),
            fence: running.fence,
            ttl: millis(ttl),
            expires_at: self.now + ttl,
        };
        self.tx.put(names.job_key.clone(), lock)
    }

    fn begin_attempt(
        &mut self,
        names: &Names,
        claim: &Claim,
        running: &Running,
        kept: Option<&Kept>,
    ) -> Result<()> {
        let began = running.claimed_at;
        if self.began_at(&names.run_key)?.is_none() {
            self.change_record(names, |row| row.began = Some(began))?;
        }
        let number = running.task.attempt;
        let key = attempt_key(&names.run, number);
        let before = self.good::<AttemptRow>(&key)?;
        let row = AttemptRow {
            pod: running.pod.clone(),
            fence: running.fence,
            reason: running.task.reason,
            claimed_at: running.claimed_at,
            resumed_from: kept.map(|kept| kept.seq),
            digest: claim.digest.clone(),
            end: before.and_then(|before| before.end.clone()),
        };
        self.tx.put(key, row)?;
        let facts = [
            ("pod", (&running.pod).into()),
            ("attempt", number.into()),
            ("fence", running.fence.0.into()),
        ];
        self.log("run.claimed", Some(&names.job), Some(&names.run), facts)
    }

    fn claimed(&mut self, names: &Names, running: &Running, kept: Option<Kept>) -> Result<Claimed> {
        let stats = self.good::<Stats>(&names.job_key)?;
        let began = self.began_at(&names.run_key)?;
        let checkpoint = match kept {
            Some(kept) => self.checkpoint_of(&names.run, kept)?,
            None => None,
        };
        Ok(Claimed::Claimed(Box::new(Attempt {
            task: running.task.task(Some(&running.pod)),
            fence: running.fence,
            claimed_at: running.claimed_at,
            began_at: began.unwrap_or(running.claimed_at),
            checkpoint,
            previous_success: stats.and_then(|stats| stats.previous),
        })))
    }

    /// A checkpoint with its bytes; none if they are missing.
    pub(super) fn checkpoint_of(&mut self, run: &RunId, kept: Kept) -> Result<Option<Checkpoint>> {
        let data = self.good::<CheckpointBytes>(&slot_key(run, kept.seq))?;
        Ok(data.map(|data| Checkpoint {
            data: data.0.clone(),
            schema: kept.schema,
            digest: kept.digest,
            attempt: kept.attempt,
            fence: kept.fence,
            seq: kept.seq,
            saved_at: kept.saved_at,
        }))
    }

    pub(in crate::embedded) fn skip(
        &mut self,
        me: &PodRef,
        taken: &Taken,
        why: String,
    ) -> Result<Moved> {
        if self.is_current(&me.address, &me.session)? == Some(false) {
            return Ok(Moved::Superseded);
        }
        let names = Names::of(&taken.run);
        let Some(entry) = self.good::<Scheduled>(&names.run_key)? else {
            let record = self.record(&names.run_key)?;
            let repeated = record.is_some_and(|record| {
                record.state == Some(RunState::Skipped) && record.why.as_deref() == Some(&*why)
            });
            return Ok(if repeated {
                Moved::Moved
            } else {
                Moved::Changed
            });
        };
        if entry.delivery != taken.delivery || entry.pod != me.address || !is_skippable(&entry.task)
        {
            return Ok(Moved::Changed);
        }
        let end = End {
            state: RunState::Skipped,
            why: why.clone().into(),
            base: Some(entry.task.base.clone()),
            keep: self.options.retention,
        };
        let surplus = self.end_run(&names, end)?;
        self.tx.remove::<Scheduled>(&names.run_key)?;
        self.drop_claiming(&me.address, taken)?;
        let facts = [("pod", (&me.address).into()), ("why", why.into())];
        self.log("run.skipped", Some(&names.job), Some(&names.run), facts)?;
        self.discard(surplus)?;
        Ok(Moved::Moved)
    }

    pub(in crate::embedded) fn park(
        &mut self,
        me: &PodRef,
        taken: &Taken,
        queue_max: u32,
    ) -> Result<ParkedAnswer> {
        if self.is_current(&me.address, &me.session)? == Some(false) {
            return Ok(ParkedAnswer::Changed);
        }
        let names = Names::of(&taken.run);
        let Some(entry) = self.good::<Scheduled>(&names.run_key)? else {
            let waits = self.tx.contains::<Delayed>(&names.run_key)?;
            return Ok(if waits {
                ParkedAnswer::Parked
            } else {
                ParkedAnswer::Changed
            });
        };
        if entry.delivery != taken.delivery || entry.pod != me.address {
            return Ok(ParkedAnswer::Changed);
        }
        let active = self.active_of(&names.job_key)?;
        let task = entry.task.clone();
        if let Some(active) = active.filter(|active| *active != names.run) {
            let skippable = is_skippable(&task);
            if skippable && self.parked(&names)? >= queue_max {
                return Ok(ParkedAnswer::Full);
            }
            let parked = Parked {
                run: names.run.clone(),
                skippable,
            };
            let (at, name) = (task.base.nominal, parked_name(skippable, &names.run));
            let key = Key::new(names.job.as_str(), at.as_millis(), &name);
            self.tx.put(key, parked)?;
            self.delay_run(&names, None, format!("waits for the end of {active}"), task)?;
        } else {
            self.delay_run(&names, Some(self.now), ENDED, task)?;
        }
        self.tx.remove::<Scheduled>(&names.run_key)?;
        self.drop_claiming(&me.address, taken)?;
        let facts = [("why", "the job still runs".into())];
        self.log("run.waiting", Some(&names.job), Some(&names.run), facts)?;
        Ok(ParkedAnswer::Parked)
    }

    /// How many runs of a job are parked that may be skipped.
    fn parked(&mut self, names: &Names) -> Result<u32> {
        let all = Range::all(names.job.as_str());
        let parked = self.tx.scan::<Parked>(&all, 1_000)?;
        let counted = parked.iter().filter(|(key, _)| key.name.starts_with("s|"));
        Ok(u32::try_from(counted.count()).unwrap_or(u32::MAX))
    }

    /// What a pod gives back, or the answer if it may not.
    fn held(&mut self, names: &Names, back: &HandBack) -> Result<std::result::Result<Held, Moved>> {
        let answer = |repeated| {
            Ok(Err(if repeated {
                Moved::Moved
            } else {
                Moved::Changed
            }))
        };
        let (held, pod) = match back.hold {
            Hold::Fence { fence, .. } => match self.attempt(names, fence)? {
                Some(running) => (Held::Attempt(running.clone()), running.pod.clone()),
                None => return answer(self.was_closed(names, Closer::HandBack, fence)?),
            },
            Hold::Delivery(delivery) => match self.good::<Scheduled>(&names.run_key)? {
                Some(entry) if entry.delivery == delivery => {
                    (Held::Delivery(entry.clone()), entry.pod.clone())
                }
                Some(_) => return answer(false),
                None => {
                    let waits = self.good::<Delayed>(&names.run_key)?;
                    return answer(waits.is_some_and(|waits| *waits.why == *back.why));
                }
            },
        };
        if pod == back.me.address {
            Ok(Ok(held))
        } else {
            answer(false)
        }
    }

    pub(in crate::embedded) fn hand_back(&mut self, back: &HandBack) -> Result<Moved> {
        let me = &back.me;
        if self.is_current(&me.address, &me.session)? == Some(false) {
            return Ok(Moved::Superseded);
        }
        let names = Names::of(&back.run);
        let held = match self.held(&names, back)? {
            Ok(held) => held,
            Err(answer) => return Ok(answer),
        };
        let mut task = match &held {
            Held::Delivery(entry) => entry.task.clone(),
            Held::Attempt(running) => running.task.clone(),
        };
        let number = task.attempt;
        if back.avoid && !task.avoid.contains(&me.address) {
            task.avoid.push(me.address.clone());
        }
        let mut cancel = None;
        if let Held::Attempt(running) = &held {
            let end = AttemptEnd {
                at: self.now,
                digest: None,
                outcome: Outcome::Lost {
                    reason: back.why.clone(),
                },
            };
            self.close_attempt(&names, running, Closer::HandBack, end)?;
            if matches!(back.hold, Hold::Fence { counted: true, .. }) {
                self.count_recovery(&names)?;
            }
            task.attempt += 1;
            task.reason = Reason::Resume;
            cancel.clone_from(&running.cancel);
        }
        let (event, why, surplus) = match cancel {
            Some(by) => {
                let end = End::cancelled(&by, task.base.clone(), self.options.retention);
                let why = end.why.to_string();
                ("run.finished", why, self.end_run(&names, end)?)
            }
            None => {
                let due: Duration = delay(back.due_in);
                self.delay_run(&names, Some(self.now + due), back.why.clone(), task)?;
                ("run.waiting", back.why.clone(), Vec::new())
            }
        };
        match held {
            Held::Attempt(running) => {
                self.tx.remove::<Running>(&names.run_key)?;
                self.unlock(&names, running.fence)?;
            }
            Held::Delivery(entry) => {
                self.tx.remove::<Scheduled>(&names.run_key)?;
                let key = Key::new(
                    me.address.as_str(),
                    place(entry.delivery.0),
                    names.run.as_str(),
                );
                self.tx.remove::<Claiming>(&key)?;
            }
        }
        let facts = [
            ("pod", (&me.address).into()),
            ("attempt", number.into()),
            ("why", why.into()),
        ];
        self.log(event, Some(&names.job), Some(&names.run), facts)?;
        self.discard(surplus)?;
        Ok(Moved::Moved)
    }
}

/// Only a cron firing that has not begun may be skipped.
fn is_skippable(task: &TaskRow) -> bool {
    task.attempt <= 1 && task.reason == Reason::Scheduled
}

/// Where the bytes of a checkpoint stand.
pub(super) fn slot_key(run: &RunId, seq: u64) -> Key {
    Key::new(run.as_str(), place(seq % 3), "")
}
