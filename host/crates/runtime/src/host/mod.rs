//! The host side of the contract, one file for each WIT interface.
//!
//! Functions with an effect outside the sandbox begin with the lease check: a process that was
//! frozen and wakes up must not act for a run that somebody else owns by now.

pub(crate) mod checkpoint;
pub(crate) mod control;
pub(crate) mod http;
pub(crate) mod log;
pub(crate) mod progress;
pub(crate) mod secrets;
pub(crate) mod state;
pub(crate) mod stdio;

/// Takes a lock whose holder never panics half-way; a poisoned one is still whole.
pub(crate) fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
