//! Why a job is not running, in one sentence: a function of what the store shows.

use std::collections::BTreeSet;
use std::time::Duration;

use wasmcron_core::decide::due;
use wasmcron_core::decide::publish::Picker;
use wasmcron_core::run::{RunRecord, RunState};
use wasmcron_core::schedule::Trigger;
use wasmcron_core::time::Timestamp;
use wasmcron_core::view::{JobView, Leader, Pod, ScheduledEntry};

use super::text;

/// Everything that the answer depends on.
pub struct Situation<'a> {
    /// The job.
    pub job: &'a JobView,
    /// The store's clock.
    pub now: Timestamp,
    /// Who leads.
    pub leader: Option<&'a Leader>,
    /// Every pod that left a trace.
    pub pods: &'a [Pod],
    /// How recent an active pod's heartbeat is.
    pub window: Duration,
    /// The run that is not over: the job's active one, else the one that waits longest.
    pub open: Option<&'a RunRecord>,
    /// When it goes on, if it waits for a time.
    pub due: Option<Timestamp>,
    /// Its place in a queue, if it is in one.
    pub queued: Option<&'a ScheduledEntry>,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Why {
    /// For programs; never changes its meaning.
    pub code: &'static str,
    /// For people.
    pub sentence: String,
}

fn answer(code: &'static str, sentence: impl Into<String>) -> Why {
    Why {
        code,
        sentence: sentence.into(),
    }
}

/// Why the job is not running, or that it is.
pub fn why(s: &Situation<'_>) -> Why {
    s.open.map_or_else(|| idle(s), |run| unfinished(s, run))
}

/// A run is under way: what does it wait for?
fn unfinished(s: &Situation<'_>, run: &RunRecord) -> Why {
    let id = &run.run;
    let leaderless = if s.leader.is_none() {
        ", and no pod leads that could send it on"
    } else {
        ""
    };
    match run.state {
        RunState::Running => executing(s, run),
        RunState::Scheduled => queued(s, run),
        RunState::Parked => {
            let reason = run
                .why
                .as_deref()
                .unwrap_or("the job's active run is not over");
            answer(
                "parked",
                format!("Run {id} waits for the end of another run of the job: {reason}."),
            )
        }
        _ => {
            let reason = run.why.as_deref().unwrap_or("its time has not come");
            let until = match s.due {
                Some(due) if due > s.now => format!(" until {due}"),
                _ => String::new(),
            };
            answer(
                "delayed",
                format!("Run {id} waits{until}: {reason}{leaderless}."),
            )
        }
    }
}

fn executing(s: &Situation<'_>, run: &RunRecord) -> Why {
    let id = &run.run;
    let Some(attempt) = run.attempts.last() else {
        return answer("running", format!("Run {id} is running."));
    };
    let pod = s.pods.iter().find(|pod| pod.address == attempt.pod);
    if pod.is_some_and(|pod| pod.is_active(s.now, s.window)) {
        let since = text::span(s.now.since(attempt.claimed_at));
        return answer(
            "running",
            format!(
                "It is running: run {id}, attempt {} on pod {} for {since}.",
                attempt.attempt, attempt.pod
            ),
        );
    }
    let silent = match pod.and_then(|pod| pod.heartbeat) {
        Some(beat) => format!("has been silent for {}", text::span(s.now.since(beat))),
        None => "is gone".into(),
    };
    let next = if s.leader.is_some() {
        "the leader recovers it when its lock ends"
    } else {
        "and no pod leads that could recover it"
    };
    answer(
        "recovering",
        format!(
            "Run {id} was running on pod {}, which {silent}; {next}.",
            attempt.pod
        ),
    )
}

fn queued(s: &Situation<'_>, run: &RunRecord) -> Why {
    let id = &run.run;
    let Some(entry) = s.queued else {
        return answer(
            "queued",
            format!("Run {id} is in the queue of a pod and about to be taken."),
        );
    };
    let address = &entry.pod;
    let since = text::span(s.now.since(entry.published_at));
    let Some(pod) = s.pods.iter().find(|pod| pod.address == *address) else {
        return answer(
            "recovering",
            format!(
                "Run {id} was sent to pod {address}, which is gone; the leader sends it elsewhere."
            ),
        );
    };
    if !pod.is_active(s.now, s.window) {
        return answer(
            "recovering",
            format!(
                "Run {id} was sent to pod {address}, which has stopped answering; the leader sends it elsewhere."
            ),
        );
    }
    match &pod.load.exclusive {
        Some(holder) if holder == id => answer(
            "exclusive-wait",
            format!(
                "Run {id} needs pod {address} to itself and waits for the end of {} there.",
                text::count(pod.load.running.into(), "other attempt")
            ),
        ),
        Some(holder) => answer(
            "exclusive-wait",
            format!(
                "Run {id} is in the queue of pod {address}, which the exclusive run {holder} holds."
            ),
        ),
        None => answer(
            "queued",
            format!(
                "Run {id} has been in the queue of pod {address} for {since}, which executes {}.",
                text::count(pod.load.running.into(), "attempt")
            ),
        ),
    }
}

