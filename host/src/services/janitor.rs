//! Removes what dead pods and deleted jobs left behind, while this pod leads.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;
use wasmcron_core::decide::quarantine;
use wasmcron_core::ids::JobName;
use wasmcron_core::view::{Pod as PodView, PodReport};
use wasmcron_store::control::Wake;
use wasmcron_store::leadership::TermRef;
use wasmcron_store::pods::Forgotten;

use super::outage::Outage;
use super::pod::Pod;

/// How often it looks.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// How often it looks for jobs that no pod has.
const JOBS_EVERY: Duration = Duration::from_secs(3_600);
/// Reading all jobs takes at most one part in so many of the time that it lasts.
const SHARE: u32 = 20;
/// How long no live pod must have had a job before the store forgets it: longer than any deployment.
const ORPHANED_FOR: Duration = Duration::from_secs(86_400);

/// Since when this leader has seen no pod that holds a job.
#[derive(Default)]
struct Orphans {
    since: BTreeMap<JobName, Duration>,
    looked: Option<Duration>,
}

/// Runs until the pod's loops end.
pub async fn run(pod: Arc<Pod>) {
    let outage = Outage::new("janitor", &pod.health);
    let mut lead = pod.lead.clone();
    let mut wakes = pod.wakes.subscribe();
    let mut orphans = Orphans::default();
    loop {
        if pod.lead.term().is_none() {
            outage.idle();
        }
        let term = tokio::select! {
            biased;
            () = pod.stopped.cancelled() => return,
            term = lead.wait() => term,
        };
        match clean(&pod, &term, &mut orphans).await {
            Ok(()) => outage.answered(),
            Err(error) => {
                outage.failed(&error, &pod.metrics);
            }
        }
        tokio::select! {
            // Only a pod that tells of another plugin is worth an earlier look.
            biased;
            () = pod.stopped.cancelled() => return,
            () = tokio::time::sleep(LOOK_EVERY) => {}
            () = reported(&mut wakes) => {}
        }
    }
}

/// Waits until a pod told anew what it can run.
async fn reported(wakes: &mut broadcast::Receiver<Wake>) {
    loop {
        match wakes.recv().await {
            Ok(Wake::Reported) | Err(RecvError::Lagged(_)) => return,
            Ok(_) => {}
            Err(RecvError::Closed) => std::future::pending::<()>().await,
        }
    }
}

/// Ends quarantines whose plugin version no live pod would run any more.
async fn release_by_version(pod: &Pod) -> wasmcron_store::Result<()> {
    let held = pod.store.quarantined().await?;
    if held.is_empty() {
        return Ok(());
    }
    let (now, window) = (pod.clock.now(), pod.settings.active_window());
    let mut pods = pod.store.pods().await?;
    pods.retain(|one| one.is_active(now, window));
    for (job, hold) in held {
        let Some(view) = pod.store.job(&job).await? else {
            continue;
        };
        if quarantine::is_over(&hold, &view.stored.definition, &pods) {
            pod.store
                .release(&job, "another version of the plugin")
                .await?;
            tracing::info!(%job, "job.released");
        }
    }
    Ok(())
}

async fn clean(pod: &Pod, term: &TermRef, orphans: &mut Orphans) -> wasmcron_store::Result<()> {
    release_by_version(pod).await?;
    let window = pod.settings.active_window();
    let pods = pod.store.pods().await?;
    let (live, silent): (Vec<_>, Vec<_>) = pods
        .into_iter()
        .partition(|one| one.is_active(pod.clock.now(), window));
    for one in silent {
        if pod.store.forget(term, &one.address, window).await? == Forgotten::Forgotten {
            tracing::info!(pod = %one.address, "pod.forgotten");
        }
    }
    orphans.look(pod, term, &live).await
}

impl Orphans {
    async fn look(
        &mut self,
        pod: &Pod,
        term: &TermRef,
        live: &[PodView],
    ) -> wasmcron_store::Result<()> {
        let now = pod.machine.boot();
        if self
            .looked
            .is_some_and(|at| now.saturating_sub(at) < JOBS_EVERY)
        {
            return Ok(());
        }
        let reports = live.iter().filter_map(|one| one.report.as_deref());
        let reports: Vec<&PodReport> = reports.collect();
        let held = |job: &JobName| reports.iter().any(|report| report.jobs.contains_key(job));
        let mut seen = BTreeMap::new();
        let mut cursor = None;
        loop {
            let began = Instant::now();
            let page = pod.store.view(cursor).await?;
            for view in page.jobs.into_iter().filter(|view| !held(&view.job)) {
                let since = self.since.get(&view.job).copied().unwrap_or(now);
                seen.insert(view.job, since);
            }
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
            if !pod.rest(began.elapsed() * SHARE).await {
                return Ok(());
            }
        }
        for (job, since) in &seen {
            if now.saturating_sub(*since) >= ORPHANED_FOR {
                pod.store.retire(term, job).await?;
                tracing::info!(%job, "job.retired");
            }
        }
        self.since = seen;
        self.looked = Some(now);
        Ok(())
    }
}
