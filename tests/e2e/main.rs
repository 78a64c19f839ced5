//! Real pods as processes, a real Redis, real signals. Tests read the store and `/metrics`, not logs.

mod bad_input;
mod harness;
mod locks;
mod redis_article;
mod reload;
mod restarts;
mod settlement_article;
mod sync;
