//! Turns due nominal times into tasks in the queues of live pods.

use std::time::Duration;

use wasmcron_core::decide::due::{self, Verdict};
use wasmcron_core::decide::publish::NoPod;
use wasmcron_core::ids::{JobName, RunId};
use wasmcron_core::task::Task;
use wasmcron_core::time::Timestamp;
use wasmcron_core::view::{JobView, Waiting};
use wasmcron_store::StoreError;
use wasmcron_store::leadership::TermRef;
use wasmcron_store::schedule::{Decision, PUBLISH_MAX, PublishAnswer, Published};

use super::pod::Pod;
use super::scheduler::{Board, Step};

/// Jobs that one step looks at.
const JOBS_MAX: usize = 1_000;
/// How long a job that found no pod, or was answered "not now", is put off.
const PUT_OFF: Duration = Duration::from_secs(1);
/// How long a job is put off whose decision came early or out of order.
const PUT_OFF_SHORT: Duration = Duration::from_millis(50);

/// Decides and publishes what is due.
///
/// # Errors
/// When the store does not answer; whatever was applied is answered as a repeat the next time.
pub async fn step(pod: &Pod, board: &mut Board, term: &TermRef) -> Result<Step, StoreError> {
    let now = pod.clock.now();
    let due = board.agenda.due(now, JOBS_MAX);
    let more = due.len() == JOBS_MAX;
    let mut batch: Vec<Decision> = Vec::with_capacity(PUBLISH_MAX);
    for job in due {
        for decision in decide(pod, board, term, &job, now).await? {
            if batch.len() == PUBLISH_MAX {
                if publish(pod, board, term, &batch).await? == Step::NotLeader {
                    return Ok(Step::NotLeader);
                }
                batch.clear();
            }
            batch.push(decision);
        }
    }
    if !batch.is_empty() && publish(pod, board, term, &batch).await? == Step::NotLeader {
        return Ok(Step::NotLeader);
    }
    Ok(if more { Step::More } else { Step::Done })
}

/// The decisions about one due job; none if it has to wait, which is then written down.
async fn decide(
    pod: &Pod,
    board: &mut Board,
    term: &TermRef,
    job: &JobName,
    now: Timestamp,
) -> Result<Vec<Decision>, StoreError> {
    let Some(view) = board.agenda.get(job.as_str()).cloned() else {
        return Ok(Vec::new());
    };
    let until = board
        .definitions
        .ends(job)
        .map_or(now, |ends| ends.min(now));
    let mut decisions = Vec::new();
    let mut after = view.cursor;
    for verdict in due::due(&view, until) {
        match verdict {
            Verdict::Gap(gap) => {
                let (job, to) = (job.clone(), gap.to);
                decisions.push(Decision::Gap { job, gap, after });
                after = to;
            }
            Verdict::Fire { nominal, reason } => {
                match board
                    .picker
                    .pick(job.as_str(), &view.stored.definition, &[])
                {
                    Ok(to) => {
                        let params = view.stored.definition.params.clone();
                        let mut task =
                            Task::first(RunId::nominal(job, nominal), nominal, reason, params);
                        task.digest.clone_from(&view.stored.definition.digest);
                        decisions.push(Decision::Fire { task, to, after });
                        after = nominal;
                    }
                    // Without a pod nothing of the job is written: a gap before the firing would
                    // be the first of one a minute for as long as no pod is there.
                    Err(why) => {
                        wait(pod, board, term, &view, &why, now).await?;
                        return Ok(Vec::new());
                    }
                }
            }
        }
    }
    if decisions.is_empty() {
        board.agenda.postpone(job, now + PUT_OFF_SHORT);
    }
    Ok(decisions)
}

/// Writes down why a due firing waits; logged when it begins to, counted each time, unless its job was
/// removed: nothing failed then.
async fn wait(
    pod: &Pod,
    board: &mut Board,
    term: &TermRef,
    view: &JobView,
    why: &NoPod,
    now: Timestamp,
) -> Result<(), StoreError> {
    let reason = match why {
        NoPod::NoneLive => "no_subscriber",
        NoPod::Labels { .. } => "labels",
        NoPod::Job => "no_job_file",
        NoPod::Plugin { .. } => "no_plugin",
        NoPod::Avoided => "avoided",
        NoPod::Exclusive => "exclusive",
    };
    if *why != NoPod::Job {
        let failed = pod.metrics.publish_failed.with_label_values(&[reason]);
        failed.inc();
    }
    board.agenda.postpone(&view.job, now + PUT_OFF);
    // A leader that has just started, and be it the only pod, has not been seen alive yet.
    if *why == NoPod::NoneLive && now.since(pod.started) < pod.settings.active_window() {
        return Ok(());
    }
    let text = why.to_string();
    if view
        .waiting
        .as_ref()
        .is_some_and(|waiting| waiting.why == text)
    {
        return Ok(());
    }
    if *why == NoPod::Job {
        // Most likely its file was deleted on purpose.
        tracing::info!(job = %view.job, why = %text, "a due firing waits");
    } else {
        tracing::error!(job = %view.job, why = %text, "a due firing waits");
    }
    let waiting = Waiting {
        since: view.waiting.as_ref().map_or(now, |known| known.since),
        why: text,
    };
    pod.store
        .set_waiting(term, &view.job, Some(&waiting))
        .await?;
    let mut view = view.clone();
    view.waiting = Some(waiting);
    let job = view.job.clone();
    board.agenda.upsert(view);
    board.agenda.postpone(&job, now + PUT_OFF);
    Ok(())
}

