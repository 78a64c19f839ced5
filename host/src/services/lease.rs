//! Says that the pod lives and extends its attempts' locks, apart from all else: neither a busy guest
//! nor a long reading of the store may make it late.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::time::Instant;
use wasmcron_runtime::{StopReason, Why};
use wasmcron_store::Store;
use wasmcron_store::pods::Standing;
use wasmcron_store::runs::{EXTEND_MAX, Extension};

use super::attempts::Executing;
use super::clock::boot_millis;
use super::outage::Outage;
use super::pod::Pod;

/// After a failed request the next one comes this soon.
pub const RETRY_EVERY: Duration = Duration::from_millis(500);

/// Opens a store where it is used, so that its connections live there.
pub type Connect =
    Box<dyn Fn() -> BoxFuture<'static, wasmcron_store::Result<Arc<dyn Store>>> + Send + Sync>;

/// Runs until the pod's loops end, on a store of its own.
pub async fn run(pod: Arc<Pod>, connect: Connect) {
    if let Some(store) = open(&pod, &connect).await {
        extend_and_beat(&pod, &*store).await;
    }
}

/// Opens the store, however often that fails: the pod's other loops wait for theirs in the same way, and
/// until this one has it, no other pod takes this one for live. None: the loops end.
async fn open(pod: &Pod, connect: &Connect) -> Option<Arc<dyn Store>> {
    let outage = Outage::new("lease", &pod.health);
    loop {
        let opened = tokio::select! {
            biased;
            () = pod.stopped.cancelled() => return None,
            opened = connect() => opened,
        };
        match opened {
            Ok(store) => {
                outage.answered();
                return Some(store);
            }
            Err(error) => {
                let wait = outage.failed(&error, &pod.metrics);
                if !pod.rest(wait).await {
                    return None;
                }
            }
        }
    }
}

async fn extend_and_beat(pod: &Pod, store: &dyn Store) {
    let beat_every = pod.settings.subscribers.heartbeat.get();
    let extend_every = pod.settings.lock.renewal.get();
    let (beats, extensions) = (
        Outage::new("heartbeat", &pod.health),
        Outage::new("extend", &pod.health),
    );
    let mut next_beat = Instant::now();
    let mut next_extend = Instant::now();
    loop {
        tokio::select! {
            // Whatever wakes it, it does what is due by the clock.
            biased;
            () = pod.stopped.cancelled() => return,
            () = pod.extend_now.notified() => next_extend = Instant::now(),
            () = pod.beat_now.notified() => next_beat = Instant::now(),
            () = tokio::time::sleep_until(next_extend) => {}
            () = tokio::time::sleep_until(next_beat) => {}
        }
        // Locks first: a late heartbeat costs a place in the round, a late extension an attempt.
        if next_extend <= Instant::now() {
            let answered = extend(pod, store, &extensions).await;
            next_extend = Instant::now()
                + if answered {
                    extend_every
                } else {
                    RETRY_EVERY.min(extend_every)
                };
        }
        if next_beat <= Instant::now() {
            let answered = beat(pod, store, &beats).await;
            next_beat = Instant::now()
                + if answered {
                    beat_every
                } else {
                    RETRY_EVERY.min(beat_every)
                };
        }
    }
}

async fn beat(pod: &Pod, store: &dyn Store, outage: &Outage) -> bool {
    if pod.leaving.is_cancelled() {
        return true;
    }
    let sent = pod.machine.boot();
    let answer = store
        .heartbeat(&pod.me, &pod.load(), pod.settings.subscribers.window.get())
        .await;
    if let Ok(Standing::AskedToLeave { by, .. }) = &answer
        && !pod.asked_to_leave.is_cancelled()
    {
        tracing::info!(by, "pod.asked_to_leave");
        pod.asked_to_leave.cancel();
    }
    match answer {
        Ok(Standing::Current { now } | Standing::AskedToLeave { now, .. }) => {
            outage.answered();
            pod.clock.measure(sent, now);
            pod.last_beat
                .store(boot_millis(&*pod.machine), Ordering::Relaxed);
            show_offset(pod);
            true
        }
        Ok(Standing::Superseded) => {
            pod.superseded();
            true
        }
        Ok(Standing::Unknown) => register_again(pod, store, outage).await,
        Err(error) => {
            outage.failed(&error, &pod.metrics);
            false
        }
    }
}

