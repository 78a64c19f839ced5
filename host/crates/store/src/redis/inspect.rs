//! What people and tools read.

use std::collections::HashMap;

use async_trait::async_trait;
use redis::Value;
use wasmcron_core::ids::{JobName, RunId};
use wasmcron_core::run::{AttemptRecord, Checkpoint, RunRecord, RunState};
use wasmcron_core::time::Timestamp;
use wasmcron_core::view::{DelayedEntry, Gap, Hold};

use super::RedisStore;
use super::codec::{
    Decoded, bar_free, checkpoint_of, corrupt, delayed_of, from_word, pairs, text, text_of, texts,
};
use super::errors::broken;
use super::recovery::current_recoveries;
use super::script::{Call, Verb};
use super::views::stop_of;
use crate::base::Base;
use crate::error::Result;
use crate::inspect::{Cleared, Counts, ExecutionEvent, Inspect, LogPage, Rewound};
use crate::schedule::PAGE_MAX;

/// What the registers say of a run.
#[derive(Default)]
struct Whereabouts {
    scheduled: Option<String>,
    running: Option<String>,
    delayed: Option<String>,
}

impl Whereabouts {
    /// Where the run is, and why it waits. The registers are the authority: a record only says how a
    /// run ended.
    fn state(&self, run: &str) -> (RunState, Option<String>) {
        if self.running.is_some() {
            return (RunState::Running, None);
        }
        if self.scheduled.is_some() {
            return (RunState::Scheduled, None);
        }
        match self.delayed.as_deref().map(|entry| delayed_of(run, entry)) {
            Some(Ok(entry)) if entry.due.is_some() => (RunState::Delayed, Some(entry.why)),
            Some(Ok(entry)) => (RunState::Parked, Some(entry.why)),
            Some(Err(_)) => (RunState::Delayed, None),
            None => (
                RunState::Lost,
                Some("the store has no entry of it".to_owned()),
            ),
        }
    }
}

/// An attempt from the two fields that its begin and its end wrote.
fn attempt_of(number: u32, begin: &str, end: Option<&String>) -> Decoded<AttemptRecord> {
    let parts: Vec<&str> = begin.split('|').collect();
    let [pod, fence, reason, claimed_at, resumed_from, digest] = parts.as_slice() else {
        return Err(format!("attempt {number} is {begin:?}"));
    };
    let bad = |what: &str| format!("attempt {number}: its {what}");
    let mut record = AttemptRecord {
        attempt: number,
        pod: pod.parse().map_err(|_| bad("pod"))?,
        fence: fence.parse().map_err(|_| bad("fence"))?,
        reason: from_word(reason)?,
        digest: digest.parse().ok(),
        claimed_at: Timestamp::from_millis(claimed_at.parse().map_err(|_| bad("time"))?),
        ended_at: None,
        resumed_from: resumed_from.parse().ok(),
        outcome: None,
    };
    if let Some(end) = end {
        let mut parts = end.splitn(3, '|');
        let (at, digest, outcome) = (parts.next(), parts.next(), parts.next());
        record.ended_at = at
            .and_then(|at| at.parse().ok())
            .map(Timestamp::from_millis);
        // The version that ended it, where that was another than it began with.
        record.digest = digest
            .and_then(|digest| digest.parse().ok())
            .or(record.digest);
        let outcome = outcome.ok_or_else(|| bad("end"))?;
        record.outcome = Some(serde_json::from_str(outcome).map_err(|error| error.to_string())?);
    }
    Ok(record)
}

fn attempts_of(fields: &HashMap<String, String>) -> Decoded<Vec<AttemptRecord>> {
    let mut attempts = Vec::new();
    for (field, begin) in fields {
        if let Some(number) = field.strip_prefix('a').and_then(|n| n.parse::<u32>().ok()) {
            attempts.push(attempt_of(
                number,
                begin,
                fields.get(&format!("e{number}")),
            )?);
        }
    }
    attempts.sort_by_key(|attempt| attempt.attempt);
    Ok(attempts)
}

