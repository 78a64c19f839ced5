//! Removes what dead pods left behind, while this pod leads.

use std::sync::Arc;
use std::time::Duration;

use wasmcron_store::pods::Forgotten;

use super::outage::Outage;
use super::pod::Pod;

/// How often it looks.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// Runs until the pod's loops end.
pub async fn run(pod: Arc<Pod>) {
    let outage = Outage::new("janitor");
    let mut lead = pod.lead.clone();
    loop {
        let term = tokio::select! {
            () = pod.stopped.cancelled() => return,
            term = lead.wait() => term,
        };
        match clean(&pod, &term).await {
            Ok(()) => outage.answered(),
            Err(error) => {
                outage.failed(&error, &pod.metrics);
            }
        }
        if !pod.rest(LOOK_EVERY).await {
            return;
        }
    }
}

async fn clean(pod: &Pod, term: &wasmcron_store::leadership::TermRef) -> wasmcron_store::Result<()> {
    let window = pod.settings.active_window();
    for one in pod.store.pods().await? {
        if one.is_active(pod.clock.now(), window) {
            continue;
        }
        if pod.store.forget(term, &one.address, window).await? == Forgotten::Forgotten {
            tracing::info!(pod = %one.address, "pod.forgotten");
        }
    }
    Ok(())
}
