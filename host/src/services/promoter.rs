//! Moves delayed runs (retries, continuations, hand-backs, manual runs) into queues when they are due.

use std::collections::BTreeMap;
use std::time::Duration;

use wasmcron_core::decide::publish::NoPod;
use wasmcron_core::decide::wait::{self, GiveUp};
use wasmcron_core::ids::{PodAddress, RunId};
use wasmcron_core::run::RunState;
use wasmcron_core::time::Timestamp;
use wasmcron_core::view::DelayedEntry;
use wasmcron_store::StoreError;
use wasmcron_store::leadership::TermRef;
use wasmcron_store::recovery::{Losing, Loss, Register};
use wasmcron_store::schedule::{PUBLISH_MAX, PromoteAnswer, Promoted};

use super::pod::Pod;
use super::scheduler::{Board, Step};

/// How long a due run that found no pod is left alone. Being put off, it does not stand in front of
/// those that could go.
const PUT_OFF: Duration = Duration::from_secs(1);

/// A run that nobody saw waiting for so long waits no more, or begins to anew.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

/// Since when due runs find no pod, as this leader saw it: first and last look.
#[derive(Debug, Default)]
pub struct Waits(BTreeMap<RunId, (Timestamp, Timestamp)>);

impl Waits {
    /// Notes a look at `now` that found no pod; answers how long that has been so.
    fn look(&mut self, run: &RunId, now: Timestamp) -> Duration {
        let (since, last) = self.0.entry(run.clone()).or_insert((now, now));
        *last = now;
        now.since(*since)
    }

    fn forget(&mut self, now: Timestamp) {
        self.0
            .retain(|_, (_, last)| now.since(*last) < FORGOTTEN_AFTER);
    }
}

/// Promotes what is due, at most [`PUBLISH_MAX`] runs.
///
/// # Errors
/// When the store does not answer; what left the delayed runs before is not moved twice.
pub async fn step(pod: &Pod, board: &mut Board, term: &TermRef) -> Result<Step, StoreError> {
    if board.next_delayed.is_some_and(|at| at > pod.clock.now()) {
        return Ok(Step::Done);
    }
    let due = pod.store.due_delayed(PUBLISH_MAX).await?;
    let mut buried = 0;
    for id in &due.corrupt {
        let register = Register::Delayed;
        if pod.store.bury(term, register, id, pod.retention()).await? {
            buried += 1;
            tracing::error!(entry = %id, ?register, "an entry that does not decode went to the dead letters");
        }
    }
    let (moves, stuck) = sort(pod, board, term, &due.entries, due.now).await?;
    board.waits.forget(due.now);
    // Looking again when nothing is known to be due costs one request; a wake-up says when sooner.
    let next = due.next.unwrap_or(due.now + super::scheduler::PODS_MAX_AGE);
    board.next_delayed = Some(if stuck {
        next.min(due.now + PUT_OFF)
    } else {
        next
    });
    // A page of what had to be buried is a full one, too: behind it good ones may wait.
    let more = if due.entries.len() + buried == PUBLISH_MAX {
        Step::More
    } else {
        Step::Done
    };
    if moves.is_empty() {
        return Ok(more);
    }
    match pod.store.promote(term, &moves).await? {
        PromoteAnswer::NotLeader => return Ok(Step::NotLeader),
        PromoteAnswer::Answers(answers) => {
            for ((run, to), answer) in moves.iter().zip(answers) {
                match answer {
                    Promoted::Promoted => {
                        pod.metrics.event("run.published");
                        tracing::debug!(%run, pod = %to, term = %term.term, was = "delayed", "run.published");
                    }
                    Promoted::Changed => {}
                    Promoted::NoPod => {
                        board.picker.exclude(to);
                        board.next_delayed = None;
                    }
                }
            }
        }
    }
    Ok(more)
}

