//! Every key, and the only place that spells one.
//!
//! All keys of a namespace begin with the same hash tag, so they share one slot of a Redis Cluster
//! and every script may touch any of them. With the default namespace the prefix is
//! `{distributed_scheduler}:`.
//!
//! | Key | Type | Holds |
//! | --- | --- | --- |
//! | `leader` | string, PX | address of the leading pod |
//! | `leader:term` | hash | `term`, `holder` (`address\|session`), `since`, `ttl`, `resigned`; never expires |
//! | `subscribers` | zset | pod address by last heartbeat, store's clock in ms |
//! | `pods` | set | every address that registered and was not forgotten |
//! | `pod:<address>` | hash, PX | `session`, `started`, `report` and its `digest`, `load`, `draining`, `left`, `leave` (who asks it to) |
//! | `tasks:<address>` | list | `run\|delivery` for that pod |
//! | `claiming:<address>` | list | taken from the queue, not claimed yet |
//! | `scheduled_tasks` | hash | run → `delivery\|pod\|session\|published_at\|task`: the authority on queue entries |
//! | `running_tasks` | hash | run → `fence\|pod\|session\|claimed_at\|ends_by\|token\|cancel\|progress\|task` |
//! | `delayed_tasks` | hash | run → `due\|why\|task`; `due` is empty for a parked run |
//! | `delayed_tasks:due` | zset | run by due time |
//! | `parked:<job>` | zset | `s\|run` (may be skipped) or `k\|run` by nominal time |
//! | `active` | hash | job → run that has begun and not ended |
//! | `lock:<job>` | string, PX | `pod\|session\|run\|fence\|ttl` |
//! | `fence`, `delivery` | string | counters |
//! | `checkpoint:<run>` | hash, PX once ended | `seq`, and the latest three at `m<seq mod 3>`, `d<seq mod 3>` |
//! | `state:<job>` | hash | `k:<key>` → bytes, `size` of all of them |
//! | `cursor` | hash | job → last decided nominal time |
//! | `schedules` | hash | job → `hash\|since\|definition` |
//! | `changes` | zset | job by the number of its latest change, of 20,000 jobs; the empty name by the latest number that is not there any more |
//! | `gaps:<job>` | zset | gap as JSON, by its end; the latest thousand of 90 days |
//! | `waiting` | hash | job → why its due firing waits, as JSON |
//! | `paused`, `quarantined` | hash | job → `at\|who and why as JSON` |
//! | `run:<run>` | hash, PX once ended | `task`, `created_at`, `state` (only once ended), `ended_at`, `why`, `began` (first claim), `a<n>` and `e<n>` (begin and end of attempt n), `closed`, `recoveries`, `recovered_since`, `progress`, `logged` |
//! | `runs:<job>` | zset | the job's latest runs by time of creation |
//! | `execution_log` | stream | every transition |
//! | `stats:<job>` | hash | runs by end state, `successes`, `successes_ms`, `previous` (nominal time of the latest success) |
//! | `log:<run>` | stream, PX once ended | what the guest logged |
//! | `idem:<key>` | string, PX | `body digest\|run` of a request |
//! | `dead_letters` | stream | entries that could not be decoded, byte for byte |
//! | `control` | channel | wake-ups; no key, but named here |

use std::sync::Arc;

use wasmcron_core::ids::{JobName, PodAddress, RunId};

use crate::error::{Result, StoreError};

/// The namespace unless configured otherwise.
pub const DEFAULT_NAMESPACE: &str = "distributed_scheduler";

/// What the scripts get as KEYS 1 to 14 for verbs that move one run.
pub(super) const RUN_KEYS: usize = 14;

/// Spells the keys of one namespace.
#[derive(Clone, Debug)]
pub struct Keys {
    prefix: Arc<str>,
}

/// Keys without a parameter.
macro_rules! plain {
    ($($name:ident => $text:literal),* $(,)?) => {
        impl Keys {
            $(
                #[doc = concat!("`", $text, "`")]
                #[must_use]
                pub fn $name(&self) -> String {
                    format!(concat!("{}", $text), self.prefix)
                }
            )*
        }
    };
}

/// Keys that end in a name.
macro_rules! named {
    ($($name:ident($of:ty) => $text:literal),* $(,)?) => {
        impl Keys {
            $(
                #[doc = concat!("`", $text, "…`")]
                #[must_use]
                pub fn $name(&self, of: &$of) -> String {
                    format!(concat!("{}", $text, "{}"), self.prefix, of)
                }
            )*
        }
    };
}

