//! Checkpoints: what a later attempt of the same run needs to go on.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::context::StopReason;
use crate::{Failure, Outcome, host, log};

/// Saves at least every so many records unless [`Checkpointer::every`] says otherwise.
const DEFAULT_EVERY: u32 = 100;
/// Saves at least this often unless [`Checkpointer::or_after`] says otherwise.
const DEFAULT_INTERVAL: Duration = Duration::from_secs(1);

/// A checkpoint as the host keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedCheckpoint {
    /// The number of the format.
    pub schema: u32,
    /// The bytes as they were saved.
    pub data: Vec<u8>,
    /// Number of the attempt that saved it.
    pub attempt: u32,
}

/// Why a checkpoint was not saved. The earlier one stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SaveError {
    /// Another attempt owns the run: stop, nothing this one does counts any more.
    Fenced,
    /// The bytes exceed the job's limit.
    TooLarge {
        /// The limit in bytes.
        limit: u32,
    },
    /// The store did not answer in time; saving again is safe.
    Unavailable(String),
}

impl fmt::Display for SaveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fenced => f.write_str("checkpoint refused: another attempt owns this run"),
            Self::TooLarge { limit } => {
                write!(
                    f,
                    "checkpoint refused: it exceeds the limit of {limit} bytes"
                )
            }
            Self::Unavailable(reason) => write!(f, "checkpoint not saved: {reason}"),
        }
    }
}

impl std::error::Error for SaveError {}

/// A job's way to its checkpoint.
///
/// [`record`](Self::record) the new checkpoint after the effect that it stands for, never before:
/// an attempt may end between the two, and an effect made twice is mended by idempotence, one
/// left out is not. [`after`](Self::after) makes that order hard to get wrong.
///
/// A save costs a round trip to the store, so records are coalesced: the first is saved, later
/// ones only after a number of records or some time, whichever comes first; those between are
/// offered to the host, which saves the newest whenever the attempt ends in any way that lets
/// the host act. Only a host that dies at once loses the offers since the last save.
#[derive(Debug)]
pub struct Checkpointer<T> {
    schema: u32,
    every: u32,
    interval: Duration,
    unsaved: u32,
    saved_at: Option<Duration>,
    checkpoint: PhantomData<fn(&T) -> T>,
}

impl<T: Serialize + DeserializeOwned> Checkpointer<T> {
    pub(crate) fn new(schema: u32) -> Self {
        Self {
            schema,
            every: DEFAULT_EVERY,
            interval: DEFAULT_INTERVAL,
            unsaved: 0,
            saved_at: None,
            checkpoint: PhantomData,
        }
    }

    /// Saves at least every `records` records; 1 saves each of them.
    #[must_use]
    pub fn every(mut self, records: u32) -> Self {
        self.every = records.max(1);
        self
    }