/// A record from its fields and the run's whereabouts.
fn record_of(
    run: &RunId,
    fields: &HashMap<String, String>,
    at: &Whereabouts,
    now: i64,
    window: i64,
) -> Decoded<RunRecord> {
    let field = |name: &str| fields.get(name).map(String::as_str);
    let base = field("task").and_then(|json| serde_json::from_str(json).ok());
    let base: Base = base.unwrap_or_else(|| Base::unknown(run));
    let time = |name: &str| field(name)?.parse().ok().map(Timestamp::from_millis);
    let recoveries = [
        fields.get("recoveries").cloned(),
        fields.get("recovered_since").cloned(),
    ];
    let (state, waits) = match field("state") {
        Some(state) => (from_word(state)?, None),
        None => at.state(run.as_str()),
    };
    let running = at
        .running
        .as_deref()
        .map(|entry| entry.split('|').nth(7).unwrap_or(""));
    let progress = running
        .filter(|json| !json.is_empty())
        .or(field("progress"));
    Ok(RunRecord {
        run: run.clone(),
        job: run.job(),
        nominal: base.nominal,
        reason: base.reason,
        state,
        created_at: time("created_at").unwrap_or(base.nominal),
        ended_at: time("ended_at"),
        why: waits
            .or_else(|| field("why").map(text_of))
            .filter(|why| !why.is_empty()),
        recoveries: current_recoveries(&recoveries, now, window),
        of: base.of,
        attempts: attempts_of(fields)?,
        progress: progress.and_then(|json| serde_json::from_str(json).ok()),
        params: base.params,
    })
}

fn event_of(id: &str, fields: Vec<(String, String)>) -> ExecutionEvent {
    let mut event = ExecutionEvent {
        id: id.to_owned(),
        at: Timestamp::EPOCH,
        event: String::new(),
        job: String::new(),
        run: String::new(),
        fields: Vec::new(),
    };
    for (name, value) in fields {
        match name.as_str() {
            "at" => event.at = Timestamp::from_millis(value.parse().unwrap_or(0)),
            "event" => event.event = value,
            "job" => event.job = value,
            "run" => event.run = value,
            "why" | "by" => event.fields.push((name, text_of(&value))),
            _ => event.fields.push((name, value)),
        }
    }
    event
}

impl RedisStore {
    /// Records of runs, in order, without those that have none.
    async fn records(&self, verb: &'static str, runs: &[RunId]) -> Result<Vec<RunRecord>> {
        if runs.is_empty() {
            return Ok(Vec::new());
        }
        let names: Vec<&str> = runs.iter().map(RunId::as_str).collect();
        let mut pipe = redis::pipe();
        pipe.cmd("TIME");
        for register in [
            self.keys.scheduled(),
            self.keys.running(),
            self.keys.delayed(),
        ] {
            pipe.cmd("HMGET").arg(register).arg(&names);
        }
        for run in runs {
            pipe.cmd("HGETALL").arg(self.keys.record(run));
        }
        let answers = self.pipeline(verb, &pipe).await?;
        let [clock, scheduled, running, delayed, records @ ..] = answers.as_slice() else {
            return Err(broken(verb, "too few answers"));
        };
        let now = super::pods::clock_of(verb, clock)?.as_millis();
        let window = wasmcron_core::time::millis(self.options.recovery_window);
        let registers = [texts(scheduled), texts(running), texts(delayed)];
        let of = |register: usize, row: usize| registers.get(register)?.get(row)?.clone();
        let mut found = Vec::new();
        for (row, (run, record)) in runs.iter().zip(records).enumerate() {
            let at = Whereabouts {
                scheduled: of(0, row),
                running: of(1, row),
                delayed: of(2, row),
            };
            let fields: HashMap<String, String> = pairs(record).into_iter().collect();
            let nowhere = at.scheduled.is_none() && at.running.is_none() && at.delayed.is_none();
            if fields.is_empty() && nowhere {
                continue;
            }
            let bad = corrupt(self.keys.record(run), "a run's record");
            found.push(record_of(run, &fields, &at, now, window).map_err(bad)?);
        }
        Ok(found)
    }

