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

enum Next {
    Step(Step),
    Done(Followed),
}

/// What came of a task whose claim met another run of its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Followed {
    /// It is skipped, it waits, or it is no longer this pod's.
    Settled,
    /// It was not there to be set aside: another pod has it, or an earlier claim of this pod that was
    /// given up came through after the one that was answered. Only one more claim tells which.
    Gone,
}

/// Brings the task to an end: skipped, or parked behind the active run `holder`, which is asked to end
/// first where the job says `replace`. Of several firings that wait to replace it, the latest stays.
pub async fn follow(
    pod: &Pod,
    taken: &Taken,
    job: &Job,
    holder: &RunId,
    outage: &Outage,
) -> Followed {
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
                Parked::Parked => Next::Done(Followed::Settled),
                Parked::Changed => Next::Done(Followed::Gone),
                Parked::Full if job.definition.overlap == Overlap::Replace && !room_was_made => {
                    room_was_made = true;
                    Next::Step(Step::MakeRoom)
                }
                Parked::Full => Next::Step(Step::Skip),
            }),
            Step::MakeRoom => make_room(pod, taken).await,
            Step::Replace => {
                let by = by(taken);
                let cancelled = pod.store.cancel(holder, &by, pod.retention()).await;
                cancelled.map(|_| Next::Step(Step::Park))
            }
        };
        match answer {
            Ok(Next::Done(followed)) => return followed,
            Ok(Next::Step(following)) => next = following,
            Err(error) => {
                let wait = outage.failed(&error, &pod.metrics);
                if !pod.rest(wait).await {
                    return Followed::Settled;
                }
            }
        }
    }
}

async fn skip(pod: &Pod, taken: &Taken, job: &Job, holder: &RunId) -> wasmcron_store::Result<Next> {
    let why = format!("overlap with {holder}");
    let moved = pod.store.skip(&pod.me, taken, &why).await?;
    Ok(match moved {
        Moved::Moved => {
            pod.metrics.trigger(job.name.as_str(), "skipped");
            pod.metrics.event("run.skipped");
            tracing::info!(run = %taken.run, %holder, "run.skipped");
            Next::Done(Followed::Settled)
        }
        // It may not be skipped (or is not ours any more, which parking finds out as well).
        Moved::Changed => Next::Step(Step::Park),
        Moved::Superseded => Next::Done(Followed::Settled),
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
async fn make_room(pod: &Pod, taken: &Taken) -> wasmcron_store::Result<Next> {
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
            Ok(Next::Step(Step::Park))
        }
        None => Ok(Next::Step(Step::Skip)),
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
