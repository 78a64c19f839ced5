//! What every verb uses.

use std::sync::Arc;
use std::time::Duration;

use wasmcron_core::ids::{JobName, PodAddress, RunId, SessionId};
use wasmcron_core::time::{Timestamp, millis};

use super::Call;
use crate::embedded::engine::{Found, Key, Range, Record, Tx};
use crate::embedded::records::{
    DeadLetter, Fact, Leadership, LogEvent, PodRecord, Queued, Said, Scheduled,
};
use crate::error::{Result, StoreError};
use crate::leadership::TermRef;

/// The longest time that is calculated with: a hundred years.
const LONGEST: Duration = Duration::from_secs(100 * 366 * 86_400);
/// The execution log is trimmed with every so many events.
const TRIM_EVERY: i64 = 32;
/// Events that one trimming takes away at most.
const TRIM_MAX: usize = 64;
/// Dead letters kept.
const DEAD_LETTERS_MAX: i64 = 1_000;
/// The longest dead letter, in characters.
const DEAD_LETTER_CHARS: usize = 65_536;

/// A length of time that may be zero.
pub(super) fn delay(time: Duration) -> Duration {
    Duration::from_millis(u64::try_from(millis(time.min(LONGEST))).unwrap_or(0))
}

/// A length of time after which something ends: a millisecond at least.
pub(super) fn px(time: Duration) -> Duration {
    delay(time).max(Duration::from_millis(1))
}

/// A number as a place in an order.
pub(super) fn place(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The error for a record that does not decode.
pub(super) fn corrupt<R: Record>(key: &Key, message: String) -> StoreError {
    StoreError::Corrupt {
        key: format!("{} {key:?}", R::TABLE),
        what: R::WHAT,
        message,
    }
}

/// What an event tells of itself.
impl From<u64> for Fact {
    fn from(number: u64) -> Fact {
        Fact::Number(number)
    }
}

impl From<u32> for Fact {
    fn from(number: u32) -> Fact {
        Fact::Number(number.into())
    }
}

impl From<Timestamp> for Fact {
    fn from(at: Timestamp) -> Fact {
        Fact::Number(u64::try_from(at.as_millis()).unwrap_or(0))
    }
}

impl From<&'static str> for Fact {
    fn from(text: &'static str) -> Fact {
        Fact::Text(text.into())
    }
}

impl From<String> for Fact {
    fn from(text: String) -> Fact {
        Fact::Text(text.into())
    }
}

impl From<&PodAddress> for Fact {
    fn from(pod: &PodAddress) -> Fact {
        Fact::Text(pod.to_string().into())
    }
}

