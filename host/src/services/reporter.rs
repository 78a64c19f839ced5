//! Reports to the fleet what this pod can run, and lets runs go over to a newer plugin.

use std::sync::Arc;
use std::time::Duration;

use wasmcron_runtime::StopReason;
use wasmcron_store::control::Wake;
use wasmcron_store::pods::Standing;

use super::outage::Outage;
use super::pod::Pod;

/// How soon a report is repeated that came before the pod was registered again.
const RETRY: Duration = Duration::from_millis(500);

/// Tells the store what this pod can run, whenever that changes.
pub async fn run(pod: Arc<Pod>) {
    let outage = Outage::new("report", &pod.health);
    let (mut jobs, mut plugins) = (pod.jobs.changes(), pod.plugins.changes());
    let mut said = None;
    loop {
        jobs.take();
        plugins.borrow_and_update();
        let report = pod.report();
        count_plugins(&pod);
        hand_over(&pod);
        if said.as_ref() != Some(&report) {
            match pod.store.report(&pod.me, &report).await {
                Ok(Standing::Current { .. } | Standing::AskedToLeave { .. }) => {
                    outage.answered();
                    said = Some(report);
                    // Only a wake-up: the leader reads the pods every second anyway.
                    let _ = pod.store.wake(&Wake::Reported).await;
                }
                Ok(Standing::Superseded) => return pod.superseded(),
                // The lease thread registers the pod again, with the newest report.
                Ok(Standing::Unknown) => {
                    if !pod.rest(RETRY).await {
                        return;
                    }
                    continue;
                }
                Err(error) => {
                    let wait = outage.failed(&error, &pod.metrics);
                    if !pod.rest(wait).await {
                        return;
                    }
                    continue;
                }
            }
        }
        tokio::select! {
            biased;
            () = pod.stopped.cancelled() => return,
            () = jobs.changed() => {}
            _ = plugins.changed() => {}
        }
    }
}

/// Asks the attempts that hand over to a newer plugin to yield.
fn hand_over(pod: &Pod) {
    for one in pod
        .attempts
        .executing()
        .into_iter()
        .filter(|one| one.hands_over)
    {
        let Some(known) = pod.jobs.get(&one.attempt.job) else {
            continue;
        };
        let newest = pod.plugins.active(known.job.definition.plugin.as_str());
        if newest.is_some_and(|newest| *newest.digest() != one.digest) {
            tracing::info!(run = %one.attempt.run, "a newer plugin is active; the run is asked to yield");
            one.control.stop(StopReason::Reload);
        }
    }
}

fn count_plugins(pod: &Pod) {
    let refused = pod.plugins.refusals();
    let series = pod.metrics.reload_failed.with_label_values(&["plugin"]);
    series.inc_by(refused.saturating_sub(series.get()));
}