async fn publish(
    pod: &Pod,
    board: &mut Board,
    term: &TermRef,
    batch: &[Decision],
) -> Result<Step, StoreError> {
    let answers = match pod.store.publish(term, batch).await? {
        PublishAnswer::Answers(answers) => answers,
        PublishAnswer::NotLeader => return Ok(Step::NotLeader),
    };
    for (decision, answer) in batch.iter().zip(answers) {
        apply(pod, board, term, decision, answer).await?;
    }
    Ok(Step::Done)
}

async fn apply(
    pod: &Pod,
    board: &mut Board,
    term: &TermRef,
    decision: &Decision,
    answer: Published,
) -> Result<(), StoreError> {
    let (job, end) = match decision {
        Decision::Fire { task, .. } => (&task.job, task.nominal),
        Decision::Gap { job, gap, .. } => (job, gap.to),
    };
    let now = pod.clock.now();
    match answer {
        Published::Published => {
            count(pod, term, decision);
            board.agenda.advance(job, end);
            clear_waiting(pod, board, term, job).await?;
        }
        Published::Exists => {
            pod.metrics.trigger(job.as_str(), "dedup");
            board.agenda.advance(job, end);
        }
        Published::Deduped { cursor } => {
            pod.metrics.trigger(job.as_str(), "dedup");
            board.agenda.advance(job, cursor.max(end));
        }
        Published::NoPod => {
            // The picker's reading is older than the store's: pick another one at once.
            if let Decision::Fire { to, .. } = decision {
                board.picker.exclude(to);
            }
        }
        Published::Early => board.agenda.postpone(job, now + PUT_OFF_SHORT),
        Published::Held { .. } => {
            // What this pod remembers may not be there any more: a store that failed over can lose
            // what it acknowledged, and then those times are still to be decided.
            read_again(pod, board, job).await?;
            board.agenda.postpone(job, now + PUT_OFF_SHORT);
        }
        Published::Paused | Published::Quarantined => {
            read_again(pod, board, job).await?;
            board.agenda.postpone(job, now + PUT_OFF);
        }
    }
    Ok(())
}

async fn read_again(pod: &Pod, board: &mut Board, job: &JobName) -> Result<(), StoreError> {
    board.agenda.learn(job, pod.store.job(job).await?);
    Ok(())
}

fn count(pod: &Pod, term: &TermRef, decision: &Decision) {
    match decision {
        Decision::Fire { task, to, .. } => {
            pod.metrics.trigger(task.job.as_str(), "fired");
            pod.metrics.event("run.published");
            tracing::debug!(run = %task.run, pod = %to, term = %term.term, "run.published");
        }
        Decision::Gap { job, gap, .. } => {
            let missed = gap.why == "misfire";
            let (status, event) = if missed {
                ("missed", "firing.missed")
            } else {
                ("skipped", "firing.skipped")
            };
            let labels = [pod.metrics.job_label(job.as_str()), status];
            pod.metrics
                .triggers
                .with_label_values(&labels)
                .inc_by(gap.count);
            if missed {
                pod.metrics.missed.inc_by(gap.count);
            }
            pod.metrics.event(event);
            tracing::warn!(%job, term = %term.term, from = %gap.from, to = %gap.to, count = gap.count, why = %gap.why, event, "firing.gap");
        }
    }
}

async fn clear_waiting(
    pod: &Pod,
    board: &mut Board,
    term: &TermRef,
    job: &JobName,
) -> Result<(), StoreError> {
    let Some(view) = board
        .agenda
        .get(job.as_str())
        .filter(|view| view.waiting.is_some())
    else {
        return Ok(());
    };
    let mut view = view.clone();
    view.waiting = None;
    tracing::info!(%job, "a firing that waited was published");
    pod.store.set_waiting(term, job, None).await?;
    board.agenda.upsert(view);
    Ok(())
}
