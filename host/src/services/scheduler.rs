//! Keeps the view of all jobs on every pod, and acts on it while the pod leads.
//!
//! A follower's view is as full as the leader's, so that it can go on at once. What is due comes
//! from the store's cursors and never from what a pod remembers of its own looking.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::time::Instant;
use wasmcron_core::decide::agenda::Agenda;
use wasmcron_core::decide::publish::Picker;
use wasmcron_core::time::Timestamp;
use wasmcron_store::StoreError;
use wasmcron_store::control::Wake;
use wasmcron_store::leadership::TermRef;

use super::definitions::Definitions;
use super::outage::Outage;
use super::pod::Pod;
use super::{promoter, publisher};

/// The view is read again at least this often…
const REFRESH_EVERY: Duration = Duration::from_secs(5);
/// …but takes at most one part in so many of the pod's time: a large view is read less often.
const REFRESH_SHARE: u32 = 20;
/// How old a reading of the pods may be when a task is published.
pub const PODS_MAX_AGE: Duration = Duration::from_secs(1);
/// How often a leader looks when nothing is due and nothing wakes it.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What the leading loop works with.
pub struct Board {
    /// All jobs in the order in which they are due.
    pub agenda: Agenda,
    /// The live pods, and whose turn it is.
    pub picker: Picker,
    /// Which definitions to put in force.
    pub definitions: Definitions,
    /// When the pods were last read.
    pods_read: Option<Instant>,
    /// When the earliest delayed run is due; none: look now.
    pub next_delayed: Option<Timestamp>,
    /// Since when due runs find no pod.
    pub waits: promoter::Waits,
}

/// What a step of the leader found out about its own standing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Go on.
    Done,
    /// There is more to do at once.
    More,
    /// The store says that this pod does not lead.
    NotLeader,
}

/// Runs until the pod's loops end.
pub async fn run(pod: Arc<Pod>) {
    let outage = Outage::new("scheduler", &pod.health);
    let mut wakes = pod.wakes.subscribe();
    let mut lead = pod.lead.clone();
    let mut jobs = pod.jobs.changes();
    let mut board = Board {
        agenda: Agenda::default(),
        picker: Picker::default(),
        definitions: Definitions::default(),
        pods_read: None,
        next_delayed: None,
        waits: promoter::Waits::default(),
    };
    let mut refresh_at = Instant::now();
    let mut led = false;
    loop {
        let term = pod.lead.term();
        if term.is_some() && !led {
            refresh_at = Instant::now();
            board.pods_read = None;
            board.next_delayed = None;
        }
        if led && term.is_none() {
            pod.metrics.live_pods.set(0);
        }
        led = term.is_some();
        let wait = match turn(&pod, &mut board, term.as_ref(), &mut refresh_at).await {
            Ok(wait) => {
                outage.answered();
                wait
            }
            Err(error) => outage.failed(&error, &pod.metrics),
        };
        tokio::select! {
            // Whatever wakes it, a turn goes by what the clocks say.
            biased;
            () = pod.stopped.cancelled() => return,
            () = lead.changed() => {}
            _ = jobs.changed() => {}
            wake = wakes.recv() => heed(wake, &mut board, &mut refresh_at),
            () = tokio::time::sleep(wait) => {}
        }
        // A burst of wake-ups asks for one look.
        loop {
            let wake = match wakes.try_recv() {
                Ok(wake) => Ok(wake),
                Err(TryRecvError::Lagged(missed)) => Err(RecvError::Lagged(missed)),
                Err(TryRecvError::Empty | TryRecvError::Closed) => break,
            };
            heed(wake, &mut board, &mut refresh_at);
        }
    }
}

fn heed(wake: Result<Wake, RecvError>, board: &mut Board, refresh_at: &mut Instant) {
    match wake {
        Ok(Wake::Due) => board.next_delayed = None,
        Ok(Wake::Left { .. } | Wake::Reported) => board.pods_read = None,
        Ok(Wake::Jobs) => *refresh_at = Instant::now(),
        Ok(Wake::Subscribed) | Err(RecvError::Lagged(_)) => {
            *refresh_at = Instant::now();
            board.pods_read = None;
            board.next_delayed = None;
        }
        Ok(Wake::LeaderFree | Wake::Cancel { .. }) | Err(RecvError::Closed) => {}
    }
}

/// One turn of the loop; answers how long it may sleep.
async fn turn(
    pod: &Pod,
    board: &mut Board,
    term: Option<&TermRef>,
    refresh_at: &mut Instant,
) -> Result<Duration, StoreError> {
    if *refresh_at <= Instant::now() {
        let began = Instant::now();
        refresh(pod, board).await?;
        *refresh_at = Instant::now() + REFRESH_EVERY.max(began.elapsed() * REFRESH_SHARE);
    }
    let until_refresh = refresh_at.saturating_duration_since(Instant::now());
    let Some(term) = term else {
        return Ok(until_refresh);
    };
    if act(pod, board, term).await? == Step::More {
        return Ok(Duration::ZERO);
    }
    let due = [board.agenda.next(), board.next_delayed]
        .into_iter()
        .flatten()
        .min();
    let until_due = due.map_or(LOOK_EVERY, |at| pod.clock.until(at));
    Ok(until_due.min(until_refresh).min(LOOK_EVERY))
}

/// What a leader does: definitions first, then firings, then delayed runs.
async fn act(pod: &Pod, board: &mut Board, term: &TermRef) -> Result<Step, StoreError> {
    read_pods(pod, board).await?;
    let opened = board.definitions.step(pod, &mut board.agenda, term).await?;
    if opened == Step::NotLeader {
        return Ok(opened);
    }
    let published = publisher::step(pod, board, term).await?;
    if published == Step::NotLeader {
        return Ok(published);
    }
    let promoted = promoter::step(pod, board, term).await?;
    let more = [opened, published, promoted].contains(&Step::More);
    Ok(if promoted == Step::NotLeader || !more {
        promoted
    } else {
        Step::More
    })
}

/// Reads the pods, unless the last reading is fresh.
async fn read_pods(pod: &Pod, board: &mut Board) -> Result<(), StoreError> {
    if board
        .pods_read
        .is_some_and(|at| at.elapsed() < PODS_MAX_AGE)
    {
        return Ok(());
    }
    let pods = pod.store.pods().await?;
    board
        .picker
        .refresh(pods, pod.clock.now(), pod.settings.active_window());
    board.pods_read = Some(Instant::now());
    pod.metrics
        .live_pods
        .set(i64::try_from(board.picker.live().len()).unwrap_or(i64::MAX));
    board.definitions.heard(board.picker.live());
    Ok(())
}

/// Reads the whole view, a page at a time.
async fn refresh(pod: &Pod, board: &mut Board) -> Result<(), StoreError> {
    let mut seen = BTreeSet::new();
    let mut cursor = None;
    loop {
        let page = pod.store.view(cursor).await?;
        for broken in page.corrupt {
            tracing::warn!(entry = %broken, "a stored job does not decode; it is not fired");
        }
        for job in page.jobs {
            seen.insert(job.job.clone());
            board.agenda.upsert(job);
        }
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    board.agenda.retain(&seen);
    board.definitions.look_again();
    pod.metrics
        .jobs
        .set(i64::try_from(board.agenda.len()).unwrap_or(i64::MAX));
    Ok(())
}
