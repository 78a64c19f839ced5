//! What the leader writes: definitions, firings and gaps; and what people ask for.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use redis::Value;
use wasmcron_core::ids::{DefinitionHash, JobName, PodAddress, RunId, RunKey};
use wasmcron_core::job::StoredDefinition;
use wasmcron_core::time::Timestamp;
use wasmcron_core::view::{Hold, JobView, Successes, Waiting};

use super::RedisStore;
use super::codec::{Answer, Decoded, bar_free, corrupt, delayed_of, pairs, task_text, text, texts};
use super::errors::broken;
use super::script::{Call, Verb, px};
use crate::error::{Result, StoreError};
use crate::leadership::TermRef;
use crate::schedule::{
    Decision, DueDelayed, Opened, Operated, PAGE_MAX, PUBLISH_MAX, PromoteAnswer, Promoted,
    PublishAnswer, Published, Schedules, Submission, Submitted, ViewPage,
};

/// How long idempotency keys are remembered.
const IDEMPOTENCY_KEPT: Duration = Duration::from_secs(24 * 3_600);
/// Nominal times counted for a gap of a pause; a longer pause counts as this many.
const COUNT_MAX: u64 = 10_000;
/// Tries to resume a job whose cursor moves meanwhile.
const RESUME_TRIES: usize = 5;

/// What the hashes hold of a job, as read.
struct Facts<'a> {
    job: &'a str,
    schedule: &'a str,
    cursor: Option<&'a str>,
    paused: Option<&'a str>,
    quarantined: Option<&'a str>,
    active: Option<&'a str>,
    waiting: Option<&'a str>,
    stats: Vec<Option<String>>,
}

/// Reads `at|{"by":…,"why":…}`.
fn hold_of(text: &str) -> Decoded<Hold> {
    #[derive(serde::Deserialize)]
    struct Said {
        by: String,
        why: String,
    }
    let (at, json) = text.split_once('|').ok_or("no time")?;
    let said: Said = serde_json::from_str(json).map_err(|error| error.to_string())?;
    let at = at.parse().map_err(|_| format!("{at:?} is no time"))?;
    Ok(Hold {
        by: said.by,
        at: Timestamp::from_millis(at),
        why: said.why,
    })
}

/// Writes who and why of a hold; the script adds when.
pub(super) fn hold_text(by: &str, why: &str) -> String {
    bar_free(&serde_json::json!({ "by": by, "why": why }))
}

fn stored_of(text: &str) -> Decoded<StoredDefinition> {
    let json = text.splitn(3, '|').nth(2).ok_or("no definition")?;
    serde_json::from_str(json).map_err(|error| error.to_string())
}

/// A stop whose reason does not decode still stops.
fn stop_of(text: Option<&str>) -> Option<Hold> {
    let unknown = |text: &str| Hold {
        by: "?".into(),
        at: Timestamp::EPOCH,
        why: text.to_owned(),
    };
    text.map(|text| hold_of(text).unwrap_or_else(|_| unknown(text)))
}

impl Facts<'_> {
    fn view(&self) -> Decoded<JobView> {
        let stored = stored_of(self.schedule)?;
        let cursor = match self.cursor {
            Some(ms) => Timestamp::from_millis(ms.parse().map_err(|_| format!("cursor {ms:?}"))?),
            None => stored.since,
        };
        let stat = |at: usize| {
            self.stats
                .get(at)
                .and_then(|n| n.as_deref()?.parse::<u64>().ok())
                .unwrap_or(0)
        };
        let (count, sum) = (stat(0), stat(1));
        Ok(JobView {
            job: self.job.parse().map_err(|_| "the job's name".to_owned())?,
            stored,
            cursor,
            paused: stop_of(self.paused),
            quarantined: stop_of(self.quarantined),
            active: self.active.and_then(|run| run.parse().ok()),
            waiting: self
                .waiting
                .and_then(|json| serde_json::from_str(json).ok()),
            successes: Successes {
                count,
                average: Duration::from_millis(sum.checked_div(count).unwrap_or(0)),
            },
        })
    }
}

