//! How a pod leaves the fleet.

use std::time::Duration;

use tokio::sync::mpsc;
use wasmcron_runtime::{StopReason, Why};

use super::outage::Outage;
use super::pod::Pod;

/// How long a leaving pod waits for answers to what it took.
const SETTLE_WAIT: Duration = Duration::from_secs(3);
/// How long a guest that was interrupted at the end of a drain has until its end is written.
pub const LAST_WORDS: Duration = Duration::from_secs(3);

/// Leaves the fleet: takes nothing more, lets guests yield, and gives up what does not end in time, or
/// when another order comes.
pub async fn drain(pod: &Pod, order: &str, orders: &mut mpsc::Receiver<&'static str>) {
    let limit = pod.settings.pod.drain_timeout.get();
    tracing::info!(
        signal = order,
        running = pod.attempts.running(),
        "pod.draining"
    );
    pod.attempts.drain();
    pod.leaving.cancel();
    // An unanswered claim is settled before the queue is given up: what it claimed must not be lost.
    let _ = tokio::time::timeout(SETTLE_WAIT, pod.attempts.settled()).await;
    let outage = Outage::new("leave", &pod.machine);
    if let Err(error) = pod.store.leave(&pod.me).await {
        outage.failed(&error, &pod.metrics);
    }
    for one in pod.attempts.executing() {
        one.control.stop(StopReason::Draining);
    }
    tokio::select! {
        biased;
        () = pod.attempts.idle() => {}
        Some(_) = orders.recv() => tracing::warn!("a second signal; the remaining attempts are given up"),
        () = tokio::time::sleep(limit) => tracing::warn!("drain_timeout is over; the remaining attempts are given up"),
    }
    interrupt_all(pod, Why::Shutdown);
    let _ = tokio::time::timeout(LAST_WORDS, pod.attempts.idle()).await;
    tracing::info!("pod.stopped");
}

/// Ends every attempt at once.
pub fn interrupt_all(pod: &Pod, why: Why) {
    for one in pod.attempts.executing() {
        one.control.interrupt(why);
    }
}
