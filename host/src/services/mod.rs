//! One I/O loop a file: each fetches a view, asks `wasmcron_core::decide`, applies the answer through
//! the store, and sleeps until the time it was told.

mod attempts;
mod bridge;
mod clock;
mod definitions;
mod elector;
mod executor;
mod janitor;
mod jobs;
mod lead;
mod lease;
pub mod metrics;
mod outage;
mod overlap;
pub mod pod;
mod promoter;
mod publisher;
mod recoverer;
mod reloader;
mod scheduler;
mod serve;
mod subscriber;

pub use serve::serve;