impl RedisStore {
    /// Views of jobs from their entries in `schedules`.
    async fn views(&self, entries: &[(String, String)]) -> Result<(Vec<JobView>, Vec<String>)> {
        if entries.is_empty() {
            return Ok((Vec::new(), Vec::new()));
        }
        let names: Vec<&str> = entries.iter().map(|(job, _)| job.as_str()).collect();
        let hashes = [
            self.keys.cursor(),
            self.keys.paused(),
            self.keys.quarantined(),
            self.keys.active(),
            self.keys.waiting(),
        ];
        let mut pipe = redis::pipe();
        for hash in &hashes {
            pipe.cmd("HMGET").arg(hash).arg(&names);
        }
        let mut with_stats = Vec::new();
        for (at, name) in names.iter().enumerate() {
            if let Ok(job) = name.parse::<JobName>() {
                with_stats.push(at);
                pipe.cmd("HMGET")
                    .arg(self.keys.stats(&job))
                    .arg(&["successes", "successes_ms"]);
            }
        }
        let answers = self.pipeline("view", &pipe).await?;
        let columns: Vec<Vec<Option<String>>> =
            answers.iter().take(hashes.len()).map(texts).collect();
        let mut stats: HashMap<usize, Vec<Option<String>>> = with_stats
            .into_iter()
            .zip(answers.iter().skip(hashes.len()).map(texts))
            .collect();
        let field = |column: usize, row: usize| columns.get(column)?.get(row)?.as_deref();
        let (mut views, mut broken) = (Vec::new(), Vec::new());
        for (row, (job, schedule)) in entries.iter().enumerate() {
            let facts = Facts {
                job,
                schedule,
                cursor: field(0, row),
                paused: field(1, row),
                quarantined: field(2, row),
                active: field(3, row),
                waiting: field(4, row),
                stats: stats.remove(&row).unwrap_or_default(),
            };
            match facts.view() {
                Ok(view) => views.push(view),
                Err(message) => {
                    tracing::warn!(job, message, "a stored definition does not decode");
                    broken.push(job.clone());
                }
            }
        }
        Ok((views, broken))
    }

    async fn operate(&self, call: Call) -> Result<Operated> {
        let answer = self.call(call).await?;
        match answer.word()? {
            "done" => Ok(Operated::Done),
            "unchanged" => Ok(Operated::Unchanged),
            "unknown-job" => Ok(Operated::UnknownJob),
            other => Err(answer.strange(other)),
        }
    }

    /// One try to resume; none if the cursor moved meanwhile.
    async fn try_resume(&self, job: &JobName, by: &str) -> Result<Option<Operated>> {
        let mut pipe = redis::pipe();
        pipe.cmd("HGET")
            .arg(self.keys.schedules())
            .arg(job.as_str());
        pipe.cmd("HGET").arg(self.keys.cursor()).arg(job.as_str());
        pipe.cmd("TIME");
        let answers = self.pipeline("resume", &pipe).await?;
        let [schedule, cursor, clock] = answers.as_slice() else {
            return Err(broken("resume", "not three answers"));
        };
        let now = super::pods::clock_of("resume", clock)?;
        let cursor = text(cursor).unwrap_or_default();
        let from = cursor.parse().map(Timestamp::from_millis).ok();
        let stored = text(schedule).and_then(|text| stored_of(&text).ok());
        let count = match (&stored, from) {
            (Some(stored), Some(from)) => count_between(stored, from, now),
            _ => 0,
        };
        let keys = vec![
            self.keys.schedules(),
            self.keys.paused(),
            self.keys.cursor(),
            self.keys.gaps(job),
            self.keys.execution_log(),
            self.keys.control(),
        ];
        let call = Call::new(Verb::Resume, keys)
            .arg(job.as_str())
            .arg(cursor)
            .arg(now)
            .arg(count)
            .arg(bar_free(by));
        let answer = self.call(call).await?;
        match answer.word()? {
            "done" => Ok(Some(Operated::Done)),
            "unchanged" => Ok(Some(Operated::Unchanged)),
            "unknown-job" => Ok(Some(Operated::UnknownJob)),
            "changed" => Ok(None),
            other => Err(answer.strange(other)),
        }
    }
}

/// How many nominal times of a definition lie in `(after, until]`, at most [`COUNT_MAX`].
fn count_between(stored: &StoredDefinition, after: Timestamp, until: Timestamp) -> u64 {
    let schedule = &stored.definition.schedule;
    let times = std::iter::successors(schedule.next_after(after), |at| schedule.next_after(*at));
    let within = times.take_while(|at| *at <= until);
    within
        .zip(0..COUNT_MAX)
        .count()
        .try_into()
        .unwrap_or(COUNT_MAX)
}

/// Numbers pods in the order in which they first occur, and puts their keys into a call.
struct Targets<'a> {
    numbers: HashMap<&'a PodAddress, usize>,
    order: Vec<&'a PodAddress>,
}

