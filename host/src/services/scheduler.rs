//! Acts on the view of all jobs while the pod leads.
//!
//! What is due comes from the store's cursors and never from what a pod remembers of its own looking.

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

use super::clock::StoreClock;
use super::definitions::Definitions;
use super::outage::Outage;
use super::pod::Pod;
use super::reading::{self, Reading};
use super::{promoter, publisher};

/// How old a reading of the pods may be when a task is published.
pub const PODS_MAX_AGE: Duration = Duration::from_secs(1);
/// How often a pod looks when nothing is due and nothing wakes it.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long it waits when something is due by this pod's clock and the turn did not settle it: the
/// store's clock, which alone counts, may be a little behind.
const WAIT_MIN: Duration = Duration::from_millis(5);

/// What the leading loop works with.
pub struct Board {
    /// All jobs in the order in which they are due.
    pub agenda: Agenda,
    /// The live pods, and whose turn it is.
    pub picker: Picker,
    /// Which definitions to put in force.
    pub definitions: Definitions,
    /// How much of the view was read.
    pub reading: Reading,
    /// In which term; none while the pod follows, and keeps nothing.
    term: Option<TermRef>,
    /// When the pods were last read.
    pods_read: Option<Instant>,
    /// When the earliest delayed run is due; none: look now.
    pub next_delayed: Option<Timestamp>,
    /// Since when due runs find no pod.
    pub waits: promoter::Waits,
}

impl Board {
    /// An empty one, for the term that begins.
    fn new(term: Option<TermRef>, picker: Picker) -> Board {
        Board {
            agenda: Agenda::default(),
            picker,
            definitions: Definitions::default(),
            reading: Reading::new(),
            term,
            pods_read: None,
            next_delayed: None,
            waits: promoter::Waits::default(),
        }
    }
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
    let mut board = Board::new(None, Picker::default());
    loop {
        let term = pod.lead.term();
        if term != board.term {
            // Another leader may have decided meanwhile: what was read in an earlier term is nothing.
            board = Board::new(term, std::mem::take(&mut board.picker));
            pod.metrics.live_pods.set(0);
            pod.metrics.jobs.set(0);
        }
        let wait = match turn(&pod, &mut board).await {
            Ok(wait) => {
                // Who does not lead asks nothing here.
                if board.term.is_some() {
                    outage.answered();
                } else {
                    outage.idle();
                }
                wait
            }
            Err(error) => outage.failed(&error, &pod.metrics),
        };
        tokio::select! {
            // Whatever wakes it, a turn goes by what the clocks say.
            biased;
            () = pod.stopped.cancelled() => return,
            () = lead.changed() => {}
            () = jobs.changed() => {}
            wake = wakes.recv() => heed(wake, &mut board),
            () = tokio::time::sleep(wait) => {}
        }
        // A burst of wake-ups asks for one look.
        loop {
            let wake = match wakes.try_recv() {
                Ok(wake) => Ok(wake),
                Err(TryRecvError::Lagged(missed)) => Err(RecvError::Lagged(missed)),
                Err(TryRecvError::Empty | TryRecvError::Closed) => break,
            };
            heed(wake, &mut board);
        }
    }
}

fn heed(wake: Result<Wake, RecvError>, board: &mut Board) {
    match wake {
        Ok(Wake::Due) => board.next_delayed = None,
        Ok(Wake::Left { .. } | Wake::Reported) => board.pods_read = None,
        Ok(Wake::Jobs) => board.reading.look(),
        Ok(Wake::Subscribed) => {
            // The subscription was away, so the store may have been, and another one may answer now.
            board.reading.doubt();
            board.pods_read = None;
            board.next_delayed = None;
        }
        Err(RecvError::Lagged(_)) => {
            board.reading.look();
            board.pods_read = None;
            board.next_delayed = None;
        }
        Ok(Wake::LeaderFree | Wake::Cancel { .. }) | Err(RecvError::Closed) => {}
    }
}

/// One turn of the loop; answers how long it may sleep.
async fn turn(pod: &Pod, board: &mut Board) -> Result<Duration, StoreError> {
    let Some(term) = board.term.clone() else {
        return Ok(LOOK_EVERY);
    };
    pod.metrics.turns.inc();
    reading::refresh(pod, board).await?;
    let acted = act(pod, board, &term).await?;
    let jobs = i64::try_from(board.agenda.len()).unwrap_or(i64::MAX);
    pod.metrics.jobs.set(jobs);
    let until_read = board.reading.rest();
    match acted {
        Step::More => return Ok(Duration::ZERO),
        // The elector hears of it too, and what it says wakes this loop.
        Step::NotLeader => return Ok(LOOK_EVERY.min(until_read)),
        Step::Done => {}
    }
    let rest = |at| rest_until(&pod.clock, at);
    let until_due = board.agenda.next().map_or(LOOK_EVERY, rest);
    let until_delayed = board.next_delayed.map_or(WAIT_MIN, rest);
    let wait = until_due.min(until_delayed);
    Ok(wait.min(until_read).min(LOOK_EVERY))
}

/// How long to wait for a time after a turn that did not settle it; never nothing.
fn rest_until(clock: &StoreClock, at: Timestamp) -> Duration {
    let until = clock.until(at);
    if until.is_zero() { WAIT_MIN } else { until }
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

#[cfg(test)]
mod tests {
    use super::super::clock::testing::SetMachine;
    use super::*;

    #[test]
    fn a_time_that_only_this_pod_takes_for_past_is_waited_for() {
        let clock = StoreClock::new(Arc::new(SetMachine::default()));
        let past = clock.now() - Duration::from_secs(1);
        assert_eq!(rest_until(&clock, past), WAIT_MIN);
        assert_eq!(rest_until(&clock, clock.now()), WAIT_MIN);
        let soon = clock.now() + Duration::from_millis(3);
        assert_eq!(rest_until(&clock, soon), Duration::from_millis(3));
    }
}
