//! Views of jobs.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use wasmcron_core::decide::due;
use wasmcron_core::ids::Digest;
use wasmcron_core::run::RunRecord;
use wasmcron_core::schedule::{Schedule, Trigger};
use wasmcron_core::time::millis;
use wasmcron_core::view::{Gap, Hold, JobView};

use super::{RunLine, json, time};
use crate::cli::text;
use crate::cli::why::Why;

/// A nominal time and when its firing is due.
#[derive(Debug, Serialize)]
pub struct Firing {
    /// The nominal time.
    pub nominal: String,
    /// With the job's jitter.
    pub due: String,
}

impl Firing {
    /// A job's next firing, whether or not it is held back.
    pub fn next(job: &JobView) -> Option<Firing> {
        let schedule = &job.stored.definition.schedule;
        let nominal = schedule.next_after(job.cursor)?;
        Some(Firing {
            nominal: time(nominal),
            due: time(schedule.due_at(&job.job, nominal)),
        })
    }
}

/// Why a job is not running.
#[derive(Debug, Serialize)]
pub struct WhyView {
    /// One of: running, recovering, queued, exclusive-wait, delayed, parked, disabled, paused,
    /// quarantined, no-leader, waiting, no-live-pod, no-pod, no-pod-with-labels, no-pod-with-job,
    /// no-pod-with-plugin, pods-disagree, due, not-due, manual, over, removed.
    pub code: &'static str,
    /// The same for people.
    pub sentence: String,
}

impl From<Why> for WhyView {
    fn from(why: Why) -> Self {
        WhyView {
            code: why.code,
            sentence: why.sentence,
        }
    }
}

/// One line of `job list`.
#[derive(Debug, Serialize)]
pub struct JobLine {
    /// Its name.
    pub name: String,
    /// Its plugin.
    pub plugin: String,
    /// When it fires, in one line.
    pub schedule: String,
    /// Its file says so.
    pub enabled: bool,
    /// An operator stopped its firings.
    pub paused: bool,
    /// The platform stopped its firings.
    pub quarantined: bool,
    /// The next firing that is not decided yet; null while firings are held back or if there is none.
    pub next: Option<Firing>,
    /// The run that has begun and not ended.
    pub active: Option<String>,
    /// Its latest run.
    pub last: Option<RunLine>,
    /// Why it is not running.
    pub why: WhyView,
}

impl JobLine {
    /// From what the store shows.
    pub fn new(job: &JobView, last: Option<&RunRecord>, why: Why) -> Self {
        let definition = &job.stored.definition;
        JobLine {
            name: job.job.to_string(),
            plugin: definition.plugin.to_string(),
            schedule: text::schedule(&definition.schedule),
            enabled: definition.enabled,
            paused: job.paused.is_some(),
            quarantined: job.quarantined.is_some(),
            next: if due::is_held(job) {
                None
            } else {
                Firing::next(job)
            },
            active: job.active.as_ref().map(ToString::to_string),
            last: last.map(RunLine::from),
            why: why.into(),
        }
    }
}

/// `job show`.
#[derive(Debug, Serialize)]
pub struct JobDetail {
    /// What `job list` shows.
    #[serde(flatten)]
    pub line: JobLine,
    /// The stored definition.
    pub definition: DefinitionView,
    /// Up to here every nominal time has its answer.
    pub decided_until: String,
    /// Who paused it, when and why.
    pub pause: Option<HoldView>,
    /// When and why it was put in quarantine.
    pub quarantine: Option<HoldView>,
    /// Its runs that succeeded.
    pub successes: SuccessesView,
    /// Its latest runs, newest first.
    pub runs: Vec<RunLine>,
    /// Nominal times that were answered without a run, newest first.
    pub gaps: Vec<GapView>,
    /// Pods that refused its latest file, and why.
    pub refused: Vec<RefusalView>,
}

/// A pod that did not take a job's latest file.
#[derive(Debug, Serialize)]
pub struct RefusalView {
    /// Its address.
    pub pod: String,
    /// What is wrong with the file.
    pub reason: String,
}

