//! Helpers that the tests share.

pub mod conformance;
pub mod differential;
pub mod guests;
pub mod host_binary;
pub mod memory_store;
pub mod redis_server;
pub mod servers;
