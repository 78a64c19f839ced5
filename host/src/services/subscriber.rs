//! Takes tasks from the pod's own queue and claims them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use wasmcron_core::decide::claim::{self, Admit};
use wasmcron_core::ids::{RunId, Token};
use wasmcron_core::job::Job;
use wasmcron_core::task::Task;
use wasmcron_store::queue::{Attempt, Claim, Claimed, HandBack, Hold, Moved, Taken};

use super::outage::Outage;
use super::plugins::Program;
use super::pod::Pod;
use super::{executor, overlap};

/// How long one take waits for an entry.
pub const TAKE_WAIT: Duration = Duration::from_secs(2);
/// Entries of one take at most.
pub const TAKE_MAX: usize = 32;
/// How often the entries that were taken without a claim are read again.
const CLAIMING_EVERY: Duration = Duration::from_secs(2);
/// What a claimed attempt may take beyond its time-out before the store gives it up.
const ENDS_GRACE: Duration = Duration::from_secs(60);
/// A task that was handed back is due again after this long: by then the leader has read from this
/// pod's report why it should go elsewhere, and a pod that can run it again is not passed over.
const PUT_OFF: Duration = Duration::from_millis(500);
/// Why an exclusive run is handed back.
const ALONE_IN_VAIN: &str = "the pod's other attempts did not end within exclusive_wait";

/// A place in hand; none for an entry that is only taken to be handed back.
type Place = Option<OwnedSemaphorePermit>;
/// A claimed attempt that is still to be executed.
type Begun = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

/// Takes until the pod leaves, and settles what is in hand before it returns.
pub async fn run(pod: Arc<Pod>) {
    let capacity = usize::try_from(pod.capacity).unwrap_or(1);
    let slots = Arc::new(Semaphore::new(capacity));
    // As many entries as there are slots wait in hand for one: a slot that becomes free does not
    // have to wait for the store.
    let places = Arc::new(Semaphore::new(2 * capacity));
    hand_back_dead_self(&pod).await;
    let checking = check_claiming(pod.clone(), slots.clone());
    let checker = pod.machine.spawn(Box::pin(checking));
    let outage = Outage::new("subscriber", &pod.health);
    let mut consumer = pod.store.consumer(&pod.me);
    while !pod.leaving.is_cancelled() {
        let Some(free) = free_places(&pod, &places).await else {
            break;
        };
        let max = free.len();
        let taken = tokio::select! {
            biased;
            () = pod.leaving.cancelled() => break,
            taken = consumer.take(TAKE_WAIT, max) => taken,
        };
        match taken {
            Ok(entries) => {
                outage.answered();
                pod.last_take
                    .store(pod.clock.now().as_millis(), Ordering::Relaxed);
                let mut free = free.into_iter();
                for taken in entries {
                    let place = free.next().flatten();
                    start(&pod, &slots, taken, place);
                }
            }
            Err(error) => {
                drop(free);
                let wait = outage.failed(&error, &pod.metrics);
                read_claiming(&pod, &slots).await;
                pod.rest(wait).await;
            }
        }
    }
    checker.abort();
    // An unanswered claim must be settled before anything else is said of its task.
    tokio::select! {
        biased;
        () = pod.stopped.cancelled() => {}
        () = pod.attempts.settled() => {}
    }
}

/// Waits until half as many places are free as there are slots, so that one take brings several
/// entries, and answers those and as many more as are free, up to [`TAKE_MAX`]. No slot stays free
/// for that: when one is, nothing waits in hand, and more places than slots are free. While an
/// exclusive run has the pod, entries are still taken, without a place, so that they can be handed
/// back.
async fn free_places(pod: &Pod, places: &Arc<Semaphore>) -> Option<Vec<Place>> {
    let several = usize::try_from(pod.capacity / 2).unwrap_or(TAKE_MAX);
    let several = u32::try_from(several.clamp(1, TAKE_MAX)).unwrap_or(1);
    loop {
        let changed = pod.attempts.admission_changed();
        if pod.attempts.local(pod.capacity).exclusive.is_some() {
            return Some(vec![None]);
        }
        tokio::select! {
            biased;
            () = pod.leaving.cancelled() => return None,
            () = changed => {}
            many = places.clone().acquire_many_owned(several) => {
                let mut many = many.ok()?;
                let mut free: Vec<Place> = std::iter::from_fn(|| many.split(1)).map(Some).collect();
                while free.len() < TAKE_MAX {
                    let Ok(place) = places.clone().try_acquire_owned() else { break };
                    free.push(Some(place));
                }
                return Some(free);
            }
        }
    }
}