plain! {
    leader => "leader",
    term => "leader:term",
    subscribers => "subscribers",
    pods => "pods",
    scheduled => "scheduled_tasks",
    running => "running_tasks",
    delayed => "delayed_tasks",
    due => "delayed_tasks:due",
    active => "active",
    fence => "fence",
    delivery => "delivery",
    cursor => "cursor",
    schedules => "schedules",
    waiting => "waiting",
    changes => "changes",
    paused => "paused",
    quarantined => "quarantined",
    execution_log => "execution_log",
    dead_letters => "dead_letters",
    control => "control",
}

named! {
    pod(PodAddress) => "pod:",
    tasks(PodAddress) => "tasks:",
    claiming(PodAddress) => "claiming:",
    parked(JobName) => "parked:",
    lock(JobName) => "lock:",
    state(JobName) => "state:",
    gaps(JobName) => "gaps:",
    runs(JobName) => "runs:",
    stats(JobName) => "stats:",
    checkpoint(RunId) => "checkpoint:",
    record(RunId) => "run:",
    log(RunId) => "log:",
    idempotency(str) => "idem:",
}

impl Keys {
    /// The keys of a namespace.
    ///
    /// # Errors
    /// When the name is empty, longer than 100 bytes, or holds braces (they would break the hash
    /// tag), white space or control characters.
    pub fn new(namespace: &str) -> Result<Keys> {
        let bad = |c: char| matches!(c, '{' | '}') || c.is_whitespace() || c.is_control();
        if namespace.is_empty() || namespace.len() > 100 || namespace.contains(bad) {
            let found: String = namespace.chars().take(100).collect();
            return Err(StoreError::Refused {
                verb: "connect",
                message: format!(
                    "namespace {found:?}; accepted: 1 to 100 bytes without braces and white space"
                ),
            });
        }
        Ok(Keys {
            prefix: format!("{{{namespace}}}:").into(),
        })
    }

    /// KEYS 1 to 14 of verbs that move one run; `lua/parts/run.lua` names them.
    pub(super) fn of_run(&self, job: &JobName, run: &RunId) -> Vec<String> {
        let mut keys = Vec::with_capacity(RUN_KEYS + 6);
        keys.extend([
            self.scheduled(),
            self.running(),
            self.delayed(),
            self.due(),
            self.active(),
            self.execution_log(),
            self.control(),
            self.lock(job),
            self.record(run),
            self.checkpoint(run),
            self.log(run),
            self.runs(job),
            self.parked(job),
            self.stats(job),
        ]);
        keys
    }

    /// The type a key should have; none for what is not ours.
    pub(super) fn kind_of(&self, key: &str) -> Option<&'static str> {
        let name = key.strip_prefix(&*self.prefix)?;
        let family = name.split_once(':').map_or(name, |(family, _)| family);
        Some(match (family, name) {
            (_, "leader:term") => "hash",
            (_, "delayed_tasks:due") => "zset",
            ("leader" | "lock" | "fence" | "delivery" | "idem", _) => "string",
            ("subscribers" | "changes" | "parked" | "gaps" | "runs", _) => "zset",
            ("pods", _) => "set",
            ("tasks" | "claiming", _) => "list",
            ("execution_log" | "dead_letters" | "log", _) => "stream",
            ("control", _) => return None,
            _ => "hash",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_that_would_break_the_hash_tag_are_refused() {
        for bad in ["", "a{b", "a}b", "a b", "a\n", &"x".repeat(101)] {
            assert!(Keys::new(bad).is_err(), "{bad:?}");
        }
        let keys = Keys::new(DEFAULT_NAMESPACE).expect("a good name");
        assert_eq!(keys.leader(), "{distributed_scheduler}:leader");
    }

    #[test]
    fn every_key_knows_its_type() {
        let keys = Keys::new("ns").expect("a good name");
        let job = JobName::new("leader").expect("a name");
        let pod = PodAddress::new("[fd00::1]:8080").expect("an address");
        assert_eq!(keys.kind_of(&keys.term()), Some("hash"));
        assert_eq!(keys.kind_of(&keys.leader()), Some("string"));
        assert_eq!(keys.kind_of(&keys.lock(&job)), Some("string"));
        assert_eq!(keys.kind_of(&keys.due()), Some("zset"));
        assert_eq!(keys.kind_of(&keys.changes()), Some("zset"));
        assert_eq!(keys.kind_of(&keys.tasks(&pod)), Some("list"));
        assert_eq!(keys.kind_of(&keys.stats(&job)), Some("hash"));
        assert_eq!(keys.kind_of("other:leader"), None);
    }
}
