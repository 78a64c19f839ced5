//! Starts a pod's loops, watches over them, and ends them in the right order.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinError, JoinHandle};
use wasmcron_runtime::Why;
use wasmcron_store::control::Wake;
use wasmcron_store::pods::Standing;

use super::drain::{LAST_WORDS, Order, drain, interrupt_all};
use super::lease::{self, Connect};
use super::outage::Outage;
use super::pod::{Ends, Fatal, Pod};
use super::{elector, janitor, recoverer, reporter, scheduler, subscriber};

/// How long a store that answers reads and takes no writes is waited for at start: one that fails over,
/// is full for a while, or whose file a frozen process holds.
const REGISTER_WAIT: Duration = Duration::from_secs(30);
/// How soon a new subscription to wake-ups is asked for after one ended.
const LISTEN_AGAIN: Duration = Duration::from_secs(1);

/// Tells the store that the pod is there.
async fn register(pod: &Pod) -> wasmcron_store::Result<Standing> {
    let outage = Outage::new("register", &pod.health);
    let began = pod.machine.boot();
    let report = pod.report();
    loop {
        let error = match pod.store.register(&pod.me, pod.started, &report).await {
            Ok(standing) => {
                outage.answered();
                return Ok(standing);
            }
            Err(error) => error,
        };
        let waited = pod.machine.boot().saturating_sub(began);
        let wait = outage.failed(&error, &pod.metrics);
        if !error.is_transient() || waited > REGISTER_WAIT || !pod.rest(wait).await {
            return Err(error);
        }
    }
}

/// A loop that ended, and how.
type Ended = (&'static str, Result<(), JoinError>);

/// What runs for as long as a pod does. Aborted on drop.
pub struct Loops {
    pod: Arc<Pod>,
    fatal: mpsc::Receiver<Fatal>,
    running: FuturesUnordered<BoxFuture<'static, Ended>>,
    aborts: Vec<AbortHandle>,
}

impl Loops {
    /// Registers the pod with what it can run now, and starts its loops; `lease_store` is opened where
    /// the leases are kept.
    ///
    /// # Errors
    /// When the store does not answer, or knows a later session of the pod.
    pub async fn start(pod: Arc<Pod>, ends: Ends, lease_store: Connect) -> Result<Self> {
        match register(&pod).await.context("cannot register the pod")? {
            Standing::Current { .. } | Standing::AskedToLeave { .. } | Standing::Unknown => {}
            Standing::Superseded => bail!(Fatal::Superseded(pod.me.address.to_string())),
        }
        let mut loops = Loops {
            fatal: ends.fatal,
            running: FuturesUnordered::new(),
            aborts: Vec::new(),
            pod: pod.clone(),
        };
        let lease = Box::pin(lease::run(pod.clone(), lease_store));
        let lease = pod.machine.spawn_apart("lease", lease);
        loops.watch("lease", lease.context("cannot start the lease loop")?);
        loops.spawn("wakes", forward_wakes(pod.clone()));
        loops.spawn("reporter", reporter::run(pod.clone()));
        loops.spawn("elector", elector::run(pod.clone(), ends.lead));
        loops.spawn("scheduler", scheduler::run(pod.clone()));
        loops.spawn("recoverer", recoverer::run(pod.clone()));
        loops.spawn("janitor", janitor::run(pod.clone()));
        loops.spawn("subscriber", subscriber::run(pod.clone()));
        Ok(loops)
    }

    fn spawn(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let task = self.pod.machine.spawn(Box::pin(task));
        self.watch(name, task);
    }

    /// Watches over something else that runs for as long as the pod does: until `pod.stopped` is
    /// cancelled. If it ends before, so does the pod.
    pub fn watch(&mut self, name: &'static str, task: JoinHandle<()>) {
        self.aborts.push(task.abort_handle());
        self.running
            .push(Box::pin(async move { (name, task.await) }));
    }

    /// Runs the pod until it is ordered to leave, which it does in good order, or must end itself. An
    /// order is a word for the log, such as the name of a signal; a second one cuts leaving short.
    ///
    /// # Errors
    /// Why the pod must end itself.
    pub async fn run(mut self, mut orders: mpsc::Receiver<&'static str>) -> Result<(), Fatal> {
        let ended = tokio::select! {
            // A loop that ends itself says why first.
            biased;
            Some(why) = self.fatal.recv() => Err(why),
            Some(order) = orders.recv() => Ok(Order::Signal(order)),
            () = self.pod.asked_to_leave.cancelled() => Ok(Order::Operator),
            Some((name, how)) = self.running.next() => Err(Fatal::LoopEnded(name, format!("{how:?}"))),
        };
        let pod = &self.pod;
        let result = match ended {
            Ok(order) => {
                drain(pod, order, &mut orders).await;
                Ok(())
            }
            Err(why) => {
                interrupt_all(pod, Why::LockLost);
                Err(why)
            }
        };
        pod.stopped.cancel();
        let all = async { while self.running.next().await.is_some() {} };
        let _ = tokio::time::timeout(LAST_WORDS, all).await;
        result
    }
}

impl Drop for Loops {
    fn drop(&mut self) {
        for task in &self.aborts {
            task.abort();
        }
    }
}

/// Hands the store's wake-ups to every loop.
async fn forward_wakes(pod: Arc<Pod>) {
    let mut wakes = pod.store.listen();
    loop {
        tokio::select! {
            biased;
            () = pod.stopped.cancelled() => return,
            wake = wakes.recv() => match wake {
                Some(wake) => {
                    if matches!(wake, Wake::Cancel { .. } | Wake::Subscribed) {
                        pod.extend_now.notify_one();
                    }
                    // Nobody listens only while the pod ends.
                    let _ = pod.wakes.send(wake);
                }
                None => {
                    if !pod.rest(LISTEN_AGAIN).await {
                        return;
                    }
                    wakes = pod.store.listen();
                }
            },
        }
    }
}