/// A stored definition.
#[derive(Debug, Serialize)]
pub struct DefinitionView {
    /// Its hash, by which pods compare files.
    pub hash: String,
    /// From when on it rules.
    pub since: String,
    /// `cron`, `every` or `manual`.
    pub kind: &'static str,
    /// The cron expression.
    pub cron: Option<String>,
    /// The zone that it is read in.
    pub timezone: Option<String>,
    /// The period.
    pub every_ms: Option<i64>,
    /// No firing before.
    pub starts: Option<String>,
    /// No firing after.
    pub ends: Option<String>,
    /// The most by which a firing is put off.
    pub jitter_ms: i64,
    /// Continues from a checkpoint.
    pub resumable: bool,
    /// Run again although not resumable.
    pub auto_rerun: bool,
    /// Needs its pod to itself.
    pub exclusive: bool,
    /// Limit of one attempt.
    pub timeout_ms: i64,
    /// Limit of a whole run.
    pub run_timeout_ms: Option<i64>,
    /// `skip`, `queue` or `replace`.
    pub overlap: Value,
    /// What happens to missed firings.
    pub misfire: Value,
    /// Attempts in all.
    pub max_attempts: u32,
    /// Wait after the first failure.
    pub backoff_ms: i64,
    /// The longest wait.
    pub max_backoff_ms: i64,
    /// Labels that a pod must carry.
    pub pods: BTreeMap<String, String>,
    /// The only plugin version.
    pub digest: Option<String>,
    /// Parameters, with references unresolved.
    pub params: Value,
}

impl From<&JobView> for DefinitionView {
    fn from(job: &JobView) -> Self {
        use wasmcron_core::job::MisfirePolicy;
        let d = &job.stored.definition;
        let Schedule {
            trigger,
            starts,
            ends,
            jitter,
        } = &d.schedule;
        let (kind, cron, timezone, every_ms) = match trigger {
            Trigger::Cron {
                expression,
                timezone,
            } => (
                "cron",
                Some(expression.to_string()),
                Some(timezone.name().to_owned()),
                None,
            ),
            Trigger::Every { period } => ("every", None, None, Some(millis(*period))),
            Trigger::Manual => ("manual", None, None, None),
        };
        let (policy, max) = match d.misfire.policy {
            MisfirePolicy::Skip => ("skip", None),
            MisfirePolicy::Once => ("once", None),
            MisfirePolicy::All { max } => ("all", Some(max)),
        };
        DefinitionView {
            hash: job.stored.hash.to_string(),
            since: time(job.stored.since),
            kind,
            cron,
            timezone,
            every_ms,
            starts: starts.map(time),
            ends: ends.map(time),
            jitter_ms: millis(*jitter),
            resumable: d.resumable,
            auto_rerun: d.auto_rerun,
            exclusive: d.exclusive,
            timeout_ms: millis(d.timeout),
            run_timeout_ms: d.run_timeout.map(millis),
            overlap: serde_json::to_value(d.overlap).unwrap_or_default(),
            misfire: serde_json::json!({ "policy": policy, "max": max, "grace_ms": millis(d.misfire.grace) }),
            max_attempts: d.retry.max_attempts,
            backoff_ms: millis(d.retry.backoff),
            max_backoff_ms: millis(d.retry.max_backoff),
            pods: d.pods.clone(),
            digest: d.digest.as_ref().map(Digest::to_string),
            params: json(&d.params),
        }
    }
}

/// Who stopped a job's firings.
#[derive(Debug, Serialize)]
pub struct HoldView {
    /// Who.
    pub by: String,
    /// When.
    pub at: String,
    /// Why.
    pub why: String,
    /// For a quarantine: the plugin version that was taken for the cause.
    pub digest: Option<String>,
}

impl From<&Hold> for HoldView {
    fn from(hold: &Hold) -> Self {
        HoldView {
            by: hold.by.clone(),
            at: time(hold.at),
            why: hold.why.clone(),
            digest: hold.digest.as_ref().map(Digest::to_string),
        }
    }
}

/// Runs that succeeded.
#[derive(Debug, Serialize)]
pub struct SuccessesView {
    /// How many.
    pub count: u64,
    /// Their average duration.
    pub average_ms: i64,
}

/// Nominal times that were answered in bulk.
#[derive(Debug, Serialize)]
pub struct GapView {
    /// The first.
    pub from: String,
    /// The last.
    pub to: String,
    /// How many.
    pub count: u64,
    /// `misfire`, `coalesced`, `paused`, …
    pub why: String,
}

impl From<&Gap> for GapView {
    fn from(gap: &Gap) -> Self {
        GapView {
            from: time(gap.from),
            to: time(gap.to),
            count: gap.count,
            why: gap.why.clone(),
        }
    }
}