impl<'a> Targets<'a> {
    fn of(pods: impl Iterator<Item = &'a PodAddress>) -> Targets<'a> {
        let mut targets = Targets {
            numbers: HashMap::new(),
            order: Vec::new(),
        };
        for pod in pods {
            if !targets.numbers.contains_key(pod) {
                targets.order.push(pod);
                targets.numbers.insert(pod, targets.order.len());
            }
        }
        targets
    }

    fn number(&self, pod: &PodAddress) -> usize {
        self.numbers.get(pod).copied().unwrap_or(0)
    }

    fn add_to(&self, store: &RedisStore, call: &mut Call) {
        call.push(self.order.len());
        for pod in &self.order {
            call.push_key(store.keys.pod(pod));
            call.push_key(store.keys.tasks(pod));
            call.push(pod.as_str());
        }
    }
}

fn within(what: &'static str, found: usize, limit: usize) -> Result<()> {
    if found <= limit {
        Ok(())
    } else {
        Err(StoreError::TooLarge { what, found, limit })
    }
}

fn published_of(answer: &Answer, at: usize) -> Result<Published> {
    let said = answer.text(at)?;
    let (word, cursor) = said.split_once('|').unwrap_or((said, "0"));
    let cursor = Timestamp::from_millis(cursor.parse().map_err(|_| answer.strange(said))?);
    Ok(match word {
        "published" => Published::Published,
        "deduped" => Published::Deduped { cursor },
        "exists" => Published::Exists,
        "held" => Published::Held { cursor },
        "no-pod" => Published::NoPod,
        "paused" => Published::Paused,
        "quarantined" => Published::Quarantined,
        "early" => Published::Early,
        _ => return Err(answer.strange(said)),
    })
}

/// Whether the answer is that the caller leads no more; otherwise it must have `len` parts.
fn not_leader(answer: &Answer, len: usize) -> Result<bool> {
    if answer.len() == 1 && answer.word()? == "not-leader" {
        return Ok(true);
    }
    if answer.len() == len {
        Ok(false)
    } else {
        Err(answer.strange("wrong number of answers"))
    }
}

#[async_trait]
impl Schedules for RedisStore {
    async fn view(&self, cursor: Option<u64>) -> Result<ViewPage> {
        let (entries, next) = self.page_of("view", self.keys.schedules(), cursor).await?;
        let (jobs, corrupt) = self.views(&entries).await?;
        Ok(ViewPage {
            jobs,
            corrupt,
            next,
        })
    }

    async fn job(&self, job: &JobName) -> Result<Option<JobView>> {
        let mut cmd = redis::cmd("HGET");
        cmd.arg(self.keys.schedules()).arg(job.as_str());
        let Some(schedule) = text(&self.command("job", &cmd).await?) else {
            return Ok(None);
        };
        let (views, _) = self.views(&[(job.to_string(), schedule)]).await?;
        match views.into_iter().next() {
            Some(view) => Ok(Some(view)),
            None => {
                let key = format!("{} {job}", self.keys.schedules());
                Err(corrupt(key, "a definition")("it does not decode".into()))
            }
        }
    }

    async fn open(
        &self,
        term: &TermRef,
        job: &JobName,
        was: Option<&DefinitionHash>,
        stored: &StoredDefinition,
    ) -> Result<Opened> {
        let keys = vec![
            self.keys.leader(),
            self.keys.term(),
            self.keys.schedules(),
            self.keys.cursor(),
            self.keys.gaps(job),
            self.keys.execution_log(),
            self.keys.control(),
        ];
        let call = Call::new(Verb::Open, keys)
            .term(term)
            .arg(job.as_str())
            .arg(was.map_or("", DefinitionHash::as_str))
            .arg(stored.hash.as_str())
            .arg(stored.since)
            .arg(serde_json::to_string(stored).map_err(|error| broken("open", error.to_string()))?);
        let answer = self.call(call).await?;
        match answer.word()? {
            "opened" => Ok(Opened::Opened {
                cursor: answer.time(1)?,
            }),
            "changed" => Ok(Opened::Changed),
            "not-leader" => Ok(Opened::NotLeader),
            other => Err(answer.strange(other)),
        }
    }

