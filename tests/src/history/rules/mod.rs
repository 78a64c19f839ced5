//! The rules, one file for each kind of promise.

pub(super) mod alarms;
pub(super) mod checkpoints;
pub(super) mod fences;
pub(super) mod firings;
pub(super) mod leaders;
pub(super) mod recovery;
pub(super) mod runs;
pub(super) mod targets;
