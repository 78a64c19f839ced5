//! The coordination protocol written once, over transactions on ordered tables.
//!
//! A verb is a method that reads and writes records as if it were alone (`verbs/`); an [`Engine`] keeps
//! the records and runs the verbs one after another. The Redis scripts are the reference: the same
//! checks in the same order, the same answers, the same events.

mod consumer;
pub mod engine;
mod limits;
mod people;
mod planning;
pub mod records;
mod running;
mod verbs;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use engine::Engine;
use verbs::Reports;

use crate::runs::Retention;

/// What the store keeps, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmbeddedOptions {
    /// About how many entries the execution log keeps.
    pub execution_log_max: u32,
    /// What is kept of runs whose verb does not say it, such as skipped ones.
    pub retention: Retention,
    /// In how long a window recoveries of a run add up.
    pub recovery_window: Duration,
}

impl Default for EmbeddedOptions {
    fn default() -> EmbeddedOptions {
        EmbeddedOptions {
            execution_log_max: 100_000,
            retention: Retention {
                age: Duration::from_secs(7 * 86_400),
                runs: 1_000,
            },
            recovery_window: Duration::from_secs(3_600),
        }
    }
}

/// The coordination store over an engine. Cheap to clone; clones share the engine and what was read
/// of pods' reports.
pub struct EmbeddedStore<E> {
    engine: Arc<E>,
    options: EmbeddedOptions,
    reports: Arc<Reports>,
}

impl<E> Clone for EmbeddedStore<E> {
    fn clone(&self) -> EmbeddedStore<E> {
        EmbeddedStore {
            engine: self.engine.clone(),
            options: self.options,
            reports: self.reports.clone(),
        }
    }
}

impl<E> fmt::Debug for EmbeddedStore<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedStore")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl<E: Engine> EmbeddedStore<E> {
    /// The store whose records an engine keeps.
    #[must_use]
    pub fn new(engine: Arc<E>, options: EmbeddedOptions) -> EmbeddedStore<E> {
        EmbeddedStore {
            engine,
            options,
            reports: Arc::default(),
        }
    }

    /// Who keeps the records.
    #[must_use]
    pub fn engine(&self) -> &Arc<E> {
        &self.engine
    }
}