    /// A page of a stream after a position.
    async fn stream(
        &self,
        verb: &'static str,
        key: String,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, Vec<(String, String)>)>> {
        let from = after.map_or("-".to_owned(), |id| format!("({id}"));
        let mut cmd = redis::cmd("XRANGE");
        cmd.arg(key)
            .arg(from)
            .arg("+")
            .arg("COUNT")
            .arg(limit.clamp(1, PAGE_MAX));
        let Value::Array(entries) = self.command(verb, &cmd).await? else {
            return Err(broken(verb, "no entries"));
        };
        let one = |entry: &Value| match entry {
            Value::Array(parts) => match parts.as_slice() {
                [id, fields] => Some((text(id)?, pairs(fields))),
                _ => None,
            },
            _ => None,
        };
        Ok(entries.iter().filter_map(one).collect())
    }
}

#[async_trait]
impl Inspect for RedisStore {
    async fn run(&self, run: &RunId) -> Result<Option<RunRecord>> {
        Ok(self
            .records("run", std::slice::from_ref(run))
            .await?
            .into_iter()
            .next())
    }

    async fn runs(&self, job: &JobName, limit: usize) -> Result<Vec<RunRecord>> {
        let mut cmd = redis::cmd("ZREVRANGE");
        cmd.arg(self.keys.runs(job))
            .arg(0)
            .arg(limit.clamp(1, PAGE_MAX) - 1);
        let names = texts(&self.command("runs", &cmd).await?);
        let runs: Vec<RunId> = names
            .iter()
            .flatten()
            .filter_map(|run| run.parse().ok())
            .collect();
        self.records("runs", &runs).await
    }

    async fn delayed(&self, run: &RunId) -> Result<Option<DelayedEntry>> {
        let mut cmd = redis::cmd("HGET");
        cmd.arg(self.keys.delayed()).arg(run.as_str());
        let Some(entry) = text(&self.command("delayed", &cmd).await?) else {
            return Ok(None);
        };
        let bad = corrupt(format!("{} {run}", self.keys.delayed()), "a delayed run");
        delayed_of(run.as_str(), &entry).map(Some).map_err(bad)
    }

    async fn gaps(&self, job: &JobName, limit: usize) -> Result<Vec<Gap>> {
        let mut cmd = redis::cmd("ZREVRANGE");
        cmd.arg(self.keys.gaps(job))
            .arg(0)
            .arg(limit.clamp(1, PAGE_MAX) - 1);
        let found = texts(&self.command("gaps", &cmd).await?);
        let bad =
            |error: serde_json::Error| corrupt(self.keys.gaps(job), "a gap")(error.to_string());
        found
            .iter()
            .flatten()
            .map(|json| serde_json::from_str(json).map_err(bad))
            .collect()
    }

    async fn log(&self, run: &RunId, after: Option<&str>, limit: usize) -> Result<LogPage> {
        let entries = self.stream("log", self.keys.log(run), after, limit).await?;
        let next = if entries.len() == limit.clamp(1, PAGE_MAX) {
            entries.last().map(|(id, _)| id.clone())
        } else {
            None
        };
        let bad =
            |error: serde_json::Error| corrupt(self.keys.log(run), "a log line")(error.to_string());
        let lines = entries
            .iter()
            .flat_map(|(_, fields)| fields)
            .filter(|(name, _)| name == "line");
        let lines = lines.map(|(_, json)| serde_json::from_str(json).map_err(bad));
        Ok(LogPage {
            lines: lines.collect::<Result<_>>()?,
            next,
        })
    }

