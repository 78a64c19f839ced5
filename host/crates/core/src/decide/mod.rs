//! What to do next, as functions of what the store shows and of `now`.
//!
//! The I/O loops of the host fetch a view, ask here, apply the answer through the store, and sleep
//! until the time given here. `now` is the store's clock as the pod knows it, except where a
//! function says that it counts a pod's own monotonic time.

pub mod agenda;
pub mod backfill;
pub mod claim;
pub mod definition;
pub mod due;
pub mod elect;
pub mod finish;
pub mod publish;
pub mod quarantine;
pub mod recover;
pub mod wait;
