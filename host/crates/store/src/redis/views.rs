//! What the hashes hold of each job, put together.

use std::collections::HashMap;
use std::time::Duration;

use redis::Value;
use wasmcron_core::ids::{Digest, JobName};
use wasmcron_core::job::StoredDefinition;
use wasmcron_core::time::Timestamp;
use wasmcron_core::view::{Hold, JobView, Successes};

use super::RedisStore;
use super::codec::{Decoded, bar_free, raws, text, texts};
use super::errors::broken;
use crate::error::Result;
use crate::page::PageCursor;
use crate::schedule::PAGE_MAX;

/// What the hashes hold of a job, as read.
struct Facts<'a> {
    job: &'a str,
    schedule: &'a str,
    cursor: Option<&'a str>,
    paused: Option<&'a str>,
    quarantined: Option<&'a str>,
    active: Option<&'a str>,
    waiting: Option<&'a str>,
    stats: Vec<Option<String>>,
}

/// Reads `at|{"by":…,"why":…}`.
fn hold_of(text: &str) -> Decoded<Hold> {
    #[derive(serde::Deserialize)]
    struct Said {
        by: String,
        why: String,
        #[serde(default)]
        digest: Option<Digest>,
    }
    let (at, json) = text.split_once('|').ok_or("no time")?;
    let said: Said = serde_json::from_str(json).map_err(|error| error.to_string())?;
    let at = at.parse().map_err(|_| format!("{at:?} is no time"))?;
    Ok(Hold {
        by: said.by,
        at: Timestamp::from_millis(at),
        why: said.why,
        digest: said.digest,
    })
}

/// Writes who and why of a hold, and the plugin version that caused it; the script adds when.
pub(super) fn hold_text(by: &str, why: &str, digest: Option<&Digest>) -> String {
    let mut said = serde_json::json!({ "by": by, "why": why });
    if let (Some(digest), Some(said)) = (digest, said.as_object_mut()) {
        said.insert("digest".into(), digest.as_str().into());
    }
    bar_free(&said)
}

pub(super) fn stored_of(text: &str) -> Decoded<StoredDefinition> {
    let json = text.splitn(3, '|').nth(2).ok_or("no definition")?;
    serde_json::from_str(json).map_err(|error| error.to_string())
}

/// A stop whose reason does not decode still stops.
pub(super) fn stop_of(text: Option<&str>) -> Option<Hold> {
    let unknown = |text: &str| Hold {
        by: "?".into(),
        at: Timestamp::EPOCH,
        why: text.to_owned(),
        digest: None,
    };
    text.map(|text| hold_of(text).unwrap_or_else(|_| unknown(text)))
}

impl Facts<'_> {
    fn view(&self) -> Decoded<JobView> {
        let stored = stored_of(self.schedule)?;
        let cursor = match self.cursor {
            Some(ms) => Timestamp::from_millis(ms.parse().map_err(|_| format!("cursor {ms:?}"))?),
            None => stored.since,
        };
        let stat = |at: usize| {
            self.stats
                .get(at)
                .and_then(|n| n.as_deref()?.parse::<u64>().ok())
                .unwrap_or(0)
        };
        let (count, sum) = (stat(0), stat(1));
        Ok(JobView {
            job: self.job.parse().map_err(|_| "the job's name".to_owned())?,
            stored,
            cursor,
            paused: stop_of(self.paused),
            quarantined: stop_of(self.quarantined),
            active: self.active.and_then(|run| run.parse().ok()),
            waiting: self
                .waiting
                .and_then(|json| serde_json::from_str(json).ok()),
            successes: Successes {
                count,
                average: Duration::from_millis(sum.checked_div(count).unwrap_or(0)),
            },
        })
    }
}

/// Fields and values of a hash.
pub(super) type RawPairs = Vec<(Vec<u8>, Vec<u8>)>;

impl RedisStore {
    /// Views of jobs from their entries in `schedules`.
    pub(super) async fn views(
        &self,
        entries: &[(String, String)],
    ) -> Result<(Vec<JobView>, Vec<String>)> {
        if entries.is_empty() {
            return Ok((Vec::new(), Vec::new()));
        }
        let names: Vec<&str> = entries.iter().map(|(job, _)| job.as_str()).collect();
        let hashes = [
            self.keys.cursor(),
            self.keys.paused(),
            self.keys.quarantined(),
            self.keys.active(),
            self.keys.waiting(),
        ];
        let mut pipe = redis::pipe();
        for hash in &hashes {
            pipe.cmd("HMGET").arg(hash).arg(&names);
        }
        let mut with_stats = Vec::new();
        for (at, name) in names.iter().enumerate() {
            if let Ok(job) = name.parse::<JobName>() {
                with_stats.push(at);
                pipe.cmd("HMGET")
                    .arg(self.keys.stats(&job))
                    .arg(&["successes", "successes_ms"]);
            }
        }
        let answers = self.pipeline("view", &pipe).await?;
        let columns: Vec<Vec<Option<String>>> =
            answers.iter().take(hashes.len()).map(texts).collect();
        let mut stats: HashMap<usize, Vec<Option<String>>> = with_stats
            .into_iter()
            .zip(answers.iter().skip(hashes.len()).map(texts))
            .collect();
        let field = |column: usize, row: usize| columns.get(column)?.get(row)?.as_deref();
        let (mut views, mut broken) = (Vec::new(), Vec::new());
        for (row, (job, schedule)) in entries.iter().enumerate() {
            let facts = Facts {
                job,
                schedule,
                cursor: field(0, row),
                paused: field(1, row),
                quarantined: field(2, row),
                active: field(3, row),
                waiting: field(4, row),
                stats: stats.remove(&row).unwrap_or_default(),
            };
            match facts.view() {
                Ok(view) => views.push(view),
                Err(message) => {
                    tracing::warn!(job, message, "a stored definition does not decode");
                    broken.push(job.clone());
                }
            }
        }
        Ok((views, broken))
    }

    /// A page of a hash, and where the next one begins. An entry that stays throughout the scan is on
    /// at least one page; one may stand on two.
    pub(super) async fn page_of(
        &self,
        verb: &'static str,
        key: String,
        cursor: Option<PageCursor>,
    ) -> Result<(RawPairs, Option<PageCursor>)> {
        let mut cmd = redis::cmd("HSCAN");
        cmd.arg(key)
            .arg(cursor.as_ref().map_or("0", PageCursor::as_str))
            .arg("COUNT")
            .arg(PAGE_MAX);
        let Value::Array(parts) = self.command(verb, &cmd).await? else {
            return Err(broken(verb, "no page"));
        };
        let Ok([next, entries]) = <[Value; 2]>::try_from(parts) else {
            return Err(broken(verb, "no page"));
        };
        let next = text(&next).filter(|next| next != "0").map(PageCursor::new);
        let mut flat = raws(entries).into_iter();
        let pairs = std::iter::from_fn(|| Some((flat.next()?, flat.next()?))).collect();
        Ok((pairs, next))
    }
}
