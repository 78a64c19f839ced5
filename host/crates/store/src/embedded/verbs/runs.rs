//! What an executing attempt writes.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use wasmcron_core::ids::PodRef;
use wasmcron_core::run::Progress;
use wasmcron_core::time::millis;

use super::base::px;
use super::queue::slot_key;
use super::{Call, Names};
use crate::embedded::engine::{Key, Range, Tx};
use crate::embedded::records::{CheckpointBytes, Checkpoints, Kept, Line, Lock, Running};
use crate::error::Result;
use crate::runs::{AttemptRef, Extension, LogLine, SaveCheckpoint, Saved, Written};

impl<T: Tx> Call<'_, T> {
    pub(in crate::embedded) fn extend(
        &mut self,
        me: &PodRef,
        attempts: &[AttemptRef],
        lock_ttl: Duration,
    ) -> Result<Vec<Extension>> {
        if self.is_current(&me.address, &me.session)? == Some(false) {
            return Ok(vec![Extension::Lost; attempts.len()]);
        }
        let ttl = px(lock_ttl);
        let one = |attempt| self.extend_one(me, attempt, ttl);
        attempts.iter().map(one).collect()
    }

    fn extend_one(
        &mut self,
        me: &PodRef,
        attempt: &AttemptRef,
        ttl: Duration,
    ) -> Result<Extension> {
        let names = Names::with(attempt.job.clone(), &attempt.run);
        let Some(running) = self.attempt(&names, attempt.fence)? else {
            return Ok(Extension::Lost);
        };
        let lock = self.lock(&names.job_key)?.filter(|lock| {
            lock.pod == *me && lock.run == attempt.run && lock.fence == attempt.fence
        });
        let Some(lock) = lock else {
            return Ok(Extension::Lost);
        };
        if self.now > running.ends_by {
            return Ok(Extension::Expired);
        }
        let mut lock = Lock::clone(&lock);
        lock.ttl = millis(ttl);
        lock.expires_at = self.now + ttl;
        self.tx.put(names.job_key, lock)?;
        Ok(match &running.cancel {
            Some(by) => Extension::Cancel { by: by.clone() },
            None => Extension::Extended,
        })
    }

    pub(in crate::embedded) fn save_checkpoint(&mut self, save: SaveCheckpoint) -> Result<Saved> {
        let AttemptRef { job, run, fence } = save.attempt;
        let names = Names::with(job, &run);
        if self.attempt(&names, fence)?.is_none() || !self.holds(&names, fence)? {
            return Ok(Saved::Fenced);
        }
        let kept = self.good::<Checkpoints>(&names.run_key)?;
        let mut kept = kept.map_or_else(Checkpoints::default, |kept| Checkpoints::clone(&kept));
        let mut seq = save.seq;
        let last = kept.kept.last();
        if seq <= last.map_or(0, |last| last.seq) {
            // The same request again, or an older one that comes late.
            if last.is_some_and(|last| last.fence == fence) {
                return Ok(Saved::Saved(seq));
            }
            seq = last.map_or(0, |last| last.seq) + 1;
        }
        // Three are kept, each at its sequence modulo three.
        kept.kept.retain(|old| old.seq % 3 != seq % 3);
        kept.kept.push(Kept {
            seq,
            schema: save.schema,
            digest: save.digest,
            attempt: save.number,
            fence,
            saved_at: self.now,
        });
        let bytes = u64::try_from(save.data.len()).unwrap_or(u64::MAX);
        self.tx
            .put(slot_key(&names.run, seq), CheckpointBytes(save.data))?;
        self.tx.put(names.run_key.clone(), kept)?;
        let record = self.record(&names.run_key)?;
        if record.is_some_and(|record| record.recoveries.is_some()) {
            self.change_record(&names, |row| row.recoveries = None)?;
        }
        let facts = [
            ("fence", fence.0.into()),
            ("seq", seq.into()),
            ("bytes", bytes.into()),
        ];
        self.log(
            "checkpoint.saved",
            Some(&names.job),
            Some(&names.run),
            facts,
        )?;
        Ok(Saved::Saved(seq))
    }

    pub(in crate::embedded) fn append_log(
        &mut self,
        attempt: &AttemptRef,
        lines: Vec<LogLine>,
        max_lines: u32,
    ) -> Result<Written> {
        let names = Names::with(attempt.job.clone(), &attempt.run);
        if self.attempt(&names, attempt.fence)?.is_none() {
            return Ok(Written::Fenced);
        }
        let hash = hash_of(&lines);
        let record = self.record(&names.run_key)?;
        if record.is_some_and(|record| record.logged == Some(hash)) {
            return Ok(Written::Written);
        }
        let scope = names.run.as_str();
        let mut position = self.next_position::<Line>(scope, 1)?;
        for line in lines {
            self.tx.put(Key::new(scope, position, ""), Line(line))?;
            position += 1;
        }
        let old = Range::all(scope).up_to(position - 1 - i64::from(max_lines.max(1)));
        while self.remove_first::<Line>(&old, 1_000)? > 0 {}
        self.change_record(&names, |row| row.logged = Some(hash))?;
        Ok(Written::Written)
    }

    pub(in crate::embedded) fn report_progress(
        &mut self,
        attempt: &AttemptRef,
        progress: Progress,
    ) -> Result<Written> {
        let names = Names::with(attempt.job.clone(), &attempt.run);
        let Some(running) = self.attempt(&names, attempt.fence)? else {
            return Ok(Written::Fenced);
        };
        let mut running = Running::clone(&running);
        running.progress = Some(progress);
        self.tx.put(names.run_key, running)?;
        Ok(Written::Written)
    }
}

/// Tells one batch of lines from another.
fn hash_of(lines: &[LogLine]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for line in lines {
        (line.at, line.attempt).hash(&mut hasher);
        (&line.level, &line.message, &line.fields).hash(&mut hasher);
    }
    hasher.finish()
}
