//! Which jobs to look at now, without looking at all of them.

use std::collections::BTreeSet;

use indexmap::IndexMap;

use crate::decide::due;
use crate::ids::JobName;
use crate::time::Timestamp;
use crate::view::JobView;

/// Every job of the view, in the order in which they are due.
///
/// One look costs what is due, not what exists: with a hundred thousand jobs a tick that fires ten
/// of them touches ten, and finds each without a search among the others.
#[derive(Clone, Debug, Default)]
pub struct Agenda {
    jobs: IndexMap<JobName, (JobView, Option<Timestamp>)>,
    order: BTreeSet<(Timestamp, JobName)>,
}

impl Agenda {
    /// Takes a job's latest view, or its first one. The cursor is where the view says, even if it was
    /// known to be later: a store that lost its latest writes has yet to decide those times.
    pub fn upsert(&mut self, view: JobView) {
        self.place(view.job.clone(), view);
    }

    /// Takes what the store has of a job: its view, or none if it is gone.
    pub fn learn(&mut self, job: &JobName, view: Option<JobView>) {
        match view {
            Some(view) => self.upsert(view),
            None => self.remove(job),
        }
    }

    /// Forgets a job.
    pub fn remove(&mut self, job: &JobName) {
        if let Some((_, Some(at))) = self.jobs.swap_remove(job) {
            self.order.remove(&(at, job.clone()));
        }
    }

    /// Keeps only the jobs that `keep` names: what a complete reading of the view did not show is gone.
    pub fn retain(&mut self, keep: &BTreeSet<JobName>) {
        let gone: Vec<JobName> = self
            .jobs
            .keys()
            .filter(|job| !keep.contains(*job))
            .cloned()
            .collect();
        for job in gone {
            self.remove(&job);
        }
    }

    /// Moves a job's cursor forward after the store said where it is.
    pub fn advance(&mut self, job: &JobName, cursor: Timestamp) {
        if let Some((view, slot)) = self.jobs.get_mut(job)
            && view.cursor < cursor
        {
            view.cursor = cursor;
            let old = std::mem::replace(slot, due::next_due(view));
            let new = *slot;
            self.reorder(job.clone(), old, new);
        }
    }

    /// Puts a due job off until `at`: it waits for something that no firing time tells. Nothing happens
    /// to one whose firings are held back.
    pub fn postpone(&mut self, job: &JobName, at: Timestamp) {
        if let Some((_, Some(slot))) = self.jobs.get_mut(job) {
            let old = std::mem::replace(slot, at);
            self.order.remove(&(old, job.clone()));
            self.order.insert((at, job.clone()));
        }
    }

    /// Jobs that are due, earliest first, at most `limit`.
    #[must_use]
    pub fn due(&self, now: Timestamp, limit: usize) -> Vec<JobName> {
        self.order
            .iter()
            .take_while(|(at, _)| *at <= now)
            .take(limit)
            .map(|(_, job)| job.clone())
            .collect()
    }

    /// When the next job is due.
    #[must_use]
    pub fn next(&self) -> Option<Timestamp> {
        self.order.first().map(|(at, _)| *at)
    }

    /// A job's view.
    #[must_use]
    pub fn get(&self, job: &str) -> Option<&JobView> {
        self.jobs.get(job).map(|(view, _)| view)
    }

    /// When a job is looked at next.
    #[must_use]
    pub fn next_of(&self, job: &str) -> Option<Timestamp> {
        self.jobs.get(job).and_then(|(_, at)| *at)
    }

    /// How many jobs there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Whether there is no job.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    fn place(&mut self, job: JobName, view: JobView) {
        let at = due::next_due(&view);
        let before = self.jobs.insert(job.clone(), (view, at));
        self.reorder(job, before.and_then(|(_, old)| old), at);
    }

    fn reorder(&mut self, job: JobName, old: Option<Timestamp>, new: Option<Timestamp>) {
        if old == new {
            return;
        }
        if let Some(old) = old {
            self.order.remove(&(old, job.clone()));
        }
        if let Some(new) = new {
            self.order.insert((new, job));
        }
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use std::time::Duration;

    use crate::cron::{Cron, Zone};
    use crate::ids::{JobName, PluginName};
    use crate::job::{Definition, StoredDefinition};
    use crate::schedule::{Schedule, Trigger};
    use crate::time::Timestamp;
    use crate::view::{JobView, Successes};

    pub(crate) fn definition(expression: &str) -> Definition {
        let trigger = Trigger::Cron {
            expression: Cron::parse(expression).expect("cron"),
            timezone: Zone::UTC,
        };
        Definition {
            plugin: PluginName::new("p").expect("name"),
            enabled: true,
            schedule: Schedule {
                trigger,
                starts: None,
                ends: None,
                jitter: Duration::ZERO,
            },
            resumable: true,
            auto_rerun: false,
            exclusive: false,
            timeout: Duration::from_secs(3600),
            run_timeout: None,
            overlap: Default::default(),
            misfire: Default::default(),
            retry: Default::default(),
            pods: Default::default(),
            digest: None,
            params: "{}".into(),
        }
    }

    pub(crate) fn job_view(name: &str, expression: &str, cursor: Timestamp) -> JobView {
        let definition = definition(expression);
        let hash = definition.hash();
        JobView {
            job: JobName::new(name).expect("name"),
            stored: StoredDefinition {
                definition,
                hash,
                since: cursor,
            },
            cursor,
            paused: None,
            quarantined: None,
            active: None,
            waiting: None,
            successes: Successes::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::job_view;
    use super::*;

    fn at(text: &str) -> Timestamp {
        format!("2026-11-29T{text}Z").parse().expect("time")
    }

    #[test]
    fn looks_only_at_what_is_due() {
        let mut agenda = Agenda::default();
        agenda.upsert(job_view("late", "0 5 * * *", at("01:00:00")));
        agenda.upsert(job_view("soon", "0 2 * * *", at("01:00:00")));
        assert_eq!(agenda.next(), Some(at("02:00:00")));
        assert_eq!(
            agenda.due(at("02:00:00"), 10),
            [JobName::new("soon").expect("name")]
        );
        let soon = JobName::new("soon").expect("name");
        agenda.advance(&soon, at("02:00:00"));
        assert_eq!(agenda.next(), Some(at("05:00:00")));
    }

    #[test]
    fn a_held_job_is_not_put_off() {
        let mut agenda = Agenda::default();
        let mut held = job_view("a", "0 * * * *", at("01:00:00"));
        held.stored.definition.enabled = false;
        let job = held.job.clone();
        agenda.upsert(held);
        agenda.postpone(&job, at("01:30:00"));
        assert_eq!((agenda.next(), agenda.next_of("a")), (None, None));
    }

    #[test]
    fn a_cursor_that_the_store_lost_moves_back() {
        let mut agenda = Agenda::default();
        agenda.upsert(job_view("a", "0 * * * *", at("02:00:00")));
        agenda.upsert(job_view("a", "0 * * * *", at("01:00:00")));
        assert_eq!(agenda.next(), Some(at("02:00:00")));
    }
}