/// Looks after one taken entry, unless it is in hand already.
fn start(pod: &Arc<Pod>, slots: &Arc<Semaphore>, taken: Taken, place: Place) {
    if !pod.attempts.take_in_hand(&taken) {
        return;
    }
    let (mine, slots) = (pod.clone(), slots.clone());
    pod.machine.spawn(Box::pin(async move {
        let settled = settle(&mine, &slots, &taken).await;
        mine.attempts.settle(&taken);
        if let Some(begun) = settled {
            begun.await;
        }
        drop(place);
    }));
}

async fn check_claiming(pod: Arc<Pod>, slots: Arc<Semaphore>) {
    loop {
        read_claiming(&pod, &slots).await;
        if !pod.rest(CLAIMING_EVERY).await {
            return;
        }
    }
}

/// Claims what was taken and is not in hand: a reply that nobody got has still moved its entry.
async fn read_claiming(pod: &Arc<Pod>, slots: &Arc<Semaphore>) {
    // The taking connection has its own outage line; this one only tries again later.
    if let Ok(entries) = pod.store.claiming(&pod.me).await {
        for taken in entries {
            start(pod, slots, taken, None);
        }
    }
}

/// Brings one entry to an end: claimed, handed back, skipped, parked or stale. What was claimed is
/// returned as the attempt that is still to be executed.
async fn settle(pod: &Arc<Pod>, slots: &Arc<Semaphore>, taken: &Taken) -> Option<Begun> {
    let outage = Outage::new("claim", &pod.health);
    let (mut permit, mut alone) = (None, None);
    let (job, plugin) = loop {
        let changed = pod.attempts.admission_changed();
        let local = pod.attempts.local(pod.capacity);
        // What serves now, not what did when the entry began to wait.
        let job = pod.jobs.get(&taken.run.job()).map(|known| known.job);
        let plugin = job.as_deref().and_then(|job| plugin_for(pod, job));
        let definition = job.as_deref().map(|job| &job.definition);
        match claim::admit(&local, &taken.run, definition, plugin.is_some()) {
            Admit::HandBack { why } => {
                hand_back(pod, taken, &why, &outage).await;
                return None;
            }
            Admit::WaitAlone if alone.is_none() => {
                match wait_alone(pod, slots, &taken.run, &mut permit).await {
                    Some(permits) => alone = Some(permits),
                    None => {
                        hand_back(pod, taken, ALONE_IN_VAIN, &outage).await;
                        return None;
                    }
                }
            }
            // Who has the pod alone has all of its slots.
            _ if permit.is_none() && alone.is_none() => {
                tokio::select! {
                    biased;
                    () = changed => {}
                    slot = slots.clone().acquire_owned() => permit = Some(slot.ok()?),
                }
            }
            _ => break (job?, plugin?),
        }
    };
    if job.definition.exclusive && alone.is_none() {
        alone = wait_alone(pod, slots, &taken.run, &mut permit).await;
        if alone.is_none() {
            hand_back(pod, taken, ALONE_IN_VAIN, &outage).await;
            return None;
        }
    }
    let reservation = Reservation {
        pod: pod.clone(),
        run: taken.run.clone(),
        permits: (permit, alone),
    };
    let (attempt, sent) = claim_or_follow(pod, taken, &job, &*plugin, &outage).await?;
    let pod = pod.clone();
    Some(Box::pin(async move {
        executor::execute(&pod, &job, &plugin, *attempt, sent).await;
        drop(reservation);
    }))
}

/// The slots of an attempt, and the pod itself if the attempt has it to itself; given back on drop.
struct Reservation {
    pod: Arc<Pod>,
    run: RunId,
    permits: (Option<OwnedSemaphorePermit>, Option<OwnedSemaphorePermit>),
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.permits.1.is_some() {
            self.pod.attempts.release(&self.run);
            self.pod.beat_now.notify_one();
        }
        self.permits = (None, None);
    }
}

/// The version of the plugin that the job asks for, if this pod has it.
fn plugin_for(pod: &Pod, job: &Job) -> Option<Arc<dyn Program>> {
    match &job.definition.digest {
        Some(digest) => pod.plugins.by_digest(digest),
        None => pod.plugins.active(job.definition.plugin.as_str()),
    }
}

/// Reserves the pod and waits until nothing else executes here: holds every slot then.
async fn wait_alone(
    pod: &Pod,
    slots: &Arc<Semaphore>,
    run: &RunId,
    permit: &mut Option<OwnedSemaphorePermit>,
) -> Option<OwnedSemaphorePermit> {
    if !pod.attempts.reserve(run) {
        return None;
    }
    pod.beat_now.notify_one();
    let others = pod.capacity - u32::from(permit.is_some());
    let wait = pod.settings.pod.exclusive_wait.get();
    let permits = tokio::select! {
        biased;
        () = pod.leaving.cancelled() => None,
        permits = slots.clone().acquire_many_owned(others) => permits.ok(),
        () = tokio::time::sleep(wait) => None,
    };
    if permits.is_none() {
        pod.attempts.release(run);
        pod.beat_now.notify_one();
    }
    permits
}