/// Shows how far this machine's wall clock is from the store's clock.
fn show_offset(pod: &Pod) {
    let behind = pod.clock.wall_offset_millis();
    let seconds = Duration::from_millis(behind.unsigned_abs()).as_secs_f64();
    let sign = if behind < 0 { -1.0 } else { 1.0 };
    pod.metrics.clock_offset.set(seconds * sign);
}

/// The store came back empty, or forgot a pod that was silent for long. False: beat again at once.
async fn register_again(pod: &Pod, store: &dyn Store, outage: &Outage) -> bool {
    // Jobs of an emptied store begin now: what fired since this pod first had their files has no record any
    // more, and must not run again for that.
    pod.jobs.reported_anew(pod.clock.now());
    match store.register(&pod.me, pod.started, &pod.report()).await {
        Ok(Standing::Superseded) => pod.superseded(),
        Ok(_) => tracing::warn!("the store did not know this pod any more; it is registered again"),
        Err(error) => {
            outage.failed(&error, &pod.metrics);
        }
    }
    false
}

async fn extend(pod: &Pod, store: &dyn Store, outage: &Outage) -> bool {
    let executing = pod.attempts.executing();
    let mut answered = true;
    if executing.is_empty() {
        outage.idle();
    }
    for batch in executing.chunks(EXTEND_MAX) {
        let names: Vec<_> = batch.iter().map(|one| one.attempt.clone()).collect();
        let sent = pod.machine.boot();
        match store
            .extend(&pod.me, &names, pod.settings.lock.ttl.get())
            .await
        {
            Ok(answers) => {
                outage.answered();
                for (one, answer) in batch.iter().zip(answers) {
                    apply(pod, one, &answer, sent);
                }
            }
            Err(error) => {
                // Says nothing of the locks: guests go on until their own deadlines, which come
                // before the locks can end.
                answered = false;
                outage.failed(&error, &pod.metrics);
            }
        }
    }
    answered
}

fn apply(pod: &Pod, one: &Executing, answer: &Extension, sent: Duration) {
    let deadline = lease_until(pod, sent);
    match answer {
        Extension::Extended => one.control.extend_lease(deadline),
        Extension::Cancel { by } => {
            one.control.extend_lease(deadline);
            cancel(pod, one, by);
        }
        // The lock went with the attempt's end, while the extension was under way.
        Extension::Lost | Extension::Expired if !pod.attempts.has_guest(&one.attempt) => {}
        Extension::Lost | Extension::Expired => {
            pod.metrics.fenced.inc();
            pod.metrics.event("run.fenced");
            tracing::warn!(run = %one.attempt.run, fence = %one.attempt.fence, ?answer, "run.fenced");
            one.control.stop(StopReason::LockLost);
            one.control.interrupt(Why::LockLost);
        }
    }
}

fn cancel(pod: &Pod, one: &Executing, by: &str) {
    let mut known = one
        .cancelled_by
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    if known.is_some() {
        return;
    }
    *known = Some(by.to_owned());
    drop(known);
    tracing::info!(run = %one.attempt.run, by, "run.cancel");
    one.control.stop(StopReason::Cancelled);
    let (control, grace) = (one.control.clone(), pod.settings.runtime.cancel_grace.get());
    pod.machine.spawn(Box::pin(async move {
        tokio::time::sleep(grace).await;
        control.interrupt(Why::Cancelled);
    }));
}

/// Until when a lock that was asked for at `sent` may be believed, in milliseconds since boot.
#[must_use]
pub fn lease_until(pod: &Pod, sent: Duration) -> u64 {
    let until = (sent + pod.settings.lock.ttl.get()).saturating_sub(pod.settings.lock.margin.get());
    u64::try_from(until.as_millis()).unwrap_or(u64::MAX)
}
