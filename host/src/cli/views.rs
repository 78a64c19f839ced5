//! What `--json` prints: documented here, stable, and never a struct of the inside.
//!
//! Times are RFC 3339 in UTC, durations whole milliseconds (`…_ms`), ids text. Fields without a value
//! are null. Fields may be added; none changes its meaning.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use wasmcron_core::decide::due;
use wasmcron_core::ids::Digest;
use wasmcron_core::run::{AttemptRecord, Checkpoint, RunRecord};
use wasmcron_core::schedule::{Schedule, Trigger};
use wasmcron_core::time::{Timestamp, millis};
use wasmcron_core::view::{Gap, Hold, JobView, Leader, Pod};
use wasmcron_store::runs::LogLine;

use super::why::Why;

fn time(at: Timestamp) -> String {
    at.to_string()
}

/// JSON text as JSON, or as text if it is none.
fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

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
    /// no-pod-with-plugin, pods-disagree, due, not-due, manual, over.
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
            schedule: super::text::schedule(&definition.schedule),
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
}

impl From<&Hold> for HoldView {
    fn from(hold: &Hold) -> Self {
        HoldView {
            by: hold.by.clone(),
            at: time(hold.at),
            why: hold.why.clone(),
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

/// One line of `run list`.
#[derive(Debug, Serialize)]
pub struct RunLine {
    /// Its id.
    pub run: String,
    /// Its job.
    pub job: String,
    /// `delayed`, `parked`, `scheduled`, `running`, `succeeded`, `failed`, `timedout`, `cancelled`,
    /// `lost` or `skipped`.
    pub state: &'static str,
    /// Why it exists: `scheduled`, `manual`, `retry`, `resume`, `catch-up` or `backfill`.
    pub reason: Value,
    /// The time it stands for.
    pub nominal: String,
    /// When its record was made.
    pub created: String,
    /// When it ended.
    pub ended: Option<String>,
    /// How many attempts it made.
    pub attempts: usize,
    /// Pod of the latest attempt.
    pub pod: Option<String>,
    /// What it says for itself, or why it is where it is.
    pub message: Option<String>,
}

impl From<&RunRecord> for RunLine {
    fn from(run: &RunRecord) -> Self {
        let last = run.attempts.last();
        let said = last
            .and_then(|attempt| attempt.outcome.as_ref())
            .map(|outcome| outcome.message().to_owned());
        RunLine {
            run: run.run.to_string(),
            job: run.job.to_string(),
            state: run.state.as_str(),
            reason: serde_json::to_value(run.reason).unwrap_or_default(),
            nominal: time(run.nominal),
            created: time(run.created_at),
            ended: run.ended_at.map(time),
            attempts: run.attempts.len(),
            pod: last.map(|attempt| attempt.pod.to_string()),
            message: run.why.clone().or(said).filter(|text| !text.is_empty()),
        }
    }
}

/// `run show`.
#[derive(Debug, Serialize)]
pub struct RunDetail {
    /// What `run list` shows.
    #[serde(flatten)]
    pub line: RunLine,
    /// The ended run that this one repeats.
    pub of: Option<String>,
    /// How often it lost its pod, in the current window.
    pub recoveries: u32,
    /// Its parameters.
    pub params: Value,
    /// How far it has come.
    pub progress: Option<ProgressView>,
    /// Its attempts, in order.
    pub attempt_list: Vec<AttemptView>,
}

impl From<&RunRecord> for RunDetail {
    fn from(run: &RunRecord) -> Self {
        RunDetail {
            line: run.into(),
            of: run.of.as_ref().map(ToString::to_string),
            recoveries: run.recoveries,
            params: json(&run.params),
            progress: run.progress.as_ref().map(|p| ProgressView {
                done: p.done,
                total: p.total,
                message: p.message.clone(),
            }),
            attempt_list: run.attempts.iter().map(AttemptView::from).collect(),
        }
    }
}

/// A progress report.
#[derive(Debug, Serialize)]
pub struct ProgressView {
    /// Units done.
    pub done: f64,
    /// Units in all.
    pub total: Option<f64>,
    /// For people.
    pub message: String,
}

/// One attempt.
#[derive(Debug, Serialize)]
pub struct AttemptView {
    /// Its number.
    pub attempt: u32,
    /// Where.
    pub pod: String,
    /// The number its writes carried, as text.
    pub fence: String,
    /// Why it happened.
    pub reason: Value,
    /// Plugin version.
    pub digest: Option<String>,
    /// When it began.
    pub claimed: String,
    /// When it ended.
    pub ended: Option<String>,
    /// Sequence of the checkpoint it began from.
    pub resumed_from: Option<u64>,
    /// `succeeded`, `failed`, `timedout`, `cancelled`, `yielded` or `lost`; null while it executes.
    pub outcome: Option<&'static str>,
    /// What there is to say of that.
    pub message: Option<String>,
}

impl From<&AttemptRecord> for AttemptView {
    fn from(attempt: &AttemptRecord) -> Self {
        AttemptView {
            attempt: attempt.attempt,
            pod: attempt.pod.to_string(),
            fence: attempt.fence.to_string(),
            reason: serde_json::to_value(attempt.reason).unwrap_or_default(),
            digest: attempt.digest.as_ref().map(Digest::to_string),
            claimed: time(attempt.claimed_at),
            ended: attempt.ended_at.map(time),
            resumed_from: attempt.resumed_from,
            outcome: attempt
                .outcome
                .as_ref()
                .map(wasmcron_core::run::Outcome::as_str),
            message: attempt
                .outcome
                .as_ref()
                .map(|outcome| outcome.message().to_owned())
                .filter(|text| !text.is_empty()),
        }
    }
}

/// A line of a run's log.
#[derive(Debug, Serialize)]
pub struct LogLineView {
    /// When, by the pod's clock.
    pub at: String,
    /// Which attempt wrote it.
    pub attempt: u32,
    /// `trace`, `debug`, `info`, `warn`, `error`, `stdout` or `stderr`.
    pub level: String,
    /// The text.
    pub message: String,
    /// Fields, in the guest's order.
    pub fields: Vec<(String, String)>,
}

impl From<&LogLine> for LogLineView {
    fn from(line: &LogLine) -> Self {
        LogLineView {
            at: time(line.at),
            attempt: line.attempt,
            level: line.level.clone(),
            message: line.message.clone(),
            fields: line.fields.clone(),
        }
    }
}

/// `checkpoint show`.
#[derive(Debug, Serialize)]
pub struct CheckpointView {
    /// The run.
    pub run: String,
    /// Counts up over the attempts.
    pub seq: u64,
    /// Number of the bytes' format.
    pub schema: u32,
    /// Plugin version that wrote them.
    pub digest: String,
    /// Attempt that wrote them.
    pub attempt: u32,
    /// Fence of that attempt, as text.
    pub fence: String,
    /// When the store took it.
    pub saved: String,
    /// How many bytes.
    pub bytes: usize,
    /// The bytes, if they are text.
    pub text: Option<String>,
    /// The bytes as hexadecimal digits, if they are no text and at most 64 KiB.
    pub hex: Option<String>,
}

/// The largest checkpoint whose bytes are shown as digits.
const HEX_MAX: usize = 64 << 10;

impl CheckpointView {
    /// From what the store shows.
    pub fn new(run: String, checkpoint: &Checkpoint) -> Self {
        let text = std::str::from_utf8(&checkpoint.data)
            .ok()
            .map(str::to_owned);
        let hex = (text.is_none() && checkpoint.data.len() <= HEX_MAX).then(|| {
            checkpoint
                .data
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect()
        });
        CheckpointView {
            run,
            seq: checkpoint.seq,
            schema: checkpoint.schema,
            digest: checkpoint.digest.to_string(),
            attempt: checkpoint.attempt,
            fence: checkpoint.fence.to_string(),
            saved: time(checkpoint.saved_at),
            bytes: checkpoint.data.len(),
            text,
            hex,
        }
    }
}

/// One pod of `pod list`.
#[derive(Debug, Serialize)]
pub struct PodView {
    /// Its address.
    pub address: String,
    /// Its session.
    pub session: Option<String>,
    /// `active`, `draining`, `silent` or `gone`.
    pub state: &'static str,
    /// Whether it leads.
    pub leads: bool,
    /// Its last heartbeat.
    pub heartbeat: Option<String>,
    /// When its session started.
    pub started: Option<String>,
    /// Version of its host.
    pub version: Option<String>,
    /// Attempts that it executes.
    pub running: u32,
    /// Attempts that it may execute.
    pub capacity: Option<u32>,
    /// Tasks in its queue.
    pub queued: u32,
    /// The run that has, or waits to have, the pod to itself.
    pub exclusive: Option<String>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its plugins with the digest that is active.
    pub plugins: BTreeMap<String, String>,
    /// Its jobs with the hash of their definitions.
    pub jobs: BTreeMap<String, String>,
}

impl PodView {
    /// From what the store shows.
    pub fn new(pod: &Pod, leader: Option<&Leader>, active: bool) -> Self {
        let report = pod.report.as_ref();
        let state = match (active, pod.load.draining, pod.heartbeat) {
            (_, true, _) => "draining",
            (true, false, _) => "active",
            (false, false, Some(_)) => "silent",
            (false, false, None) => "gone",
        };
        PodView {
            address: pod.address.to_string(),
            session: pod.session.as_ref().map(ToString::to_string),
            state,
            leads: leader.is_some_and(|leader| {
                leader.pod.address == pod.address
                    && Some(&leader.pod.session) == pod.session.as_ref()
            }),
            heartbeat: pod.heartbeat.map(time),
            started: report.map(|report| time(report.started)),
            version: report.map(|report| report.version.clone()),
            running: pod.load.running,
            capacity: report.map(|report| report.capacity),
            queued: pod.queued,
            exclusive: pod.load.exclusive.as_ref().map(ToString::to_string),
            labels: report
                .map(|report| report.labels.clone())
                .unwrap_or_default(),
            plugins: report
                .into_iter()
                .flat_map(|report| &report.plugins)
                .map(|(name, digest)| (name.to_string(), digest.to_string()))
                .collect(),
            jobs: report
                .into_iter()
                .flat_map(|report| &report.jobs)
                .map(|(name, job)| (name.to_string(), job.hash.to_string()))
                .collect(),
        }
    }
}

/// `pod list`.
#[derive(Debug, Serialize)]
pub struct PodList {
    /// The store's clock.
    pub now: String,
    /// Address of the leading pod.
    pub leader: Option<String>,
    /// Its term, as text.
    pub term: Option<String>,
    /// Every pod that left a trace.
    pub pods: Vec<PodView>,
}
