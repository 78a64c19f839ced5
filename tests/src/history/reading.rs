//! What store and target held in the end.

use std::collections::BTreeMap;

use wasmcron_core::ids::{JobName, RunId};
use wasmcron_core::run::RunRecord;
use wasmcron_core::schedule::Schedule;
use wasmcron_core::time::Timestamp;
use wasmcron_core::view::Gap;

use crate::servers::target::Switch;

/// The final reading, taken when firing had been stopped and what ran had had time to end.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// By job.
    pub jobs: BTreeMap<JobName, JobReading>,
    /// What came into service at the target, in order.
    pub switches: Vec<Switch>,
    /// Jobs that sync.
    pub syncs: Vec<SyncReading>,
    /// Jobs whose succeeded runs have so many numbered effects each.
    pub steps: BTreeMap<JobName, u32>,
    /// Processes that ended although nobody told them to, in words.
    pub ended_by_themselves: Vec<String>,
}

/// One job.
#[derive(Clone, Debug)]
pub struct JobReading {
    /// When it fires. It was the same all the time.
    pub schedule: Schedule,
    /// Its first opening: nominal times after this one have an answer each.
    pub opened: Timestamp,
    /// The last nominal time that has its answer, by the store.
    pub cursor: Timestamp,
    /// Nominal times after this one need no answer yet: firing was stopped soon after.
    pub answered_until: Timestamp,
    /// Why a due firing waits, if it does.
    pub waiting: Option<String>,
    /// Every record that was ever read, as it was read last.
    pub runs: BTreeMap<RunId, RunRecord>,
    /// Gaps.
    pub gaps: Vec<Gap>,
    /// Records of nominal times before this one may have been dropped by retention.
    pub kept_from: Timestamp,
}

/// One job that syncs a source to an alias of the target.
#[derive(Clone, Debug)]
pub struct SyncReading {
    /// The job.
    pub job: JobName,
    /// Its alias.
    pub alias: String,
    /// Rows of the source, which do not change.
    pub count: usize,
    /// Their checksum.
    pub checksum: String,
    /// Count and checksum of the index that is in service in the end; none: nothing is.
    pub in_service: Option<(usize, String)>,
}
