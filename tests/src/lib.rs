//! Helpers that the tests share.

pub mod guests;
pub mod servers;
