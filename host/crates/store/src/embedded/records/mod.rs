//! What the embedded store keeps: a type for each table. Where a record's place says something, such as
//! the job's name or a time, the table's line says what.
//!
//! | Table | Scope, order, name | Holds |
//! | --- | --- | --- |
//! | `leader` | | the lease and the term |
//! | `pods` | name: address | session, load, last heartbeat |
//! | `reports` | name: address | what the pod said of itself |
//! | `tasks`, `claiming` | scope: address, order: delivery, name: run | queue entries, and those taken without a claim |
//! | `scheduled_tasks`, `running_tasks`, `delayed_tasks` | name: run | the registers |
//! | `due` | order: due time, name: run | delayed runs by time |
//! | `parked` | scope: job, order: nominal time, name: `s\|run` (may be skipped) or `k\|run` | runs behind the active one |
//! | `active`, `locks` | name: job | who has begun, who executes |
//! | `counters` | name | `fence`, `delivery` |
//! | `checkpoints` | name: run | what the kept ones are |
//! | `checkpoint_bytes` | scope: run, order: sequence modulo three | their bytes |
//! | `state`, `state_size` | scope: job, name: key; name: job | bytes that outlive a run |
//! | `cursors`, `schedules`, `waiting`, `paused`, `quarantined`, `stats` | name: job | |
//! | `gaps` | scope: job, order: end, name: its text | |
//! | `runs` | name: run | the record |
//! | `attempts` | scope: run, order: number | begin and end of each |
//! | `runs_of` | scope: job, order: time of creation, name: run | the job's latest runs |
//! | `execution_log` | order: position | every transition |
//! | `log_lines` | scope: run, order: position | what the guest logged |
//! | `idempotency` | name: key | requests of manual runs |
//! | `dead_letters` | order: position | entries that could not be decoded |
//! | `changes`, `change_of` | order: number, name: job; name: job | jobs that changed since a leader looked |
//! | `change_list` | | where that list begins and ends |
//! | `expiries` | order: time, name: kind and name | what goes when |

mod jobs;
mod logs;
mod pods;
mod runs;
mod tasks;

use super::engine::Record;

pub use jobs::*;
pub use logs::*;
pub use pods::*;
pub use runs::*;
pub use tasks::*;

macro_rules! tables {
    ($($type:ty: $table:literal, $what:literal;)*) => {
        $(impl Record for $type {
            const TABLE: &'static str = $table;
            const WHAT: &'static str = $what;
        })*

        /// Every table, so that an engine can make them.
        pub const TABLES: &[&str] = &[$($table,)* StateValue::TABLE, CheckpointBytes::TABLE];
    };
}

tables! {
    Leadership: "leader", "a term";
    PodRecord: "pods", "a pod";
    Report: "reports", "a pod's report";
    Queued: "tasks", "a queue entry";
    Claiming: "claiming", "a queue entry";
    Scheduled: "scheduled_tasks", "a scheduled run";
    Running: "running_tasks", "a running run";
    Delayed: "delayed_tasks", "a delayed run";
    Due: "due", "a due time";
    Parked: "parked", "a parked run";
    Active: "active", "an active run";
    Lock: "locks", "a lock";
    Counter: "counters", "a counter";
    Checkpoints: "checkpoints", "a run's checkpoints";
    StateSize: "state_size", "a size";
    Cursor: "cursors", "a cursor";
    Schedule: "schedules", "a definition";
    GapRecord: "gaps", "a gap";
    Waiting: "waiting", "why a firing waits";
    Paused: "paused", "a pause";
    Quarantined: "quarantined", "a quarantine";
    RunRow: "runs", "a run's record";
    AttemptRow: "attempts", "an attempt";
    RunOf: "runs_of", "a run of a job";
    LogEvent: "execution_log", "an event";
    Stats: "stats", "a job's statistics";
    Line: "log_lines", "a log line";
    Idempotency: "idempotency", "a request";
    DeadLetter: "dead_letters", "a dead letter";
    Expiry: "expiries", "an expiry";
    Change: "changes", "a changed job";
    ChangeOf: "change_of", "the number of a change";
    ChangeList: "change_list", "the ends of the list of changes";
}

/// What is shared in memory and written out whole.
mod shared {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<T: Serialize, S: Serializer>(
        value: &Arc<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        T::serialize(value, serializer)
    }

    pub(super) fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Arc<T>, D::Error> {
        T::deserialize(deserializer).map(Arc::new)
    }
}
