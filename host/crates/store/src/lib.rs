//! The coordination store: what it promises, and the backends that keep the promise.
//!
//! Each verb is first a sentence in one of the role traits, then a case of the conformance suite,
//! then a backend. Losing a race is an answer, not an error; an error says nothing of whether the
//! request was applied, and every verb answers a repeat as it answered the first.

mod base;
pub mod control;
pub mod embedded;
pub mod error;
pub mod inspect;
pub mod leadership;
pub mod page;
pub mod pods;
pub mod queue;
pub mod recovery;
pub mod redis;
pub mod runs;
pub mod schedule;
pub mod sqlite;

pub use error::{Result, StoreError};

/// All roles of a store.
pub trait Store:
    leadership::Leadership
    + pods::Pods
    + schedule::Schedules
    + queue::Queue
    + runs::Runs
    + recovery::Recovery
    + inspect::Inspect
    + control::Control
{
}

impl<T> Store for T where
    T: leadership::Leadership
        + pods::Pods
        + schedule::Schedules
        + queue::Queue
        + runs::Runs
        + recovery::Recovery
        + inspect::Inspect
        + control::Control
{
}
