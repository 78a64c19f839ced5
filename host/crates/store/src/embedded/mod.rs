//! The coordination protocol, written once over transactions on ordered tables.

pub mod engine;