/// Repeats the claim until it is answered, and follows an overlap. Some: execute this attempt, whose
/// claim was sent at that time.
async fn claim_or_follow(
    pod: &Pod,
    taken: &Taken,
    job: &Job,
    plugin: &dyn Program,
    outage: &Outage,
) -> Option<(Box<Attempt>, Duration)> {
    let token = Token::new(&pod.machine.ulid().to_string()).ok()?;
    let claim = Claim {
        me: pod.me.clone(),
        taken: taken.clone(),
        token,
        digest: Some(plugin.digest().clone()),
        lock_ttl: pod.settings.lock.ttl.get(),
        ends_in: job.definition.timeout + ENDS_GRACE,
    };
    loop {
        let sent = pod.machine.boot();
        match pod.store.claim(&claim).await {
            Ok(Claimed::Claimed(attempt)) => {
                outage.answered();
                pod.metrics.event("run.claimed");
                tracing::debug!(run = %taken.run, fence = %attempt.fence, attempt = attempt.task.attempt, "run.claimed");
                return Some((attempt, sent));
            }
            Ok(Claimed::Overlap { holder }) => {
                let followed = overlap::follow(pod, taken, job, &holder, outage).await;
                if followed == overlap::Followed::Settled {
                    return None;
                }
            }
            Ok(Claimed::Stale) => {
                tracing::debug!(run = %taken.run, delivery = %taken.delivery, "a stale delivery was dropped");
                return None;
            }
            Ok(Claimed::Superseded) => {
                pod.superseded();
                return None;
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

async fn hand_back(pod: &Pod, taken: &Taken, why: &str, outage: &Outage) {
    let back = HandBack {
        me: pod.me.clone(),
        run: taken.run.clone(),
        hold: Hold::Delivery(taken.delivery),
        why: why.to_owned(),
        avoid: false,
        due_in: PUT_OFF,
    };
    tracing::info!(run = %taken.run, why, "run.handed_back");
    pod.metrics.event("run.handed_back");
    loop {
        match pod.store.hand_back(&back).await {
            Ok(Moved::Superseded) => return pod.superseded(),
            Ok(_) => return,
            Err(error) => {
                let wait = outage.failed(&error, &pod.metrics);
                if !pod.rest(wait).await {
                    return;
                }
            }
        }
    }
}

/// Whether an attempt of this pod's dead self may go on elsewhere: its job is resumable, and it did not
/// lose its pod so often that it is taken for the cause.
async fn goes_on(pod: &Pod, task: &Task) -> bool {
    let resumable = match pod.store.job(&task.job).await {
        Ok(Some(job)) => job.stored.definition.resumable,
        _ => return false,
    };
    let run = std::slice::from_ref(&task.run);
    let recoveries = match pod.store.recoveries(run).await {
        Ok(counts) => counts.first().copied().unwrap_or(0),
        Err(_) => return false,
    };
    resumable && recoveries < pod.settings.recovery.max_recoveries
}

/// A restarted pod gives its dead self's attempts back at once instead of waiting for their locks.
/// What cannot go on elsewhere is left to the recoverer, which alone may give a run up.
async fn hand_back_dead_self(pod: &Pod) {
    let mut cursor = None;
    loop {
        let Ok(page) = pod.store.running(cursor).await else {
            return;
        };
        for entry in page.entries {
            let dead = entry.pod == pod.me.address && entry.session != pod.me.session;
            // A run whose end was asked for ends by being given back.
            let give_back = dead && (entry.cancel.is_some() || goes_on(pod, &entry.task).await);
            if !give_back {
                continue;
            }
            let back = HandBack {
                me: pod.me.clone(),
                run: entry.task.run.clone(),
                hold: Hold::Fence {
                    fence: entry.fence,
                    counted: true,
                },
                why: "its pod was restarted".into(),
                avoid: false,
                due_in: Duration::ZERO,
            };
            match pod.store.hand_back(&back).await {
                Ok(moved) => {
                    tracing::info!(run = %entry.task.run, fence = %entry.fence, ?moved, why = %back.why, "run.handed_back");
                }
                Err(error) => {
                    tracing::warn!(run = %entry.task.run, %error, "could not give an attempt back; its lock runs out by itself");
                }
            }
        }
        cursor = page.next;
        if cursor.is_none() {
            return;
        }
    }
}
