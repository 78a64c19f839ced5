//! What attempts write, how they end, and who takes them over.

use wasmcron_store::embedded::engine::{Found, Key, Range, Tx as _};
use wasmcron_store::embedded::records::{
    Active, CheckpointBytes, Checkpoints, Delayed, Due, Kept, Lock, Parked, Running, Scheduled,
};
use wasmcron_store::runs::Next;

use super::{Under, of_job, of_run};
use crate::layer::Layer;
use crate::verbs::words::*;

/// See [`super::Mutant::SaveUnfenced`].
pub struct SaveUnfenced(pub Under);

#[async_trait]
impl Layer for SaveUnfenced {
    fn inner(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    async fn save_checkpoint(&self, save: &SaveCheckpoint) -> Result<Saved> {
        let answer = self.0.store.save_checkpoint(save).await?;
        if answer != Saved::Fenced {
            return Ok(answer);
        }
        let now = self.0.store.now().await?;
        let run = &save.attempt.run;
        self.0.engine.edit(|tx| {
            let known = tx.get::<Checkpoints>(&of_run(run))?;
            let mut kept =
                known.map_or_else(Checkpoints::default, |kept| Checkpoints::clone(&kept));
            let seq = kept.kept.last().map_or(0, |last| last.seq) + 1;
            kept.kept.retain(|old| old.seq % 3 != seq % 3);
            kept.kept.push(Kept {
                seq,
                schema: save.schema,
                digest: save.digest.clone(),
                attempt: save.number,
                fence: save.attempt.fence,
                saved_at: now,
            });
            let slot = Key::new(run.as_str(), i64::try_from(seq % 3).unwrap_or(0), "");
            tx.put(slot, CheckpointBytes(save.data.clone()))?;
            tx.put(of_run(run), kept)?;
            Ok(Saved::Saved(seq))
        })
    }
}

/// See [`super::Mutant::SaveOnce`].
pub struct SaveOnce(pub Under);

#[async_trait]
impl Layer for SaveOnce {
    fn inner(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    async fn save_checkpoint(&self, save: &SaveCheckpoint) -> Result<Saved> {
        let kept = self.0.get::<Checkpoints>(&of_run(&save.attempt.run));
        let last = kept.as_ref().and_then(|kept| kept.kept.last());
        if last.is_some_and(|last| save.seq <= last.seq && last.fence == save.attempt.fence) {
            return Ok(Saved::Fenced);
        }
        self.0.store.save_checkpoint(save).await
    }
}

/// See [`super::Mutant::UnlockAnyone`].
pub struct UnlockAnyone(pub Under);

#[async_trait]
impl Layer for UnlockAnyone {
    fn inner(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    async fn finish(&self, finish: &Finish) -> Result<Finished> {
        let answer = self.0.store.finish(finish).await?;
        self.0.set::<Lock>(&of_job(&finish.attempt.run), None)?;
        Ok(answer)
    }
}

/// See [`super::Mutant::FinishOnce`].
pub struct FinishOnce(pub Under);

#[async_trait]
impl Layer for FinishOnce {
    fn inner(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    async fn finish(&self, finish: &Finish) -> Result<Finished> {
        Ok(match self.0.store.finish(finish).await? {
            Finished::AlreadyFinished => Finished::Fenced,
            other => other,
        })
    }
}

/// See [`super::Mutant::FinishUnfenced`].
pub struct FinishUnfenced(pub Under);

#[async_trait]
impl Layer for FinishUnfenced {
    fn inner(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    async fn finish(&self, finish: &Finish) -> Result<Finished> {
        let answer = self.0.store.finish(finish).await?;
        let running = self.0.get::<Running>(&of_run(&finish.attempt.run));
        let Some(running) = running.filter(|_| answer == Finished::Fenced) else {
            return Ok(answer);
        };
        let mut finish = finish.clone();
        finish.attempt.fence = running.fence;
        self.0.store.finish(&finish).await
    }
}

/// See [`super::Mutant::ActiveClearedEarly`].
pub struct ActiveClearedEarly(pub Under);

#[async_trait]
impl Layer for ActiveClearedEarly {
    fn inner(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    async fn finish(&self, finish: &Finish) -> Result<Finished> {
        let answer = self.0.store.finish(finish).await?;
        let goes_on = matches!(finish.next, Next::Again { .. });
        if answer == Finished::Finished && goes_on {
            self.0.set::<Active>(&of_job(&finish.attempt.run), None)?;
        }
        Ok(answer)
    }
}

/// See [`super::Mutant::ParkedForgotten`].
pub struct ParkedForgotten(pub Under);

type ParkedRun = (Key, Arc<Parked>, Arc<Delayed>);

impl ParkedForgotten {
    fn parked(&self, job: &JobName) -> Vec<ParkedRun> {
        self.0.engine.look(|tx| {
            let found = tx.scan::<Parked>(&Range::all(job.as_str()), 1_000);
            let mut parked = Vec::new();
            for (key, found) in found.unwrap_or_default() {
                let Found::Good(entry) = found else { continue };
                let waits = tx.get::<Delayed>(&of_run(&entry.run)).ok().flatten();
                parked.extend(waits.map(|waits| (key, entry, waits)));
            }
            parked
        })
    }

    /// Parks again what was made due.
    fn put_back(&self, before: Vec<ParkedRun>) -> Result<()> {
        self.0.engine.edit(|tx| {
            for (key, entry, waits) in before {
                let now = tx.get::<Delayed>(&of_run(&entry.run))?;
                let Some(due) = now.and_then(|now| now.due) else {
                    continue;
                };
                tx.remove::<Due>(&Key::new("", due.as_millis(), entry.run.as_str()))?;
                tx.put(of_run(&entry.run), Delayed::clone(&waits))?;
                tx.put(key, Parked::clone(&entry))?;
            }
            Ok(())
        })
    }
}

#[async_trait]
impl Layer for ParkedForgotten {
    fn inner(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    async fn finish(&self, finish: &Finish) -> Result<Finished> {
        let before = self.parked(&finish.attempt.job);
        let answer = self.0.store.finish(finish).await;
        self.put_back(before)?;
        answer
    }
}

/// See [`super::Mutant::RepublishUnseen`].
pub struct RepublishUnseen(pub Under);

#[async_trait]
impl Layer for RepublishUnseen {
    fn inner(&self) -> &Arc<dyn Store> {
        &self.0.store
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
        let key = of_run(run);
        let now = match (self.0.get::<Running>(&key), self.0.get::<Scheduled>(&key)) {
            (Some(running), _) => {
                self.0.set::<Lock>(&of_job(run), None)?;
                Seen::Running(running.fence)
            }
            (None, Some(scheduled)) => Seen::Scheduled(scheduled.delivery),
            (None, None) => seen,
        };
        self.0
            .store
            .republish(term, run, now, to, why, counted)
            .await
    }
}

/// See [`super::Mutant::RepublishAlive`].
pub struct RepublishAlive(pub Under);

#[async_trait]
impl Layer for RepublishAlive {
    fn inner(&self) -> &Arc<dyn Store> {
        &self.0.store
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
        if matches!(seen, Seen::Running(_)) {
            self.0.set::<Lock>(&of_job(run), None)?;
        }
        self.0
            .store
            .republish(term, run, seen, to, why, counted)
            .await
    }
}