/// Gives up what has waited for too long, says why the rest waits, and answers where what can go goes,
/// and whether anything waits.
async fn sort(
    pod: &Pod,
    board: &mut Board,
    term: &TermRef,
    entries: &[DelayedEntry],
    now: Timestamp,
) -> Result<(Vec<(RunId, PodAddress)>, bool), StoreError> {
    let began = began(pod, board, entries).await?;
    let mut moves: Vec<(RunId, PodAddress)> = Vec::new();
    let mut stuck = false;
    for entry in entries {
        let run = &entry.task.run;
        let view = board.agenda.get(entry.task.job.as_str());
        let job = view.map(|view| view.stored.definition.clone());
        let over = job
            .as_ref()
            .and_then(|job| wait::out_of_time(job, began.get(run).copied(), now));
        if let Some(over) = over {
            give_up(pod, term, entry, over).await?;
            continue;
        }
        let why = match pick(board, entry) {
            Ok(to) => {
                moves.push((run.clone(), to));
                continue;
            }
            Err(why) => why,
        };
        stuck = true;
        let waited = board.waits.look(run, now);
        let over = job.and_then(|job| wait::no_pod(&job, &entry.task, waited, &why.to_string()));
        match over {
            Some(over) => give_up(pod, term, entry, over).await?,
            None => explain(pod, term, entry, &why).await?,
        }
    }
    Ok((moves, stuck))
}

/// When the runs began that have a limit of their own.
async fn began(
    pod: &Pod,
    board: &Board,
    entries: &[DelayedEntry],
) -> Result<BTreeMap<RunId, Timestamp>, StoreError> {
    let limited = |entry: &&DelayedEntry| {
        let view = board.agenda.get(entry.task.job.as_str());
        entry.task.has_begun()
            && view.is_some_and(|view| view.stored.definition.run_timeout.is_some())
    };
    let runs: Vec<RunId> = entries
        .iter()
        .filter(limited)
        .map(|entry| entry.task.run.clone())
        .collect();
    if runs.is_empty() {
        return Ok(BTreeMap::new());
    }
    let times = pod.store.began(&runs).await?;
    Ok(runs
        .into_iter()
        .zip(times)
        .filter_map(|(run, at)| Some((run, at?)))
        .collect())
}

async fn give_up(
    pod: &Pod,
    term: &TermRef,
    entry: &DelayedEntry,
    how: GiveUp,
) -> Result<(), StoreError> {
    let (run, job) = (&entry.task.run, &entry.task.job);
    let loss = Loss {
        state: how.state,
        reason: how.why,
        quarantine: false,
        digest: None,
        retention: pod.retention(),
    };
    if pod.store.give_up(term, run, &loss).await? != Losing::Lost {
        return Ok(());
    }
    let event = if loss.state == RunState::Skipped {
        pod.metrics.trigger(job.as_str(), "missed");
        pod.metrics.missed.inc();
        "firing.missed"
    } else {
        let latency = pod.clock.now().since(entry.task.nominal);
        pod.metrics.run_ended(job.as_str(), latency);
        "run.finished"
    };
    pod.metrics.event(event);
    tracing::warn!(%run, state = loss.state.as_str(), why = %loss.reason, event, "a run that waited is given up");
    Ok(())
}

fn pick(board: &mut Board, entry: &DelayedEntry) -> Result<PodAddress, NoPod> {
    let task = &entry.task;
    let Some(view) = board.agenda.get(task.job.as_str()) else {
        return Err(NoPod::Job);
    };
    let mut definition = view.stored.definition.clone();
    if task.digest.is_some() {
        definition.digest.clone_from(&task.digest);
    }
    board
        .picker
        .pick(task.job.as_str(), &definition, &task.avoid)
}

async fn explain(
    pod: &Pod,
    term: &TermRef,
    entry: &DelayedEntry,
    why: &NoPod,
) -> Result<(), StoreError> {
    let text = why.to_string();
    pod.metrics
        .publish_failed
        .with_label_values(&["delayed"])
        .inc();
    if !entry.why.ends_with(&text) {
        tracing::warn!(run = %entry.task.run, why = %text, "a due run waits");
    }
    pod.store
        .explain_delayed(term, &entry.task.run, &text, PUT_OFF)
        .await
}
