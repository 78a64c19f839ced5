//! Helpers that the tests share.

pub mod guests;
pub mod redis_server;
pub mod servers;
