//! What changed in the view, and the views of the jobs that did.

use std::collections::HashMap;

use wasmcron_core::ids::JobName;
use wasmcron_core::view::JobView;

use super::RedisStore;
use super::codec::texts;
use super::script::{Call, Verb};
use crate::error::Result;
use crate::schedule::{Changes, PAGE_MAX, ViewVersion};

impl RedisStore {
    pub(super) async fn changes_since(&self, since: Option<ViewVersion>) -> Result<Changes> {
        // No change has the number zero, so that it is older than any list.
        let ViewVersion(since) = since.unwrap_or_default();
        let call = Call::new(Verb::Changes, vec![self.keys.changes()])
            .arg(since)
            .arg(PAGE_MAX);
        let answer = self.call(call).await?;
        let version = ViewVersion(answer.number(1)?);
        match answer.word()? {
            "everything" => Ok(Changes::Everything { version }),
            "jobs" => {
                // A name that is none can only be a hand's work.
                let jobs = answer.ids_from(2);
                Ok(Changes::Jobs { version, jobs })
            }
            other => Err(answer.strange(other)),
        }
    }

    pub(super) async fn views_of(&self, jobs: &[JobName]) -> Result<Vec<Option<JobView>>> {
        let mut found = HashMap::with_capacity(jobs.len());
        for page in jobs.chunks(PAGE_MAX) {
            let mut cmd = redis::cmd("HMGET");
            cmd.arg(self.keys.schedules());
            for job in page {
                cmd.arg(job.as_str());
            }
            let schedules = texts(&self.command("jobs", &cmd).await?);
            let entries: Vec<(String, String)> = page
                .iter()
                .zip(schedules)
                .filter_map(|(job, schedule)| Some((job.to_string(), schedule?)))
                .collect();
            let (views, _) = self.views(&entries).await?;
            found.extend(views.into_iter().map(|view| (view.job.clone(), view)));
        }
        Ok(jobs.iter().map(|job| found.get(job).cloned()).collect())
    }
}
