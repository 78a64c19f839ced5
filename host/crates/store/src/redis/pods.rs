//! Which pods live, and what they say of themselves.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use redis::Value;
use wasmcron_core::ids::{Digest, PodAddress, PodRef, SessionId};
use wasmcron_core::time::Timestamp;
use wasmcron_core::view::{Pod, PodLoad, PodReport};

use super::RedisStore;
use super::codec::{Answer, bar_free, pairs, text, text_of, texts};
use super::errors::broken;
use super::reports::Version;
use super::script::{Call, Verb, px};
use crate::error::Result;
use crate::leadership::TermRef;
use crate::pods::{Draining, Forgotten, Pods, Standing};
use crate::recovery::Recovery as _;

/// How long what a pod said is kept before its first heartbeat.
const FIRST_KEPT: Duration = Duration::from_secs(600);
/// After so many windows of silence a pod may be forgotten.
const WINDOWS_KEPT: u32 = 10;

/// The store's clock from the answer to TIME.
pub(super) fn clock_of(verb: &'static str, value: &Value) -> Result<Timestamp> {
    let parts: Vec<i64> = texts(value)
        .iter()
        .flatten()
        .filter_map(|part| part.parse().ok())
        .collect();
    match parts.as_slice() {
        [seconds, micros] => Ok(Timestamp::from_millis(
            seconds.saturating_mul(1_000) + micros / 1_000,
        )),
        _ => Err(broken(verb, "no time")),
    }
}

fn standing(answer: &Answer) -> Result<Standing> {
    match answer.word()? {
        "current" => Ok(Standing::Current {
            now: answer.time(1)?,
        }),
        "asked-to-leave" => Ok(Standing::AskedToLeave {
            now: answer.time(1)?,
            by: text_of(answer.text(2)?),
        }),
        "superseded" => Ok(Standing::Superseded),
        "unknown" => Ok(Standing::Unknown),
        other => Err(answer.strange(other)),
    }
}

impl RedisStore {
    /// Whether a register names a pod.
    async fn is_named(&self, pod: &PodAddress) -> Result<bool> {
        let mut cursor = None;
        loop {
            let page = self.scheduled(cursor).await?;
            if page.entries.iter().any(|entry| entry.pod == *pod) {
                return Ok(true);
            }
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        loop {
            let page = self.running(cursor).await?;
            if page.entries.iter().any(|entry| entry.pod == *pod) {
                return Ok(true);
            }
            cursor = page.next;
            if cursor.is_none() {
                return Ok(false);
            }
        }
    }

    /// Every address that left a trace, with its last heartbeat.
    async fn known_pods(&self) -> Result<BTreeMap<PodAddress, Option<Timestamp>>> {
        let mut pipe = redis::pipe();
        pipe.cmd("SMEMBERS").arg(self.keys.pods());
        pipe.cmd("ZRANGE")
            .arg(self.keys.subscribers())
            .arg(0)
            .arg(-1)
            .arg("WITHSCORES");
        let answers = self.pipeline("pods", &pipe).await?;
        let [registered, beats] = answers.as_slice() else {
            return Err(broken("pods", "not two answers"));
        };
        // What is no address cannot be a pod; an operator's typing error must not stop the others.
        let mut known: BTreeMap<PodAddress, Option<Timestamp>> = texts(registered)
            .iter()
            .flatten()
            .filter_map(|address| Some((address.parse().ok()?, None)))
            .collect();
        for (address, beat) in pairs(beats) {
            // Scores are whole milliseconds, but may be printed as floating point numbers.
            let whole = beat.split('.').next().and_then(|ms| ms.parse().ok());
            if let (Ok(address), Some(ms)) = (address.parse(), whole) {
                known.insert(address, Some(Timestamp::from_millis(ms)));
            }
        }
        Ok(known)
    }
}

/// What a pod's hash holds, without the report.
struct Said {
    session: Option<SessionId>,
    version: Option<Version>,
    load: PodLoad,
}

/// The fields of [`Said`], in the order in which [`said_of`] reads them.
const SAID: [&str; 5] = ["session", "digest", "load", "left", "leave"];

fn said_of(fields: &Value) -> Said {
    let fields = texts(fields);
    let field = |at: usize| fields.get(at).and_then(Option::as_deref);
    let mut load: PodLoad = field(2)
        .and_then(|json| serde_json::from_str(json).ok())
        .unwrap_or_default();
    load.draining |= field(3).is_some() || field(4).is_some();
    Said {
        session: field(0).and_then(|session| session.parse().ok()),
        version: Version::of(field(0), field(1)),
        load,
    }
}

/// A report as it is stored, and its digest.
fn report_args(report: &PodReport) -> (String, Digest) {
    let json = bar_free(report);
    let digest = Digest::of(json.as_bytes());
    (json, digest)
}

#[async_trait]
impl Pods for RedisStore {
    async fn now(&self) -> Result<Timestamp> {
        clock_of("now", &self.command("now", &redis::cmd("TIME")).await?)
    }