    async fn publish(&self, term: &TermRef, decisions: &[Decision]) -> Result<PublishAnswer> {
        within("decisions in one publish", decisions.len(), PUBLISH_MAX)?;
        let targets = Targets::of(decisions.iter().filter_map(|decision| match decision {
            Decision::Fire { to, .. } => Some(to),
            Decision::Gap { .. } => None,
        }));
        let keys = vec![
            self.keys.leader(),
            self.keys.term(),
            self.keys.paused(),
            self.keys.quarantined(),
            self.keys.cursor(),
            self.keys.scheduled(),
            self.keys.delivery(),
            self.keys.subscribers(),
            self.keys.execution_log(),
        ];
        let mut call = Call::new(Verb::Publish, keys).term(term);
        targets.add_to(self, &mut call);
        for decision in decisions {
            match decision {
                Decision::Fire { task, to } => {
                    call.push_key(self.keys.record(&task.run));
                    call.push_key(self.keys.runs(&task.job));
                    call.push("F");
                    call.push(task.job.as_str());
                    call.push(task.nominal);
                    call.push(task.run.as_str());
                    call.push(targets.number(to));
                    call.push(task_text(task)?);
                }
                Decision::Gap { job, gap } => {
                    call.push_key(self.keys.gaps(job));
                    call.push("G");
                    call.push(job.as_str());
                    call.push(gap.to);
                    call.push(gap.from);
                    call.push(gap.count);
                    call.push(bar_free(&gap.why));
                    call.push(if gap.why == "misfire" {
                        "firing.missed"
                    } else {
                        "firing.skipped"
                    });
                }
            }
        }
        let answer = self.call(call).await?;
        if not_leader(&answer, decisions.len())? {
            return Ok(PublishAnswer::NotLeader);
        }
        let answers = (0..decisions.len()).map(|at| published_of(&answer, at));
        Ok(PublishAnswer::Answers(answers.collect::<Result<_>>()?))
    }

    async fn due_delayed(&self, limit: usize) -> Result<DueDelayed> {
        let keys = vec![self.keys.delayed(), self.keys.due()];
        let call = Call::new(Verb::DueDelayed, keys).arg(limit.clamp(1, PAGE_MAX));
        let answer = self.call(call).await?;
        let next = if answer.bytes(1)?.is_empty() {
            None
        } else {
            Some(answer.time(1)?)
        };
        let mut due = DueDelayed {
            now: answer.time(0)?,
            entries: Vec::new(),
            corrupt: Vec::new(),
            next,
        };
        for at in (2..answer.len()).step_by(2) {
            let run = String::from_utf8_lossy(answer.bytes(at)?);
            let entry = String::from_utf8_lossy(answer.bytes(at + 1)?);
            match delayed_of(&run, &entry) {
                Ok(entry) => due.entries.push(entry),
                Err(message) => {
                    tracing::warn!(%run, message, "a delayed run does not decode");
                    due.corrupt.push(run.into_owned());
                }
            }
        }
        Ok(due)
    }

    async fn promote(
        &self,
        term: &TermRef,
        moves: &[(RunId, PodAddress)],
    ) -> Result<PromoteAnswer> {
        within("moves in one promote", moves.len(), PAGE_MAX)?;
        let targets = Targets::of(moves.iter().map(|(_, to)| to));
        let keys = vec![
            self.keys.leader(),
            self.keys.term(),
            self.keys.delayed(),
            self.keys.due(),
            self.keys.scheduled(),
            self.keys.delivery(),
            self.keys.subscribers(),
            self.keys.execution_log(),
        ];
        let mut call = Call::new(Verb::Promote, keys).term(term);
        targets.add_to(self, &mut call);
        for (run, to) in moves {
            call.push(run.job().as_str());
            call.push(run.as_str());
            call.push(targets.number(to));
        }
        let answer = self.call(call).await?;
        if not_leader(&answer, moves.len())? {
            return Ok(PromoteAnswer::NotLeader);
        }
        let one = |at: usize| match answer.text(at)? {
            "promoted" => Ok(Promoted::Promoted),
            "changed" => Ok(Promoted::Changed),
            "no-pod" => Ok(Promoted::NoPod),
            other => Err(answer.strange(other)),
        };
        Ok(PromoteAnswer::Answers(
            (0..moves.len()).map(one).collect::<Result<_>>()?,
        ))
    }

    async fn explain_delayed(&self, term: &TermRef, run: &RunId, why: &str) -> Result<()> {
        let keys = vec![self.keys.leader(), self.keys.term(), self.keys.delayed()];
        let call = Call::new(Verb::ExplainDelayed, keys)
            .term(term)
            .arg(run.as_str())
            .arg(bar_free(why));
        self.operate(call).await.map(drop)
    }