    async fn execution_log(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ExecutionEvent>> {
        let entries = self
            .stream("execution_log", self.keys.execution_log(), after, limit)
            .await?;
        Ok(entries
            .into_iter()
            .map(|(id, fields)| event_of(&id, fields))
            .collect())
    }

    async fn checkpoint(&self, run: &RunId) -> Result<Option<Checkpoint>> {
        let mut answer = self
            .call(Call::new(Verb::Checkpoint, vec![self.keys.checkpoint(run)]))
            .await?;
        if answer.len() == 0 {
            return Ok(None);
        }
        let (seq, what) = (answer.text(0)?.to_owned(), answer.text(1)?.to_owned());
        let bad = corrupt(self.keys.checkpoint(run), "a checkpoint");
        checkpoint_of(&seq, &what, answer.take(2)?)
            .map(Some)
            .map_err(bad)
    }

    async fn checkpoints(&self, run: &RunId) -> Result<Vec<Checkpoint>> {
        let keys = vec![self.keys.checkpoint(run)];
        let mut answer = self.call(Call::new(Verb::Checkpoints, keys)).await?;
        let mut kept = Vec::new();
        for at in (0..answer.len()).step_by(3) {
            let (seq, what) = (answer.text(at)?.to_owned(), answer.text(at + 1)?.to_owned());
            let bad = corrupt(self.keys.checkpoint(run), "a checkpoint");
            kept.push(checkpoint_of(&seq, &what, answer.take(at + 2)?).map_err(bad)?);
        }
        Ok(kept)
    }

    async fn rewind_checkpoint(&self, run: &RunId, seq: u64, by: &str) -> Result<Rewound> {
        let keys = vec![
            self.keys.running(),
            self.keys.checkpoint(run),
            self.keys.execution_log(),
        ];
        let call = Call::new(Verb::RewindCheckpoint, keys)
            .arg(run.job().as_str())
            .arg(run.as_str())
            .arg(seq)
            .arg(bar_free(by));
        let answer = self.call(call).await?;
        match answer.word()? {
            "rewound" => Ok(Rewound::Rewound),
            "none" => Ok(Rewound::None),
            "running" => Ok(Rewound::Running),
            other => Err(answer.strange(other)),
        }
    }

    async fn quarantined(&self) -> Result<Vec<(JobName, Hold)>> {
        let mut cmd = redis::cmd("HGETALL");
        cmd.arg(self.keys.quarantined());
        let entries = pairs(&self.command("quarantined", &cmd).await?);
        let mut held: Vec<(JobName, Hold)> = entries
            .iter()
            .filter_map(|(job, hold)| Some((job.parse().ok()?, stop_of(Some(hold))?)))
            .collect();
        held.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(held)
    }

    async fn clear_checkpoint(&self, run: &RunId, by: &str) -> Result<Cleared> {
        let keys = vec![
            self.keys.running(),
            self.keys.checkpoint(run),
            self.keys.execution_log(),
        ];
        let call = Call::new(Verb::ClearCheckpoint, keys)
            .arg(run.job().as_str())
            .arg(run.as_str())
            .arg(bar_free(by));
        let answer = self.call(call).await?;
        match answer.word()? {
            "cleared" => Ok(Cleared::Cleared),
            "none" => Ok(Cleared::None),
            "running" => Ok(Cleared::Running),
            other => Err(answer.strange(other)),
        }
    }

    async fn warnings(&self) -> Result<Vec<String>> {
        let info = self.server_info().await?;
        let cluster = self.connection.check_place(info.clustered).await?;
        Ok(info.warnings().into_iter().chain(cluster).collect())
    }

    async fn counts(&self) -> Result<Counts> {
        let mut pipe = redis::pipe();
        for hash in [
            self.keys.schedules(),
            self.keys.scheduled(),
            self.keys.running(),
            self.keys.delayed(),
        ] {
            pipe.cmd("HLEN").arg(hash);
        }
        pipe.cmd("XLEN").arg(self.keys.dead_letters());
        let answers = self.pipeline("counts", &pipe).await?;
        let counts: Vec<u64> = answers
            .iter()
            .filter_map(|n| text(n)?.parse().ok())
            .collect();
        let [jobs, scheduled, running, delayed, dead_letters] = counts.as_slice() else {
            return Err(broken("counts", "not five numbers"));
        };
        Ok(Counts {
            jobs: *jobs,
            scheduled: *scheduled,
            running: *running,
            delayed: *delayed,
            dead_letters: *dead_letters,
        })
    }
}
