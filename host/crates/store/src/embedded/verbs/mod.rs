//! The verbs, grouped as the role traits are. Each is a method of [`Call`] and mirrors the Redis script
//! of its name: the same checks in the same order, the same answers, the same events.

mod base;
mod changes;
mod ending;
mod entries;
mod expiry;
mod finish;
mod inspect;
mod leadership;
mod numbers;
mod operate;
mod pods;
mod publish;
mod queue;
mod recovery;
mod run_views;
mod runs;
mod schedule;
mod state;

use wasmcron_core::ids::{JobName, RunId};
use wasmcron_core::time::Timestamp;

use super::EmbeddedOptions;
use super::engine::{Key, Tx};
use crate::error::Result;

pub(super) use pods::Reports;

/// A verb under way.
pub(super) struct Call<'t, T> {
    tx: &'t mut T,
    /// The store's clock; the same throughout the verb.
    now: Timestamp,
    options: EmbeddedOptions,
}

impl<'t, T: Tx> Call<'t, T> {
    /// One that only reads.
    pub(super) fn look(tx: &'t mut T, options: EmbeddedOptions) -> Call<'t, T> {
        let now = tx.now();
        Call { tx, now, options }
    }

    /// One that may write; takes a little of what is past away on its way.
    pub(super) fn begin(tx: &'t mut T, options: EmbeddedOptions) -> Result<Call<'t, T>> {
        let mut call = Call::look(tx, options);
        call.sweep()?;
        Ok(call)
    }
}

/// A run with its job, and both as keys.
struct Names {
    job: JobName,
    run: RunId,
    job_key: Key,
    run_key: Key,
}

impl Names {
    fn of(run: &RunId) -> Names {
        Names::with(run.job(), run)
    }

    fn with(job: JobName, run: &RunId) -> Names {
        Names {
            job_key: Key::named(job.as_str()),
            run_key: Key::named(run.as_str()),
            job,
            run: run.clone(),
        }
    }
}