    /// Saves a record if the last save is at least this long ago.
    #[must_use]
    pub fn or_after(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// The checkpoint that an earlier attempt of this run left; none on a fresh run.
    ///
    /// A checkpoint of another schema number reaches the plugin only if the host could not have
    /// it migrated. It is answered with a warning and a fresh start, which idempotent effects
    /// survive: refusing it for ever would not finish the run either.
    ///
    /// # Errors
    ///
    /// Fatal if the bytes carry this plugin's own schema number but are not its format.
    pub fn load(&self) -> Result<Option<T>, Failure> {
        let Some(saved) = host::with(|host| host.checkpoint_load()) else {
            return Ok(None);
        };
        if saved.schema != self.schema {
            log::warn(&format!(
                "starting over: the checkpoint has schema {}, this plugin reads {}",
                saved.schema, self.schema
            ));
            return Ok(None);
        }
        serde_json::from_slice(&saved.data).map(Some).map_err(|error| {
            Failure::fatal(format!(
                "the checkpoint of attempt {} has this plugin's schema {} but is not its format \
                 ({error}); a changed format needs a higher CHECKPOINT_SCHEMA",
                saved.attempt, saved.schema
            ))
        })
    }

    /// Records `next` if the effect it stands for succeeded, and hands the effect's value on.
    ///
    /// ```no_run
    /// # use wasmcron_guest::{http, Checkpointer, Failure};
    /// # fn f(cp: &mut Checkpointer<u32>, page: u32) -> Result<(), Failure> {
    /// let response = cp.after(http::post("https://api.example.com/bulk").send(), &(page + 1))?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// That of the effect, then recording nothing; else that of [`record`](Self::record).
    pub fn after<V, E: Into<Failure>>(
        &mut self,
        effect: Result<V, E>,
        next: &T,
    ) -> Result<V, Failure> {
        let value = effect.map_err(Into::into)?;
        self.record(next)?;
        Ok(value)
    }

    /// Records a checkpoint whose effects are complete: saves it, or offers it if the last save
    /// is recent.
    ///
    /// A store that does not answer is no reason to stop: the checkpoint is offered instead, and
    /// the next record tries again.
    ///
    /// # Errors
    ///
    /// If another attempt owns the run, or fatal if the checkpoint exceeds the job's limit.
    pub fn record(&mut self, next: &T) -> Result<(), Failure> {
        let data = encode(next)?;
        let now = host::with(|host| host.monotonic());
        let due = self
            .saved_at
            .is_none_or(|at| now.saturating_sub(at) >= self.interval);
        self.unsaved = self.unsaved.saturating_add(1);
        if !due && self.unsaved < self.every {
            host::with(|host| host.checkpoint_offer(&data));
            return Ok(());
        }
        match self.save(&data) {
            Err(SaveError::Unavailable(reason)) => {
                log::warn(&format!("checkpoint offered instead of saved: {reason}"));
                host::with(|host| host.checkpoint_offer(&data));
                Ok(())
            }
            other => other.map_err(Failure::from),
        }
    }

    /// Saves a checkpoint; when it returns, every later attempt sees this one or a newer one.
    ///
    /// # Errors
    ///
    /// As [`record`](Self::record), and if the store does not answer.
    pub fn save_now(&mut self, next: &T) -> Result<(), Failure> {
        let data = encode(next)?;
        Ok(self.save(&data)?)
    }

    /// Saves a checkpoint and yields: the run goes on elsewhere or later.
    ///
    /// # Errors
    ///
    /// As [`save_now`](Self::save_now).
    pub fn yield_at(&mut self, next: &T) -> Result<Outcome, Failure> {
        self.save_now(next)?;
        Ok(Outcome::Yielded)
    }

    /// Stops as the host asked: yields with a checkpoint, or ends if the run was cancelled or
    /// belongs to another attempt.
    ///
    /// # Errors
    ///
    /// [`Failure::Cancelled`] for a cancelled run, a retry if the lock is lost, else as
    /// [`yield_at`](Self::yield_at).
    pub fn stop(&mut self, reason: StopReason, next: &T) -> Result<Outcome, Failure> {
        match reason {
            StopReason::Draining | StopReason::TimeOutNear | StopReason::Reload => {
                self.yield_at(next)
            }
            StopReason::Cancelled => Err(Failure::Cancelled),
            StopReason::LockLost => Err(Failure::retry("another attempt may own this run")),
        }
    }

    fn save(&mut self, data: &[u8]) -> Result<(), SaveError> {
        host::with(|host| host.checkpoint_save(data))?;
        self.unsaved = 0;
        self.saved_at = Some(host::with(|host| host.monotonic()));
        Ok(())
    }
}

/// JSON, so that an operator can read a checkpoint.
pub(crate) fn encode<T: Serialize>(checkpoint: &T) -> Result<Vec<u8>, Failure> {
    serde_json::to_vec(checkpoint)
        .map_err(|error| Failure::fatal(format!("the checkpoint cannot be written: {error}")))
}
