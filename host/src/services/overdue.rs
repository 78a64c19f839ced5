//! Ends runs that are past their own time-out while they wait in the queue of a pod that has no slot free.

use std::collections::BTreeMap;

use wasmcron_core::decide::wait;
use wasmcron_core::ids::{JobName, RunId};
use wasmcron_core::job::Definition;
use wasmcron_core::view::ScheduledEntry;
use wasmcron_store::StoreError;
use wasmcron_store::leadership::TermRef;
use wasmcron_store::recovery::{Losing, Loss, Seen};

use super::pod::Pod;

/// Ends those of a page. A run's time begins with its first attempt, so only those are read that had one:
/// as a rule none.
///
/// # Errors
/// When the store does not answer; the next look finds what is left.
pub async fn end(pod: &Pod, term: &TermRef, page: &[ScheduledEntry]) -> Result<(), StoreError> {
    let begun: Vec<_> = page.iter().filter(|it| it.task.has_begun()).collect();
    if begun.is_empty() {
        return Ok(());
    }
    let definitions = limited(pod, &begun).await?;
    let limited: Vec<_> = begun
        .into_iter()
        .filter_map(|entry| Some((entry, definitions.get(&entry.task.job)?)))
        .collect();
    if limited.is_empty() {
        return Ok(());
    }
    let runs: Vec<RunId> = limited.iter().map(|(it, _)| it.task.run.clone()).collect();
    let times = pod.store.began(&runs).await?;
    let now = pod.clock.now();
    for ((entry, definition), began) in limited.into_iter().zip(times) {
        let Some(over) = wait::out_of_time(definition, began, now) else {
            continue;
        };
        let (run, job) = (&entry.task.run, &entry.task.job);
        let loss = Loss {
            state: over.state,
            reason: format!("{}: it waited in the queue of {}", over.why, entry.pod),
            quarantine: false,
            digest: None,
            retention: pod.retention(),
        };
        let seen = Seen::Scheduled(entry.delivery);
        if pod.store.lose(term, run, seen, &loss).await? == Losing::Lost {
            let latency = now.since(entry.task.nominal);
            pod.metrics.run_ended(job.as_str(), latency);
            pod.metrics.event("run.finished");
            tracing::warn!(%run, term = %term.term, state = over.state.as_str(), why = %loss.reason, "a run that waited is given up");
        }
    }
    Ok(())
}

/// The definitions of the entries' jobs that limit a run's time.
async fn limited(
    pod: &Pod,
    entries: &[&ScheduledEntry],
) -> Result<BTreeMap<JobName, Definition>, StoreError> {
    let mut jobs: Vec<JobName> = entries.iter().map(|it| it.task.job.clone()).collect();
    jobs.sort_unstable();
    jobs.dedup();
    let views = pod.store.jobs(&jobs).await?;
    Ok(jobs
        .into_iter()
        .zip(views)
        .filter_map(|(job, view)| Some((job, view?.stored.definition)))
        .filter(|(_, definition)| definition.run_timeout.is_some())
        .collect())
}
