//! Configuration: the host's settings and the job files.

pub mod settings;
pub mod units;
