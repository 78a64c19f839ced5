//! How the leader comes to know all jobs: it reads the view once when it begins to lead, and after that
//! only what changed, so that neither a tick nor a firing costs more because there are more jobs.
//!
//! Followers read nothing: whoever takes over reads what the store has.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;
use wasmcron_store::Result;
use wasmcron_store::schedule::{Changes, PAGE_MAX, ViewVersion};

use super::pod::Pod;
use super::scheduler::Board;

/// Changes are looked for at least this often; wake-ups tell of most of them at once.
const CHANGES_EVERY: Duration = Duration::from_secs(5);
/// Everything is read again this often, whatever the store says: a net under what nobody thought of,
/// and so seldom that it adds little to the cost of a firing even with 100,000 jobs.
const WHOLE_EVERY: Duration = Duration::from_secs(6 * 3_600);
/// Reading takes at most one part in so many of the pod's time, but for the first time.
const SHARE: u32 = 20;

/// How much of the view was read, and when to read on.
pub struct Reading {
    /// None: not all of it was read yet.
    version: Option<ViewVersion>,
    changes_at: Instant,
    whole_at: Instant,
    /// Everything is not read again before this.
    whole_from: Instant,
}

impl Reading {
    /// Of a pod that begins to lead: everything is to be read now.
    #[must_use]
    pub fn new() -> Reading {
        let now = Instant::now();
        Reading {
            version: None,
            changes_at: now,
            whole_at: now,
            whole_from: now,
        }
    }

    /// Something changed.
    pub fn look(&mut self) {
        self.changes_at = Instant::now();
    }

    /// The store was away and may have lost what it told before: everything is to be read soon.
    pub fn doubt(&mut self) {
        self.look();
        self.whole_at = self.whole_from;
    }

    /// How long until there is something to read.
    #[must_use]
    pub fn rest(&self) -> Duration {
        self.next().saturating_duration_since(Instant::now())
    }

    fn next(&self) -> Instant {
        self.changes_at.min(self.whole_at.max(self.whole_from))
    }

    fn is_whole_due(&self, now: Instant) -> bool {
        self.version.is_none() || self.whole_at.max(self.whole_from) <= now
    }
}

/// Reads what there is to read by now; all of the view is known then.
///
/// # Errors
/// When the store does not answer; the reading is then as due as before.
pub async fn refresh(pod: &Pod, board: &mut Board) -> Result<()> {
    let began = Instant::now();
    if board.reading.is_whole_due(began) {
        return read_whole(pod, board, began).await;
    }
    if board.reading.changes_at <= began {
        read_changes(pod, board).await?;
        let now = Instant::now();
        let rest = CHANGES_EVERY.max((now - began) * SHARE);
        board.reading.changes_at = now + rest;
    }
    Ok(())
}

async fn read_whole(pod: &Pod, board: &mut Board, began: Instant) -> Result<()> {
    // The version comes first: what changes while the pages are read is read again.
    let (Changes::Everything { version } | Changes::Jobs { version, .. }) =
        pod.store.changes(None).await?;
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
    board.definitions.look_at_all();
    let now = Instant::now();
    let took = now - began;
    tracing::info!(jobs = seen.len(), seconds = took.as_secs_f64(), "view.read");
    board.reading = Reading {
        version: Some(version),
        changes_at: now,
        whole_at: now + WHOLE_EVERY,
        whole_from: now + took * SHARE,
    };
    Ok(())
}

async fn read_changes(pod: &Pod, board: &mut Board) -> Result<()> {
    loop {
        let (version, jobs) = match pod.store.changes(board.reading.version).await? {
            Changes::Jobs { version, jobs } => (version, jobs),
            // Where no change was ever noted there is none that this pod does not know of.
            Changes::Everything { version } if board.reading.version == Some(version) => {
                return Ok(());
            }
            Changes::Everything { .. } => {
                board.reading.whole_at = board.reading.whole_from;
                return Ok(());
            }
        };
        let views = pod.store.jobs(&jobs).await?;
        for (job, view) in jobs.iter().zip(views) {
            board.agenda.learn(job, view);
            board.definitions.view_changed(job.clone());
        }
        board.reading.version = Some(version);
        if jobs.len() < PAGE_MAX {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(whole_from: Duration) -> Reading {
        let now = Instant::now();
        Reading {
            version: Some(ViewVersion(1)),
            changes_at: now + CHANGES_EVERY,
            whole_at: now + WHOLE_EVERY,
            whole_from: now + whole_from,
        }
    }

    #[test]
    fn a_new_leader_reads_everything_at_once() {
        let reading = Reading::new();
        assert!(reading.is_whole_due(Instant::now()) && reading.rest().is_zero());
    }

    #[test]
    fn changes_are_looked_for_when_something_changed() {
        let mut reading = read(Duration::from_secs(20));
        assert_eq!(reading.next(), reading.changes_at);
        reading.look();
        assert!(reading.rest().is_zero() && !reading.is_whole_due(Instant::now()));
        assert!(reading.is_whole_due(Instant::now() + WHOLE_EVERY));
    }

    #[test]
    fn a_large_view_is_not_read_again_at_once() {
        let mut reading = read(Duration::from_secs(20));
        reading.doubt();
        assert!(!reading.is_whole_due(Instant::now()));
        reading.changes_at += CHANGES_EVERY * 10;
        assert_eq!(reading.next(), reading.whole_from);
        assert!(reading.is_whole_due(reading.whole_from));
    }
}
