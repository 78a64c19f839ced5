//! The pure part of wasmcron: what things are called, and what to do next.
//!
//! Nothing here reads a clock, sleeps, or draws a random number: every decision is a function of
//! what the store shows and of `now`. `clippy.toml` beside this crate enforces it.

pub mod cron;
pub mod decide;
pub mod ids;
pub mod job;
pub mod json;
pub mod run;
pub mod schedule;
pub mod task;
pub mod time;
pub mod view;
