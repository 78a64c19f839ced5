//! Views of pods.

use std::collections::BTreeMap;

use serde::Serialize;
use wasmcron_core::view::{Leader, Pod};

use super::time;

/// One pod of `pod list`.
#[derive(Debug, Serialize)]
pub struct PodView {
    /// Its address.
    pub address: String,
    /// Its session.
    pub session: Option<String>,
    /// `active`, `draining`, `left`, `silent` or `gone`.
    pub state: &'static str,
    /// Whether it leads.
    pub leads: bool,
    /// Its last heartbeat.
    pub heartbeat: Option<String>,
    /// When its session started.
    pub started: Option<String>,
    /// Version of its host.
    pub version: Option<String>,
    /// Attempts that it executes.
    pub running: u32,
    /// Attempts that it may execute.
    pub capacity: Option<u32>,
    /// Tasks in its queue.
    pub queued: u32,
    /// The run that has, or waits to have, the pod to itself.
    pub exclusive: Option<String>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its plugins with the digest that is active.
    pub plugins: BTreeMap<String, String>,
    /// Its jobs with the hash of their definitions.
    pub jobs: BTreeMap<String, String>,
}

impl PodView {
    /// From what the store shows.
    pub fn new(pod: &Pod, leader: Option<&Leader>, active: bool) -> Self {
        let report = pod.report.as_ref();
        let state = match (active, pod.load.draining, pod.heartbeat) {
            (_, true, None) => "left",
            (_, true, Some(_)) => "draining",
            (true, false, _) => "active",
            (false, false, Some(_)) => "silent",
            (false, false, None) => "gone",
        };
        PodView {
            address: pod.address.to_string(),
            session: pod.session.as_ref().map(ToString::to_string),
            state,
            leads: leader.is_some_and(|leader| {
                leader.pod.address == pod.address
                    && Some(&leader.pod.session) == pod.session.as_ref()
            }),
            heartbeat: pod.heartbeat.map(time),
            started: report.map(|report| time(report.started)),
            version: report.map(|report| report.version.clone()),
            running: pod.load.running,
            capacity: report.map(|report| report.capacity),
            queued: pod.queued,
            exclusive: pod.load.exclusive.as_ref().map(ToString::to_string),
            labels: report
                .map(|report| report.labels.clone())
                .unwrap_or_default(),
            plugins: report
                .into_iter()
                .flat_map(|report| &report.plugins)
                .map(|(name, digest)| (name.to_string(), digest.to_string()))
                .collect(),
            jobs: report
                .into_iter()
                .flat_map(|report| &report.jobs)
                .map(|(name, job)| (name.to_string(), job.hash.to_string()))
                .collect(),
        }
    }
}

/// `pod list`.
#[derive(Debug, Serialize)]
pub struct PodList {
    /// The store's clock.
    pub now: String,
    /// Address of the leading pod.
    pub leader: Option<String>,
    /// Its term, as text.
    pub term: Option<String>,
    /// Every pod that left a trace.
    pub pods: Vec<PodView>,
}
