//! Bytes of a job that outlive its runs.

use wasmcron_core::ids::JobName;

use super::{Call, Names};
use crate::embedded::engine::{Key, Tx};
use crate::embedded::records::{StateSize, StateValue};
use crate::error::Result;
use crate::runs::{AttemptRef, StateWrite, Written};

fn state_key(job: &JobName, key: &str) -> Key {
    Key::new(job.as_str(), 0, key)
}

fn length(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

impl<T: Tx> Call<'_, T> {
    pub(in crate::embedded) fn get_state(
        &mut self,
        job: &JobName,
        key: &str,
    ) -> Result<Option<Vec<u8>>> {
        let value = self.tx.get::<StateValue>(&state_key(job, key))?;
        Ok(value.map(|value| value.0.clone()))
    }

    /// The size of a job's state after some writes, and whether they make it larger than allowed.
    pub(super) fn state_size(
        &mut self,
        names: &Names,
        writes: &[StateWrite],
        limit: u32,
    ) -> Result<(u64, bool)> {
        let before = self
            .good::<StateSize>(&names.job_key)?
            .map_or(0, |size| size.0);
        let (mut grows, mut shrinks) = (0, 0);
        let mut seen: Vec<(&str, u64)> = Vec::with_capacity(writes.len());
        for write in writes {
            let key = write.key.as_str();
            let earlier = seen.iter().rev().find(|(name, _)| *name == key);
            let old = match earlier {
                Some((_, size)) => *size,
                None => self
                    .tx
                    .get::<StateValue>(&state_key(&names.job, key))?
                    .map_or(0, |value| length(key.len() + value.0.len())),
            };
            let new = write.value.as_ref().map(|value| key.len() + value.len());
            let new = new.map_or(0, length);
            grows += new;
            shrinks += old;
            seen.push((key, new));
        }
        let size = (before + grows).saturating_sub(shrinks);
        Ok((size, size > before && size > limit.into()))
    }

    /// Applies writes, whose size was computed before.
    pub(super) fn write_state(
        &mut self,
        names: &Names,
        writes: Vec<StateWrite>,
        size: u64,
    ) -> Result<()> {
        for write in writes {
            let key = state_key(&names.job, &write.key);
            match write.value {
                Some(value) => self.tx.put(key, StateValue(value))?,
                None => {
                    self.tx.remove::<StateValue>(&key)?;
                }
            }
        }
        if size > 0 {
            self.tx.put(names.job_key.clone(), StateSize(size))
        } else {
            self.tx.remove::<StateSize>(&names.job_key).map(drop)
        }
    }

    pub(in crate::embedded) fn set_state(
        &mut self,
        attempt: &AttemptRef,
        write: StateWrite,
        limit: u32,
    ) -> Result<Written> {
        let names = Names::with(attempt.job.clone(), &attempt.run);
        if self.attempt(&names, attempt.fence)?.is_none() || !self.holds(&names, attempt.fence)? {
            return Ok(Written::Fenced);
        }
        let (size, too_large) = self.state_size(&names, std::slice::from_ref(&write), limit)?;
        if too_large {
            return Ok(Written::TooLarge(limit));
        }
        self.write_state(&names, vec![write], size)?;
        Ok(Written::Written)
    }
}
