//! The SQLite engine: what it keeps, what it refuses, and what several processes do to one file.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "all of it is test code; clippy exempts only functions that are tests themselves"
)]

mod disk;
mod files;
mod groups;
mod processes;
mod records;
mod speed;
mod support;
mod wakes;