    async fn register(
        &self,
        me: &PodRef,
        started: Timestamp,
        report: &PodReport,
    ) -> Result<Standing> {
        let keys = vec![self.keys.pod(&me.address), self.keys.pods()];
        let (report, digest) = report_args(report);
        let call = Call::new(Verb::Register, keys)
            .pod(me)
            .arg(started)
            .arg(report)
            .arg(digest.as_str())
            .arg(px(FIRST_KEPT));
        standing(&self.call(call).await?)
    }

    async fn report(&self, me: &PodRef, report: &PodReport) -> Result<Standing> {
        let (report, digest) = report_args(report);
        let call = Call::new(Verb::Report, vec![self.keys.pod(&me.address)])
            .arg(me.session.as_str())
            .arg(report)
            .arg(digest.as_str());
        standing(&self.call(call).await?)
    }

    async fn heartbeat(&self, me: &PodRef, load: &PodLoad, window: Duration) -> Result<Standing> {
        let keys = vec![self.keys.pod(&me.address), self.keys.subscribers()];
        let call = Call::new(Verb::Heartbeat, keys)
            .pod(me)
            .arg(bar_free(load))
            .arg(load.draining)
            .arg(px(window.saturating_mul(WINDOWS_KEPT)));
        standing(&self.call(call).await?)
    }

    async fn leave(&self, me: &PodRef) -> Result<Standing> {
        let keys = vec![
            self.keys.pod(&me.address),
            self.keys.subscribers(),
            self.keys.tasks(&me.address),
            self.keys.claiming(&me.address),
            self.keys.control(),
        ];
        standing(&self.call(Call::new(Verb::Leave, keys).pod(me)).await?)
    }

    async fn drain(&self, pod: &PodAddress, by: &str) -> Result<Draining> {
        let keys = vec![self.keys.pod(pod), self.keys.execution_log()];
        let call = Call::new(Verb::Drain, keys)
            .arg(pod.as_str())
            .arg(bar_free(by));
        let answer = self.call(call).await?;
        match answer.word()? {
            "asked" => Ok(Draining::Asked),
            "leaving" => Ok(Draining::Leaving),
            "unknown" => Ok(Draining::Unknown),
            other => Err(answer.strange(other)),
        }
    }

    async fn forget(
        &self,
        term: &TermRef,
        pod: &PodAddress,
        window: Duration,
    ) -> Result<Forgotten> {
        if self.is_named(pod).await? {
            return Ok(Forgotten::InUse);
        }
        let keys = vec![
            self.keys.leader(),
            self.keys.term(),
            self.keys.subscribers(),
            self.keys.pods(),
            self.keys.pod(pod),
            self.keys.tasks(pod),
            self.keys.claiming(pod),
        ];
        let silent = px(window.saturating_mul(WINDOWS_KEPT));
        let call = Call::new(Verb::Forget, keys)
            .term(term)
            .arg(pod.as_str())
            .arg(silent);
        let answer = self.call(call).await?;
        match answer.word()? {
            "forgotten" => Ok(Forgotten::Forgotten),
            "in-use" => Ok(Forgotten::InUse),
            "not-leader" => Ok(Forgotten::NotLeader),
            other => Err(answer.strange(other)),
        }
    }

    async fn pods(&self) -> Result<Vec<Pod>> {
        let known = self.known_pods().await?;
        if known.is_empty() {
            return Ok(Vec::new());
        }
        let mut pipe = redis::pipe();
        for address in known.keys() {
            pipe.cmd("HMGET").arg(self.keys.pod(address)).arg(&SAID);
            pipe.cmd("LLEN").arg(self.keys.tasks(address));
            pipe.cmd("LLEN").arg(self.keys.claiming(address));
        }
        let answers = self.pipeline("pods", &pipe).await?;
        let count = |value: &Value| text(value).and_then(|n| n.parse::<u32>().ok()).unwrap_or(0);
        let mut pods = Vec::with_capacity(known.len());
        let mut versions = Vec::with_capacity(known.len());
        for ((address, heartbeat), part) in known.into_iter().zip(answers.chunks(3)) {
            let [said, tasks, claiming] = part else {
                return Err(broken("pods", "too few answers"));
            };
            let Said {
                session,
                version,
                load,
            } = said_of(said);
            versions.push((address.clone(), version));
            pods.push(Pod {
                address,
                session,
                heartbeat,
                report: None,
                load,
                queued: count(tasks) + count(claiming),
            });
        }
        let reports: Vec<Option<Arc<PodReport>>> = self.reports_of(&versions).await?;
        for (pod, report) in pods.iter_mut().zip(reports) {
            pod.report = report;
        }
        Ok(pods)
    }
}