    async fn submit(&self, submission: &Submission) -> Result<Submitted> {
        let task = &submission.task;
        let (job, run) = (&task.job, &task.run);
        let nominal = match run.key() {
            RunKey::Nominal(_) => task.nominal.as_millis().to_string(),
            RunKey::Manual(_) => String::new(),
        };
        let idempotency = submission.idempotency.as_ref();
        let mut keys = self.keys.of_run(job, run);
        keys.extend([self.keys.schedules(), self.keys.cursor()]);
        keys.push(idempotency.map_or_else(
            || self.keys.record(run),
            |key| self.keys.idempotency(&key.key),
        ));
        let call = Call::new(Verb::Submit, keys)
            .arg(job.as_str())
            .arg(run.as_str())
            .arg(task_text(task)?)
            .arg(nominal)
            .arg(idempotency.map_or(String::new(), |key| bar_free(&key.body)))
            .arg(px(IDEMPOTENCY_KEPT))
            .arg(bar_free("asked for"));
        let answer = self.call(call).await?;
        Ok(match answer.word()? {
            "accepted" => Submitted::Accepted { run: run.clone() },
            "same" => Submitted::Same { run: answer.id(1)? },
            "conflict" => Submitted::Conflict { run: answer.id(1)? },
            "not-yet" => Submitted::NotYet {
                cursor: answer.time(1)?,
            },
            "exists" => Submitted::Exists,
            "unknown-job" => Submitted::UnknownJob,
            other => return Err(answer.strange(other)),
        })
    }

    async fn pause(&self, job: &JobName, by: &str, why: &str) -> Result<Operated> {
        let keys = vec![
            self.keys.schedules(),
            self.keys.paused(),
            self.keys.execution_log(),
            self.keys.control(),
        ];
        let call = Call::new(Verb::Pause, keys)
            .arg(job.as_str())
            .arg(hold_text(by, why))
            .arg(bar_free(by));
        self.operate(call).await
    }

    async fn resume(&self, job: &JobName, by: &str) -> Result<Operated> {
        for _ in 0..RESUME_TRIES {
            if let Some(done) = self.try_resume(job, by).await? {
                return Ok(done);
            }
        }
        Err(StoreError::Unavailable {
            verb: "resume",
            message: "the job's cursor keeps moving".into(),
        })
    }

    async fn release(&self, job: &JobName, by: &str) -> Result<Operated> {
        let keys = vec![
            self.keys.schedules(),
            self.keys.quarantined(),
            self.keys.execution_log(),
            self.keys.control(),
        ];
        self.operate(
            Call::new(Verb::Release, keys)
                .arg(job.as_str())
                .arg(bar_free(by)),
        )
        .await
    }

    async fn set_waiting(
        &self,
        term: &TermRef,
        job: &JobName,
        waiting: Option<&Waiting>,
    ) -> Result<()> {
        let keys = vec![self.keys.leader(), self.keys.term(), self.keys.waiting()];
        let call = Call::new(Verb::SetWaiting, keys)
            .term(term)
            .arg(job.as_str())
            .arg(waiting.map_or(String::new(), bar_free));
        self.operate(call).await.map(drop)
    }

    async fn retire(&self, term: &TermRef, job: &JobName) -> Result<Operated> {
        let keys = vec![
            self.keys.leader(),
            self.keys.term(),
            self.keys.schedules(),
            self.keys.cursor(),
            self.keys.waiting(),
            self.keys.paused(),
            self.keys.quarantined(),
            self.keys.gaps(job),
            self.keys.execution_log(),
            self.keys.control(),
        ];
        self.operate(Call::new(Verb::Retire, keys).term(term).arg(job.as_str()))
            .await
    }
}

impl RedisStore {
    /// A page of a hash, and where the next one begins. An entry that stays throughout the scan is on
    /// at least one page; one may stand on two.
    pub(super) async fn page_of(
        &self,
        verb: &'static str,
        key: String,
        cursor: Option<u64>,
    ) -> Result<(Vec<(String, String)>, Option<u64>)> {
        let mut cmd = redis::cmd("HSCAN");
        cmd.arg(key)
            .arg(cursor.unwrap_or(0))
            .arg("COUNT")
            .arg(PAGE_MAX);
        match self.command(verb, &cmd).await? {
            Value::Array(parts) => {
                let [next, entries] = parts.as_slice() else {
                    return Err(broken(verb, "no page"));
                };
                let next = text(next)
                    .and_then(|next| next.parse().ok())
                    .filter(|next| *next != 0);
                Ok((pairs(entries), next))
            }
            _ => Err(broken(verb, "no page")),
        }
    }
}
