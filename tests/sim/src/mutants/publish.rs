//! Schedules, firings and what people ask for.

use std::collections::BTreeSet;

use wasmcron_core::ids::RunKey;
use wasmcron_store::StoreError;
use wasmcron_store::embedded::engine::{Found, Key, Range, Tx as _};
use wasmcron_store::embedded::records::{
    Cursor, Delayed, Due, Paused, Queued, RunRow, Schedule, Scheduled,
};
use wasmcron_store::schedule::{Promoted, Published};

use super::{Under, entry, of_job, of_run};
use crate::layer::Layer;
use crate::verbs::words::*;

fn job_and_end(decision: &Decision) -> (&JobName, Timestamp) {
    match decision {
        Decision::Fire { task, .. } => (&task.job, task.nominal),
        Decision::Gap { job, gap, .. } => (job, gap.to),
    }
}

/// The same decision, made from any cursor.
fn from_anywhere(decision: &Decision) -> Decision {
    let mut decision = decision.clone();
    match &mut decision {
        Decision::Fire { after, .. } | Decision::Gap { after, .. } => *after = Timestamp::EPOCH,
    }
    decision
}

/// See [`super::Mutant::CursorFirst`].
pub struct CursorFirst(pub Under);

#[async_trait]
impl Layer for CursorFirst {
    fn inner(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    async fn publish(&self, term: &TermRef, decisions: &[Decision]) -> Result<PublishAnswer> {
        // Sometimes the second of the two requests is lost.
        if !self.0.leads(term).await? || !self.0.chance(3) {
            return self.0.store.publish(term, decisions).await;
        }
        for (job, end) in decisions.iter().map(job_and_end) {
            let key = Key::named(job.as_str());
            if self
                .0
                .get::<Cursor>(&key)
                .is_some_and(|cursor| cursor.0 < end)
            {
                self.0.set(&key, Some(Cursor(end)))?;
            }
        }
        Err(StoreError::Unavailable {
            verb: "publish",
            message: "no answer came in time".into(),
        })
    }
}

/// See [`super::Mutant::FollowerAdvances`].
pub struct FollowerAdvances(pub Under);

#[async_trait]
impl Layer for FollowerAdvances {
    fn inner(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    async fn heartbeat(&self, me: &PodRef, load: &PodLoad, window: Duration) -> Result<Standing> {
        let leader = self.0.store.leader().await?;
        if leader.is_none_or(|leader| leader.pod != *me) {
            self.0.engine.edit(|tx| {
                for (key, found) in tx.scan::<Schedule>(&Range::all(""), 1_000)? {
                    let Found::Good(schedule) = found else {
                        continue;
                    };
                    let Some(cursor) = tx.get::<Cursor>(&key)? else {
                        continue;
                    };
                    let next = schedule.0.definition.schedule.next_after(cursor.0);
                    if let Some(next) = next.filter(|next| *next <= tx.now()) {
                        tx.put(key, Cursor(next))?;
                    }
                }
                Ok(())
            })?;
        }
        self.0.store.heartbeat(me, load, window).await
    }
}

/// See [`super::Mutant::AfterIgnored`].
pub struct AfterIgnored(pub Under);

#[async_trait]
impl Layer for AfterIgnored {
    fn inner(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    async fn publish(&self, term: &TermRef, decisions: &[Decision]) -> Result<PublishAnswer> {
        let decisions: Vec<Decision> = decisions.iter().map(from_anywhere).collect();
        self.0.store.publish(term, &decisions).await
    }
}

/// See [`super::Mutant::HeldLeftOut`].
pub struct HeldLeftOut(pub Under);

#[async_trait]
impl Layer for HeldLeftOut {
    fn inner(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    async fn publish(&self, term: &TermRef, decisions: &[Decision]) -> Result<PublishAnswer> {
        let (mut answers, mut failed) = (Vec::new(), BTreeSet::new());
        for decision in decisions {
            let (job, _) = job_and_end(decision);
            // A target that left this very moment, as any store may find it: rare in a random world.
            if matches!(decision, Decision::Fire { .. }) && self.0.chance(5) {
                failed.insert(job.clone());
                answers.push(Published::NoPod);
                continue;
            }
            let one = if failed.contains(job) {
                from_anywhere(decision)
            } else {
                decision.clone()
            };
            let said = self
                .0
                .store
                .publish(term, std::slice::from_ref(&one))
                .await?;
            let PublishAnswer::Answers(said) = said else {
                return Ok(said);
            };
            for answer in said {
                if !matches!(answer, Published::Published | Published::Exists) {
                    failed.insert(job.clone());
                }
                answers.push(answer);
            }
        }
        Ok(PublishAnswer::Answers(answers))
    }
}

/// See [`super::Mutant::ExistsNotPushed`].
pub struct ExistsNotPushed(pub Under);

#[async_trait]
impl Layer for ExistsNotPushed {
    fn inner(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    async fn publish(&self, term: &TermRef, decisions: &[Decision]) -> Result<PublishAnswer> {
        let scheduled = |decision: &Decision| match decision {
            Decision::Fire { task, .. } => self.0.get::<Scheduled>(&of_run(&task.run)),
            Decision::Gap { .. } => None,
        };
        let before: Vec<_> = decisions.iter().map(scheduled).collect();
        let answer = self.0.store.publish(term, decisions).await?;
        for (decision, before) in decisions.iter().zip(before) {
            let (Some(before), Some(now)) = (before, scheduled(decision)) else {
                continue;
            };
            if now.delivery != before.delivery {
                let run = &now.task.base.run;
                self.0
                    .set::<Queued>(&entry(now.pod.as_str(), now.delivery, run), None)?;
                self.0.set(&of_run(run), Some(Scheduled::clone(&before)))?;
            }
        }
        Ok(answer)
    }
}

/// See [`super::Mutant::RecordOverwritten`].
pub struct RecordOverwritten(pub Under);

#[async_trait]
impl Layer for RecordOverwritten {
    fn inner(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    async fn publish(&self, term: &TermRef, decisions: &[Decision]) -> Result<PublishAnswer> {
        for decision in decisions {
            let cursor = self
                .0
                .get::<Cursor>(&Key::named(job_and_end(decision).0.as_str()));
            if let Decision::Fire { task, .. } = decision
                && cursor.is_some_and(|cursor| cursor.0 < task.nominal)
                && self.0.leads(term).await?
            {
                self.0.set::<RunRow>(&of_run(&task.run), None)?;
            }
        }
        self.0.store.publish(term, decisions).await
    }
}

/// How late a firing may be.
const LATE: Duration = Duration::from_secs(1);

/// See [`super::Mutant::LateDropped`].
pub struct LateDropped(pub Under);

#[async_trait]
impl Layer for LateDropped {
    fn inner(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    async fn publish(&self, term: &TermRef, decisions: &[Decision]) -> Result<PublishAnswer> {
        if !self.0.leads(term).await? {
            return Ok(PublishAnswer::NotLeader);
        }
        let now = self.0.store.now().await?;
        let mut answers = Vec::new();
        for decision in decisions {
            let (job, cursor) = job_and_end(decision);
            if matches!(decision, Decision::Fire { .. }) && cursor + LATE < now {
                self.0
                    .set(&Key::named(job.as_str()), Some(Cursor(cursor)))?;
                answers.push(Published::Deduped { cursor });
                continue;
            }
            let one = std::slice::from_ref(decision);
            match self.0.store.publish(term, one).await? {
                PublishAnswer::Answers(said) => answers.extend(said),
                PublishAnswer::NotLeader => return Ok(PublishAnswer::NotLeader),
            }
        }
        Ok(PublishAnswer::Answers(answers))
    }
}

/// How old the copy may be.
const COPY_AGE: Duration = Duration::from_secs(2);

/// See [`super::Mutant::PauseFromCopy`].
pub struct PauseFromCopy(pub Under);

#[async_trait]
impl Layer for PauseFromCopy {
    fn inner(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    async fn publish(&self, term: &TermRef, decisions: &[Decision]) -> Result<PublishAnswer> {
        let now = self.0.store.now().await?;
        let mut unseen = Vec::new();
        for (job, _) in decisions.iter().map(job_and_end) {
            let key = Key::named(job.as_str());
            let paused = self.0.get::<Paused>(&key);
            if let Some(paused) = paused.filter(|paused| now < paused.0.at + COPY_AGE) {
                self.0.set::<Paused>(&key, None)?;
                unseen.push((key, paused));
            }
        }
        let answer = self.0.store.publish(term, decisions).await;
        for (key, paused) in unseen {
            self.0.set(&key, Some(Paused::clone(&paused)))?;
        }
        answer
    }
}

/// See [`super::Mutant::PromoteDedupes`].
pub struct PromoteDedupes(pub Under);

impl PromoteDedupes {
    fn is_decided(&self, run: &RunId) -> bool {
        let cursor = self.0.get::<Cursor>(&of_job(run));
        matches!(run.key(), RunKey::Nominal(at) if cursor.is_some_and(|cursor| at <= cursor.0))
    }
}

#[async_trait]
impl Layer for PromoteDedupes {
    fn inner(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    async fn promote(
        &self,
        term: &TermRef,
        moves: &[(RunId, PodAddress)],
    ) -> Result<PromoteAnswer> {
        let mut answers = Vec::new();
        for one in moves {
            if !self.is_decided(&one.0) {
                match self
                    .0
                    .store
                    .promote(term, std::slice::from_ref(one))
                    .await?
                {
                    PromoteAnswer::Answers(said) => answers.extend(said),
                    PromoteAnswer::NotLeader => return Ok(PromoteAnswer::NotLeader),
                }
                continue;
            }
            let delayed = self.0.get::<Delayed>(&of_run(&one.0));
            if let Some(due) = delayed.and_then(|delayed| delayed.due) {
                self.0
                    .set::<Due>(&Key::new("", due.as_millis(), one.0.as_str()), None)?;
            }
            answers.push(Promoted::Changed);
        }
        Ok(PromoteAnswer::Answers(answers))
    }
}

/// See [`super::Mutant::BackfillAhead`].
pub struct BackfillAhead(pub Under);

#[async_trait]
impl Layer for BackfillAhead {
    fn inner(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    async fn submit(&self, submission: &Submission) -> Result<Submitted> {
        let key = of_job(&submission.task.run);
        let nominal = submission.task.nominal;
        let ahead = self
            .0
            .get::<Cursor>(&key)
            .filter(|cursor| cursor.0 < nominal);
        if ahead.is_some() {
            self.0.set(&key, Some(Cursor(nominal)))?;
        }
        let answer = self.0.store.submit(submission).await;
        if let Some(cursor) = ahead {
            self.0.set(&key, Some(*cursor))?;
        }
        answer
    }
}

/// See [`super::Mutant::OpenAtNow`].
pub struct OpenAtNow(pub Under);

#[async_trait]
impl Layer for OpenAtNow {
    fn inner(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    async fn open(
        &self,
        term: &TermRef,
        job: &JobName,
        was: Option<&DefinitionHash>,
        stored: &StoredDefinition,
    ) -> Result<Opened> {
        let mut stored = stored.clone();
        if self.0.get::<Cursor>(&Key::named(job.as_str())).is_none() {
            stored.since = self.0.store.now().await?;
        }
        self.0.store.open(term, job, was, &stored).await
    }
}