/// No run is under way: what keeps the next one from beginning?
fn idle(s: &Situation<'_>) -> Why {
    if let Some(held) = held(s.job) {
        return held;
    }
    let live: Vec<&Pod> = s
        .pods
        .iter()
        .filter(|pod| pod.is_active(s.now, s.window))
        .collect();
    if s.leader.is_none() {
        let pods = match live.len() {
            0 => "no pod is alive".to_owned(),
            n => format!(
                "{} alive and one should take over within seconds",
                text::are(n, "pod")
            ),
        };
        return answer(
            "no-leader",
            format!("No pod leads, so nothing is published; {pods}."),
        );
    }
    if is_removed(s, &live) {
        return answer("removed", REMOVED);
    }
    let Some(due) = due::next_due(s.job) else {
        return never(s);
    };
    if due > s.now {
        ahead(s, due, &live)
    } else {
        overdue(s, &live)
    }
}

/// What is said of a job without a file. The leader forgets it after `ORPHANED_FOR`.
const REMOVED: &str = "It was removed: no live pod has its job file. It does not fire, and leaves this list \
                       once no pod has had the file for 24 h; its records stay as long as those of any job.";

/// Whether every live pod has said which jobs it has, and this is none of them.
fn is_removed(s: &Situation<'_>, live: &[&Pod]) -> bool {
    let lacks = |pod: &&Pod| {
        let report = pod.report.as_ref();
        report.is_some_and(|report| !report.jobs.contains_key(&s.job.job))
    };
    !live.is_empty() && live.iter().all(lacks)
}

/// Firings that wait for a person.
fn held(job: &JobView) -> Option<Why> {
    if !job.stored.definition.enabled {
        return Some(answer(
            "disabled",
            "It is disabled: its job file says `enabled = false`.",
        ));
    }
    if let Some(hold) = &job.paused {
        let reason = if hold.why.is_empty() {
            String::new()
        } else {
            format!(": {}", hold.why)
        };
        return Some(answer(
            "paused",
            format!("It was paused by {} at {}{reason}.", hold.by, hold.at),
        ));
    }
    let hold = job.quarantined.as_ref()?;
    let sentence = format!(
        "It was put in quarantine at {}: {}; `job resume` lets it fire again.",
        hold.at, hold.why
    );
    Some(answer("quarantined", sentence))
}

fn ahead(s: &Situation<'_>, due: Timestamp, live: &[&Pod]) -> Why {
    match obstacle(s, live) {
        Some((code, reason)) => answer(
            code,
            format!("It is not due until {due}, but as things stand: {reason}."),
        ),
        None => {
            let rest = text::span(due.since(s.now));
            answer("not-due", format!("It is not due until {due}, in {rest}."))
        }
    }
}

fn overdue(s: &Situation<'_>, live: &[&Pod]) -> Why {
    let firing = nominal(s.job);
    if let Some(waiting) = &s.job.waiting {
        let sentence = format!(
            "Its firing of {firing} is due and has waited since {}: {}.",
            waiting.since, waiting.why
        );
        return answer("waiting", sentence);
    }
    match obstacle(s, live) {
        Some((code, reason)) => answer(
            code,
            format!("Its firing of {firing} is due, but {reason}."),
        ),
        None => answer(
            "due",
            format!("Its firing of {firing} is due and about to be published."),
        ),
    }
}

fn nominal(job: &JobView) -> String {
    let next = job.stored.definition.schedule.next_after(job.cursor);
    next.map_or_else(|| "an unknown time".to_owned(), |at| at.to_string())
}

fn never(s: &Situation<'_>) -> Why {
    let schedule = &s.job.stored.definition.schedule;
    match (&schedule.trigger, schedule.ends) {
        (Trigger::Manual, _) => answer(
            "manual",
            "It has no schedule and runs only by hand (`job trigger`).",
        ),
        (_, Some(ends)) => answer(
            "over",
            format!("Its schedule has no firing left before its end at {ends}."),
        ),
        _ => answer("over", "Its schedule has no firing left."),
    }
}

/// What would keep a firing from a pod, now.
fn obstacle(s: &Situation<'_>, live: &[&Pod]) -> Option<(&'static str, String)> {
    let mut picker = Picker::default();
    picker.refresh(s.pods.to_vec(), s.now, s.window);
    let definition = &s.job.stored.definition;
    if let Err(reason) = picker.pick(s.job.job.as_str(), definition, &[]) {
        use wasmcron_core::decide::publish::NoPod;
        let code = match reason {
            NoPod::NoneLive => "no-live-pod",
            NoPod::Labels { .. } => "no-pod-with-labels",
            NoPod::Job => "no-pod-with-job",
            NoPod::Plugin { .. } => "no-pod-with-plugin",
            NoPod::Exclusive => "exclusive-wait",
            NoPod::Avoided => "no-pod",
        };
        return Some((code, reason.to_string()));
    }
    let reports = live
        .iter()
        .filter_map(|pod| pod.report.as_ref()?.jobs.get(&s.job.job));
    let hashes: BTreeSet<_> = reports.map(|report| &report.hash).collect();
    if hashes.len() > 1 {
        let reason = format!(
            "the live pods hold {} different files of this job, and the stored definition rules until they agree",
            hashes.len()
        );
        return Some(("pods-disagree", reason));
    }
    None
}

#[cfg(test)]
#[path = "why_tests.rs"]
mod tests;
