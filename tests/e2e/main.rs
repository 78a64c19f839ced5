//! Real pods as processes, a real store, real signals. Tests read the store and `/metrics`, not logs.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on fails where it stands"
)]

mod arrows;
mod bad_input;
mod campaign;
mod dev;
mod drain;
mod embedded;
mod harness;
mod locks;
mod lost_records;
mod operators;
mod policies;
mod redis_article;
mod reload;
mod restarts;
mod scenarios;
mod settlement_article;
mod store_faults;
mod sync;
mod tls;