impl<T: Tx> Call<'_, T> {
    /// A record; one that does not decode counts as none.
    pub(super) fn good<R: Record>(&mut self, key: &Key) -> Result<Option<Arc<R>>> {
        match self.tx.get(key) {
            Err(StoreError::Corrupt { .. }) => Ok(None),
            found => found,
        }
    }

    /// Whether a time is past, so that what ended then is there no more.
    pub(super) fn is_past(&self, at: Timestamp) -> bool {
        at < self.now
    }

    /// The position after the last one of a list that only grows.
    pub(super) fn next_position<R: Record>(&mut self, scope: &str, first: i64) -> Result<i64> {
        let last = self.tx.scan::<R>(&Range::all(scope).backwards(), 1)?;
        Ok(last.first().map_or(first, |(key, _)| key.order + 1))
    }

    /// Removes records from the beginning of a range.
    pub(super) fn remove_first<R: Record>(&mut self, range: &Range, limit: usize) -> Result<usize> {
        let found = self.tx.scan::<R>(range, limit)?;
        for (key, _) in &found {
            self.tx.remove::<R>(key)?;
        }
        Ok(found.len())
    }

    /// Removes everything in a scope.
    pub(super) fn remove_all<R: Record>(&mut self, scope: &str) -> Result<()> {
        while self.remove_first::<R>(&Range::all(scope), 1_000)? > 0 {}
        Ok(())
    }

    /// Appends to the execution log.
    pub(super) fn log<const N: usize>(
        &mut self,
        event: &'static str,
        job: Option<&JobName>,
        run: Option<&RunId>,
        facts: [(&'static str, Fact); N],
    ) -> Result<()> {
        // Positions are without holes, so that they tell how many there are; an empty log begins at
        // the time, so that a position from before the store was emptied lies before its events.
        let first = self.now.as_millis() * 1_000;
        let position = self.next_position::<LogEvent>("", first)?;
        let entry = LogEvent {
            at: self.now,
            event: event.into(),
            job: job.cloned(),
            run: run.cloned(),
            facts: facts
                .into_iter()
                .map(|(name, fact)| (name.into(), fact))
                .collect(),
        };
        self.tx.put(Key::new("", position, ""), entry)?;
        if position % TRIM_EVERY == 0 {
            let kept = i64::from(self.options.execution_log_max);
            let old = Range::all("").up_to(position - kept);
            self.remove_first::<LogEvent>(&old, TRIM_MAX)?;
        }
        Ok(())
    }

    /// Keeps what could not be decoded.
    pub(super) fn bury_text(&mut self, register: &'static str, id: &str, text: &str) -> Result<()> {
        let position = self.next_position::<DeadLetter>("", 1)?;
        let letter = DeadLetter {
            at: self.now,
            register: register.into(),
            id: id.to_owned(),
            entry: text.chars().take(DEAD_LETTER_CHARS).collect(),
        };
        self.tx.put(Key::new("", position, ""), letter)?;
        let old = Range::all("").up_to(position - DEAD_LETTERS_MAX);
        self.remove_first::<DeadLetter>(&old, TRIM_MAX)?;
        Ok(())
    }

    /// Who leads, if somebody does.
    pub(super) fn lease(&self, held: &Leadership) -> Option<Timestamp> {
        held.until.filter(|until| !self.is_past(*until))
    }

    /// Whether the caller leads.
    pub(super) fn leads(&mut self, term: &TermRef) -> Result<bool> {
        let held = self.good::<Leadership>(&Key::named(""))?;
        Ok(held.is_some_and(|held| {
            self.lease(&held).is_some() && held.term == term.term && held.holder == term.pod
        }))
    }

    /// What a pod says of itself, as long as that is kept.
    pub(super) fn said<'r>(&self, pod: &'r PodRecord) -> Option<&'r Said> {
        pod.said
            .as_ref()
            .filter(|said| !self.is_past(said.expires_at))
    }

    /// The session of a pod that may be given a task, or none: it lives and does not leave.
    pub(super) fn target_session(&mut self, pod: &PodAddress) -> Result<Option<SessionId>> {
        let Some(record) = self.good::<PodRecord>(&Key::named(pod.as_str()))? else {
            return Ok(None);
        };
        let said = self
            .said(&record)
            .filter(|said| !said.draining && !said.left);
        Ok(said
            .filter(|_| record.beat.is_some())
            .map(|said| said.session.clone()))
    }

    /// What a session is to its address: none (nothing known), current or superseded.
    pub(super) fn is_current(
        &mut self,
        pod: &PodAddress,
        session: &SessionId,
    ) -> Result<Option<bool>> {
        let record = self.good::<PodRecord>(&Key::named(pod.as_str()))?;
        let said = record.as_ref().and_then(|record| self.said(record));
        Ok(said.map(|said| said.session == *session))
    }

    /// Puts a run into a pod's queue, as the delivery that its register names.
    pub(super) fn push(&mut self, run: &RunId, entry: Scheduled) -> Result<()> {
        let (pod, delivery) = (entry.pod.clone(), entry.delivery);
        self.tx.put(Key::named(run.as_str()), entry)?;
        let queued = Queued {
            run: run.clone(),
            delivery,
        };
        let key = Key::new(pod.as_str(), place(delivery.0), run.as_str());
        self.tx.put(key, queued)?;
        self.tx.queued(&pod);
        Ok(())
    }

    /// The text of a record, be it broken.
    pub(super) fn text_of<R: Record>(&mut self, key: &Key) -> Result<Option<String>> {
        let mut here = Range::all(&key.scope).up_to(key.order);
        here.from = std::ops::Bound::Included((key.order, key.name.clone()));
        let found = self.tx.scan::<R>(&here, 1)?.pop();
        Ok(found
            .filter(|(at, _)| at == key)
            .map(|(_, found)| match found {
                Found::Good(record) => {
                    let bytes = record.encode().unwrap_or_default();
                    String::from_utf8_lossy(&bytes).into_owned()
                }
                Found::Broken { text, .. } => text,
            }))
    }
}
