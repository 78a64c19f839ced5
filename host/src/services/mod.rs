//! One I/O loop a file: each fetches a view, asks `wasmcron_core::decide`, applies the answer through
//! the store, and sleeps until the time it was told.
//!
//! A [`Pod`] is made of [`Parts`]; [`Loops`] run it until it is ordered to leave. What a pod gets from
//! its computer comes through [`Machine`], what it executes through [`Plugins`].

mod attempts;
mod bridge;
mod clock;
mod conclude;
mod definitions;
mod drain;
mod elector;
mod executor;
mod janitor;
mod jobs;
mod lead;
mod lease;
mod loops;
mod machine;
mod metrics;
mod observed;
mod outage;
mod overdue;
mod overlap;
mod plugins;
mod pod;
mod promoter;
mod publisher;
mod reading;
mod recoverer;
mod reloader;
mod reporter;
mod scheduler;
mod serve;
mod signals;
mod stamps;
mod subscriber;

pub use attempts::{Attempts, Executing};
pub use clock::StoreClock;
pub use jobs::{JobBook, Known};
pub use lead::{Lead, LeadSetter};
pub use lease::Connect;
pub use loops::Loops;
pub use machine::{Machine, RealMachine};
pub use metrics::Metrics;
pub use plugins::{Plugins, Program, SandboxedPlugins};
pub use pod::{Ends, Fatal, Parts, Pod};
pub use serve::serve;
