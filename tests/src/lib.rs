//! Helpers that the tests share.

pub mod chaos;
pub mod conformance;
pub mod differential;
pub mod fleet;
pub mod guests;
pub mod history;
pub mod host_binary;
pub mod load;
pub mod memory_store;
pub mod proxy;
pub mod redis_sentinel;
pub mod redis_server;
pub mod resp;
pub mod scripted;
pub mod servers;
pub mod tls;
pub mod tripwire;
