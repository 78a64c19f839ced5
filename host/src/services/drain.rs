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

/// Who wants a pod to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// A signal, or whatever else gives orders to the process.
    Signal(&'static str),
    /// An operator, through the store.
    Operator,
}

impl Order {
    fn as_str(self) -> &'static str {
        match self {
            Order::Signal(name) => name,
            Order::Operator => "operator",
        }
    }
}

/// Leaves the fleet: takes nothing more, lets guests yield, and gives up what does not end in time, or
/// when another order comes to the process. The first signal after an operator's order is not taken
/// for impatience: whatever stops processes sends it as a matter of course.
pub async fn drain(pod: &Pod, order: Order, orders: &mut mpsc::Receiver<&'static str>) {
    let limit = pod.settings.pod.drain_timeout.get();
    tracing::info!(
        order = order.as_str(),
        running = pod.attempts.running(),
        "pod.draining"
    );
    pod.attempts.drain();
    pod.leaving.cancel();
    // An unanswered claim is settled before the queue is given up: what it claimed must not be lost.
    let _ = tokio::time::timeout(SETTLE_WAIT, pod.attempts.settled()).await;
    let outage = Outage::new("leave", &pod.health);
    if let Err(error) = pod.store.leave(&pod.me).await {
        outage.failed(&error, &pod.metrics);
    }
    for one in pod.attempts.executing() {
        one.control.stop(StopReason::Draining);
    }
    tokio::select! {
        biased;
        () = pod.attempts.idle() => {}
        () = second(order, orders) => tracing::warn!("a second signal; the remaining attempts are given up"),
        () = tokio::time::sleep(limit) => tracing::warn!("drain_timeout is over; the remaining attempts are given up"),
    }
    interrupt_all(pod, Why::Shutdown);
    let _ = tokio::time::timeout(LAST_WORDS, pod.attempts.idle()).await;
    tracing::info!("pod.stopped");
}

/// Waits for the signal that cuts a drain short.
async fn second(order: Order, orders: &mut mpsc::Receiver<&'static str>) {
    if order == Order::Operator {
        let _ = orders.recv().await;
    }
    if orders.recv().await.is_none() {
        // Nobody gives orders any more.
        std::future::pending::<()>().await;
    }
}

/// Ends every attempt at once.
pub fn interrupt_all(pod: &Pod, why: Why) {
    for one in pod.attempts.executing() {
        one.control.interrupt(why);
    }
}
