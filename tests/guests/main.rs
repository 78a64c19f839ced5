//! Hostile guests against the real runtime. Tests are named by the cases that they show.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    missing_docs,
    reason = "tests"
)]

mod data;
mod desks;
mod drift;
mod harness;
mod memory;
mod net;
mod reload;
mod time;
mod traps;
