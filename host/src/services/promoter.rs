//! Moves delayed runs (retries, continuations, hand-backs, manual runs) into queues when they are due.

use std::time::Duration;

use wasmcron_core::decide::publish::NoPod;
use wasmcron_core::ids::{PodAddress, RunId};
use wasmcron_core::view::DelayedEntry;
use wasmcron_store::StoreError;
use wasmcron_store::leadership::TermRef;
use wasmcron_store::recovery::Register;
use wasmcron_store::schedule::{PUBLISH_MAX, PromoteAnswer, Promoted};

use super::pod::Pod;
use super::scheduler::{Board, Step};

/// How long a due run that found no pod is left alone. Being put off, it does not stand in front of
/// those that could go.
const PUT_OFF: Duration = Duration::from_secs(1);

/// Promotes what is due, at most [`PUBLISH_MAX`] runs.
///
/// # Errors
/// When the store does not answer; what left the delayed runs before is not moved twice.
pub async fn step(pod: &Pod, board: &mut Board, term: &TermRef) -> Result<Step, StoreError> {
    if board.next_delayed.is_some_and(|at| at > pod.clock.now()) {
        return Ok(Step::Done);
    }
    let due = pod.store.due_delayed(PUBLISH_MAX).await?;
    for id in &due.corrupt {
        pod.store
            .bury(term, Register::Delayed, id, pod.retention())
            .await?;
    }
    let mut moves: Vec<(RunId, PodAddress)> = Vec::new();
    let mut stuck = false;
    for entry in &due.entries {
        match pick(board, entry) {
            Ok(to) => moves.push((entry.task.run.clone(), to)),
            Err(why) => {
                stuck = true;
                explain(pod, term, entry, &why).await?;
            }
        }
    }
    // Looking again when nothing is known to be due costs one request; a wake-up says when sooner.
    let next = due.next.unwrap_or(due.now + super::scheduler::PODS_MAX_AGE);
    board.next_delayed = Some(if stuck {
        next.min(due.now + PUT_OFF)
    } else {
        next
    });
    let more = if due.entries.len() == PUBLISH_MAX {
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
