//! What becomes of a task whose job has another run that began and did not end.

use wasmcron_core::decide::claim::{self, Follow};
use wasmcron_core::ids::{RunId, RunKey};
use wasmcron_core::job::{Job, Overlap};
use wasmcron_core::run::RunState;
use wasmcron_core::task::Reason;
use wasmcron_store::queue::{Moved, Parked, Taken};

use super::outage::Outage;
use super::pod::Pod;

/// Firings of one job that wait for its active run.
const QUEUE_MAX: u32 = 1;
/// A waiting firing is looked for among so many of the job's latest runs.
const LATEST_RUNS: usize = 20;

/// The next step with the task.
#[derive(Clone, Copy)]
enum Step {
    Skip,
    Park,
    /// Ends the firing that waits, so that this newer one can.
    MakeRoom,
    /// Asks for the end of the active run.
    Replace,
}

/// Brings the task to an end: skipped, or parked behind the active run `holder`, which is asked to end
/// first where the job says `replace`. Of several firings that wait to replace it, the latest stays.
pub async fn follow(pod: &Pod, taken: &Taken, job: &Job, holder: &RunId, outage: &Outage) {
    let mut room_was_made = false;
    let mut next = match claim::overlap(job.definition.overlap) {
        Follow::Skip => Step::Skip,
        Follow::Park => Step::Park,
        // A run that waited while a newer firing began gives way to it.
        Follow::Replace if is_older(&taken.run, holder) => Step::Skip,
        Follow::Replace => Step::Replace,
    };
    loop {
        let answer = match next {
            Step::Skip => skip(pod, taken, job, holder).await,
            Step::Park => park(pod, taken, holder).await.map(|parked| match parked {
                Parked::Parked | Parked::Changed => None,
                Parked::Full if job.definition.overlap == Overlap::Replace && !room_was_made => {
                    room_was_made = true;
                    Some(Step::MakeRoom)
                }
                Parked::Full => Some(Step::Skip),
            }),
            Step::MakeRoom => make_room(pod, taken).await,
            Step::Replace => {
                let by = by(taken);
                let cancelled = pod.store.cancel(holder, &by, pod.retention()).await;
                cancelled.map(|_| Some(Step::Park))
            }
        };
        match answer {
            Ok(None) => return,
            Ok(Some(following)) => next = following,
            Err(error) => {
                let wait = outage.failed(&error, &pod.metrics);
                if !pod.rest(wait).await {
                    return;
                }
            }
        }
    }
}

async fn skip(
    pod: &Pod,
    taken: &Taken,
    job: &Job,
    holder: &RunId,
) -> wasmcron_store::Result<Option<Step>> {
    let why = format!("overlap with {holder}");
    let moved = pod.store.skip(&pod.me, taken, &why).await?;
    Ok(match moved {
        Moved::Moved => {
            pod.metrics.trigger(job.name.as_str(), "skipped");
            pod.metrics.event("run.skipped");
            tracing::info!(run = %taken.run, %holder, "run.skipped");
            None
        }
        // It may not be skipped (or is not ours any more, which parking finds out as well).
        Moved::Changed => Some(Step::Park),
        Moved::Superseded => None,
    })
}

async fn park(pod: &Pod, taken: &Taken, holder: &RunId) -> wasmcron_store::Result<Parked> {
    let parked = pod.store.park(&pod.me, taken, QUEUE_MAX).await?;
    if parked == Parked::Parked {
        pod.metrics.event("run.waiting");
        tracing::info!(run = %taken.run, %holder, "run.waiting");
    }
    Ok(parked)
}

/// Ends an older firing of the job that waits. Only a firing: what somebody asked for stays.
async fn make_room(pod: &Pod, taken: &Taken) -> wasmcron_store::Result<Option<Step>> {
    let runs = pod.store.runs(&taken.run.job(), LATEST_RUNS).await?;
    let waits = runs.into_iter().find(|run| {
        run.state == RunState::Parked
            && run.reason == Reason::Scheduled
            && is_older(&run.run, &taken.run)
    });
    match waits {
        Some(older) => {
            pod.store
                .cancel(&older.run, &by(taken), pod.retention())
                .await?;
            Ok(Some(Step::Park))
        }
        None => Ok(Some(Step::Skip)),
    }
}

fn by(taken: &Taken) -> String {
    format!("a newer firing, {}", taken.run)
}

/// Whether a firing stands for an earlier time than another.
fn is_older(run: &RunId, than: &RunId) -> bool {
    match (run.key(), than.key()) {
        (RunKey::Nominal(mine), RunKey::Nominal(theirs)) => mine < theirs,
        _ => false,
    }
}
