//! Which jobs changed since a leader last looked.

use std::ops::Bound;

use wasmcron_core::ids::JobName;
use wasmcron_core::view::JobView;

use super::Call;
use crate::embedded::engine::{Key, Range, Tx};
use crate::embedded::records::{Change, ChangeList, ChangeOf};
use crate::error::{Result, StoreError};
use crate::schedule::{CHANGES_KEPT, Changes, PAGE_MAX, ViewVersion};

impl<T: Tx> Call<'_, T> {
    /// Notes that what the leader decides from changed for a job. Numbers are given as fences are.
    pub(super) fn note_change(&mut self, job: &JobName) -> Result<()> {
        let now = u64::try_from(self.now.as_millis()).unwrap_or(0);
        let mut list = self.change_list()?.unwrap_or(ChangeList {
            dropped: 0,
            top: 0,
            kept: 0,
        });
        let number = (list.top + 1).max(now);
        if list.top == 0 {
            list.dropped = number - 1;
        }
        let key = Key::named(job.as_str());
        match self.good::<ChangeOf>(&key)? {
            Some(last) => {
                self.tx.remove::<Change>(&place(last.0, job.as_str()))?;
            }
            None => list.kept += 1,
        }
        self.tx
            .put(place(number, job.as_str()), Change(job.clone()))?;
        self.tx.put(key, ChangeOf(number))?;
        list.top = number;
        while list.kept > CHANGES_KEPT as u64 {
            let Some((oldest, _)) = self.tx.scan::<Change>(&Range::all(""), 1)?.pop() else {
                break;
            };
            self.tx.remove::<Change>(&oldest)?;
            self.tx.remove::<ChangeOf>(&Key::named(&oldest.name))?;
            list.dropped = u64::try_from(oldest.order).unwrap_or(0);
            list.kept -= 1;
        }
        self.tx.put(Key::named(""), list)
    }

    pub(in crate::embedded) fn changes(&mut self, since: Option<ViewVersion>) -> Result<Changes> {
        let ViewVersion(since) = since.unwrap_or_default();
        let list = self.change_list()?;
        let top = list.map_or(0, |list| list.top);
        // A version from the future is one that a failover lost; what is not noted was never read.
        if list.is_none_or(|list| since < list.dropped || since > list.top) {
            let version = ViewVersion(top);
            return Ok(Changes::Everything { version });
        }
        let after = i64::try_from(since).unwrap_or(i64::MAX);
        let mut range = Range::all("");
        range.from = Bound::Included((after.saturating_add(1), "".into()));
        let found = self.tx.scan::<Change>(&range, PAGE_MAX)?;
        let last = found
            .last()
            .and_then(|(key, _)| u64::try_from(key.order).ok());
        Ok(Changes::Jobs {
            version: ViewVersion(last.unwrap_or(since)),
            jobs: found
                .iter()
                .filter_map(|(key, _)| key.name.parse().ok())
                .collect(),
        })
    }

    pub(in crate::embedded) fn jobs(&mut self, jobs: &[JobName]) -> Result<Vec<Option<JobView>>> {
        let view = |job| match self.job(job) {
            Err(StoreError::Corrupt { .. }) => Ok(None),
            view => view,
        };
        jobs.iter().map(view).collect()
    }

    fn change_list(&mut self) -> Result<Option<ChangeList>> {
        Ok(self.good::<ChangeList>(&Key::named(""))?.map(|list| *list))
    }
}

fn place(number: u64, job: &str) -> Key {
    Key::new("", i64::try_from(number).unwrap_or(i64::MAX), job)
}
