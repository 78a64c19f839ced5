//! The threads that run verbs: one that writes, a few that read.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc::Receiver;

use super::connection::Place;
use super::errors::{Checked, Kind, Trouble};
use super::jobs::Job;
use super::signals::{Hub, Signal};
use super::tx::SqliteTx;

/// Verbs of one transaction: one flush to disk serves them all, and other processes wait meanwhile.
pub(super) const GROUP_MAX: usize = 128;
/// How long a closing store waits for readers, to leave one file behind.
const CLOSE_WAIT: Duration = Duration::from_millis(200);

type Jobs = VecDeque<Box<dyn Job>>;

/// Runs verbs that write until the last sender is gone, then leaves the file in order.
pub(super) fn write(
    mut place: Place,
    mut jobs: Receiver<Box<dyn Job>>,
    hub: &Hub,
    limit: Duration,
) {
    while let Some(first) = jobs.blocking_recv() {
        let mut waiting = Jobs::from([first]);
        while waiting.len() < GROUP_MAX {
            let Ok(next) = jobs.try_recv() else { break };
            waiting.push_back(next);
        }
        while !waiting.is_empty() {
            group(&mut place, &mut waiting, hub, limit);
        }
        place.tidy();
    }
    place.truncate_log(CLOSE_WAIT);
}

fn answer(jobs: impl IntoIterator<Item = Box<dyn Job>>, trouble: Option<&Trouble>) {
    for job in jobs {
        job.answer(trouble);
    }
}

/// Runs verbs in one transaction: all of them, unless one of them ends it.
fn group(place: &mut Place, waiting: &mut Jobs, hub: &Hub, limit: Duration) {
    waiting.retain(|job| job.is_wanted());
    if waiting.is_empty() {
        return;
    }
    if let Err(trouble) = place.begin_write(limit) {
        answer(waiting.drain(..), Some(&trouble));
        return;
    }
    let before = place.connection.total_changes();
    let mut signals = Vec::new();
    let mut done = Vec::new();
    while let Some(mut job) = waiting.pop_front() {
        // Its caller may have given up while another process wrote.
        if !job.is_wanted() {
            continue;
        }
        let ran = run(place, &mut *job, &mut signals);
        done.push(job);
        if let Err(trouble) = ran {
            place.roll_back();
            answer(done, Some(&trouble));
            return;
        }
    }
    // Many verbs of one group tell the same.
    let mut told = Vec::new();
    for signal in signals {
        if !told.contains(&signal) {
            told.push(signal);
        }
    }
    let wrote = place.connection.total_changes() != before;
    let kept = place.commit(wrote, &told);
    if kept.is_ok() && !told.is_empty() {
        hub.tell_others();
        hub.tell(&told);
    }
    answer(done, kept.err().as_ref());
}

/// Runs one verb so that its error takes back nothing but its own writes.
fn run(place: &mut Place, job: &mut dyn Job, signals: &mut Vec<Signal>) -> Checked<()> {
    place.execute("SAVEPOINT verb", [])?;
    let told = signals.len();
    let good = {
        let mut tx = SqliteTx::new(place, job.verb(), job.may_write(), signals);
        job.run(&mut tx)
    };
    if place.is_over() {
        let why = place.trouble.take();
        return Err(why.unwrap_or_else(|| {
            Trouble::new(
                Kind::Unavailable,
                "another verb ended the transaction that this one was part of",
            )
        }));
    }
    if good {
        place.execute("RELEASE verb", [])?;
    } else {
        signals.truncate(told);
        place.roll_back_verb()?;
    }
    Ok(())
}

/// Runs verbs that read until the last sender is gone. Several threads share the queue.
pub(super) fn read(mut place: Place, jobs: &Arc<Mutex<Receiver<Box<dyn Job>>>>) {
    loop {
        let next = jobs
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .blocking_recv();
        let Some(mut job) = next else { return };
        if !job.is_wanted() {
            continue;
        }
        let trouble = read_one(&mut place, &mut *job).err();
        job.answer(trouble.as_ref());
    }
}

fn read_one(place: &mut Place, job: &mut dyn Job) -> Checked<()> {
    place.begin_read()?;
    // A reader's signals are nobody's: it writes nothing that somebody could look at.
    let mut signals = Vec::new();
    job.run(&mut SqliteTx::new(place, job.verb(), false, &mut signals));
    place.roll_back();
    Ok(())
}
