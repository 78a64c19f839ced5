//! Views of runs, their attempts, logs and checkpoints.

use serde::Serialize;
use serde_json::Value;
use wasmcron_core::ids::Digest;
use wasmcron_core::run::{AttemptRecord, Checkpoint, Outcome, RunRecord, RunState};
use wasmcron_store::runs::LogLine;

use super::{json, time};

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
    /// What it says for itself, or why it is where it is; null while it executes.
    pub message: Option<String>,
}

impl From<&RunRecord> for RunLine {
    fn from(run: &RunRecord) -> Self {
        let last = run.attempts.last();
        let said = last
            .and_then(|attempt| attempt.outcome.as_ref())
            .map(|outcome| outcome.message().to_owned());
        // While an attempt executes, the reason why the one before it ended is history.
        let message = match run.state {
            RunState::Running => None,
            _ => run.why.clone().or(said),
        };
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
            message: message.filter(|text| !text.is_empty()),
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
            outcome: attempt.outcome.as_ref().map(Outcome::as_str),
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
