//! A history that a test spoils.

use std::time::Duration;

use serde_json::{Value, json};
use wasmcron_core::ids::{JobName, RunId};
use wasmcron_core::run::{RunRecord, RunState};
use wasmcron_core::schedule::{Schedule, Trigger};
use wasmcron_core::task::Reason;
use wasmcron_core::time::Timestamp;
use wasmcron_core::view::Gap;

use crate::history::*;
use crate::servers::target::Switch;

pub(super) const JOB: &str = "sync";
const ALIAS: &str = "merchants";

pub(super) fn at(second: f64) -> Timestamp {
    let start: Timestamp = "2026-11-29T00:00:00Z".parse().expect("a time");
    start + Duration::from_secs_f64(second)
}

pub(super) fn run(second: f64) -> RunId {
    RunId::nominal(&JOB.parse().expect("a name"), at(second))
}

/// A history and a reading that a test spoils.
pub(super) struct Story {
    pub(super) history: History,
    pub(super) reading: Reading,
}

impl Story {
    pub(super) fn say(&mut self, second: f64, pod: &str, message: &str, fields: Value) {
        let mut line = fields;
        line["timestamp"] = at(second).to_string().into();
        line["message"] = message.into();
        let event = log::event(pod, &line.to_string()).expect("an event");
        assert!(event.kind != Kind::Other, "{line}");
        self.history.events.push(event);
    }

    pub(super) fn attempt(
        &mut self,
        second: f64,
        pod: &str,
        run: &RunId,
        number: u32,
        fence: u64,
        from: u64,
    ) {
        let fields =
            json!({ "run": run.as_str(), "attempt": number, "fence": fence, "from": from });
        self.say(second, pod, "run.claimed", fields.clone());
        self.say(second + 0.01, pod, "run.started", fields);
    }

    pub(super) fn finish(&mut self, second: f64, pod: &str, run: &RunId, number: u32, fence: u64) {
        let fields = json!({
            "run": run.as_str(), "attempt": number, "fence": fence,
            "next": "succeeded", "answer": "finished",
        });
        self.say(second, pod, "run.finished", fields);
    }

    pub(super) fn save(&mut self, second: f64, pod: &str, run: &RunId, fence: u64, seq: u64) {
        let fields = json!({ "run": run.as_str(), "fence": fence, "seq": seq });
        self.say(second, pod, "checkpoint.saved", fields);
    }

    pub(super) fn effect(&mut self, second: f64, run: &RunId, attempt: u32, fence: u64, step: u32) {
        self.history.effects.push(Effect {
            received: at(second),
            at: at(second),
            run: run.clone(),
            attempt,
            fence,
            what: "POST /effects/once".into(),
            key: Some(format!("{run}/{step}")),
            became: Became::Applied,
            rewritten: 0,
        });
    }

    pub(super) fn fault(&mut self, from: f64, until: f64, harm: Harm, pod: &str) {
        self.history.faults.push(Fault {
            span: Span {
                from: at(from),
                until: at(until),
            },
            harm,
            pod: Some(pod.to_owned()),
            text: format!("{harm:?} {pod}"),
        });
    }

    pub(super) fn job(&mut self) -> &mut JobReading {
        let name: JobName = JOB.parse().expect("a name");
        self.reading.jobs.get_mut(&name).expect("the job")
    }

    pub(super) fn record(&mut self, second: f64) -> &mut RunRecord {
        self.job().runs.get_mut(&run(second)).expect("the record")
    }

    pub(super) fn violations(mut self) -> Vec<Violation> {
        self.history = self.history.sorted();
        check(&self.history, &self.reading, &bounds()).violations
    }

    /// The one rule that is broken; its timeline tells of it.
    pub(super) fn broken(self) -> Rule {
        let violations = self.violations();
        let rules: Vec<Rule> = violations.iter().map(|one| one.rule).collect();
        assert!(
            rules.len() == 1 || rules.iter().all(|rule| *rule == rules[0]),
            "{violations:#?}"
        );
        let first = violations.first().expect("a violation");
        assert!(
            first.rule == Rule::PodsStay || !first.timeline.is_empty(),
            "{first}"
        );
        first.rule
    }
}

pub(super) fn bounds() -> Bounds {
    Bounds {
        lock_ttl: Duration::from_secs(2),
        scan: Duration::from_millis(200),
        margin: Duration::from_millis(300),
        answer: Duration::from_millis(300),
        slack: Duration::from_secs(1),
    }
}

pub(super) fn record(second: f64) -> RunRecord {
    let run = run(second);
    RunRecord {
        job: run.job(),
        run,
        nominal: at(second),
        reason: Reason::Scheduled,
        state: RunState::Succeeded,
        created_at: at(second + 0.05),
        ended_at: Some(at(second + 5.0)),
        why: None,
        recoveries: 0,
        of: None,
        attempts: Vec::new(),
        progress: None,
        params: "{}".into(),
    }
}

/// One job that fires every ten seconds from second 10 on, with two runs and a gap.
fn good_reading() -> Reading {
    let name: JobName = JOB.parse().expect("a name");
    let (first, second) = (run(10.0), run(20.0));
    let period = Duration::from_secs(10);
    let job = JobReading {
        schedule: Schedule {
            trigger: Trigger::Every { period },
            starts: None,
            ends: None,
            jitter: Duration::ZERO,
        },
        opened: at(5.0),
        cursor: at(30.0),
        answered_until: at(31.0),
        waiting: None,
        runs: [record(10.0), record(20.0)]
            .into_iter()
            .map(|record| (record.run.clone(), record))
            .collect(),
        gaps: vec![Gap {
            from: at(30.0),
            to: at(30.0),
            count: 1,
            why: "coalesced".into(),
        }],
        kept_from: at(0.0),
    };
    let switch = |run: &RunId| Switch {
        alias: ALIAS.into(),
        index: format!("{ALIAS}.{run}"),
        run: Some(run.to_string()),
        count: 3,
        checksum: "abc".into(),
    };
    let sync = SyncReading {
        job: name.clone(),
        alias: ALIAS.into(),
        count: 3,
        checksum: "abc".into(),
        in_service: Some((3, "abc".into())),
    };
    Reading {
        jobs: [(name.clone(), job)].into(),
        switches: vec![switch(&first), switch(&second)],
        syncs: vec![sync],
        steps: [(name, 3)].into(),
        ended_by_themselves: Vec::new(),
    }
}

/// A job that fires every ten seconds from second 10 on. The first run succeeds at once; the pod of the
/// second is killed after two steps, and another pod goes on.
pub(super) fn good() -> Story {
    let (first, second) = (run(10.0), run(20.0));
    let mut story = Story {
        history: History::default(),
        reading: good_reading(),
    };
    story.say(1.0, "a", "leader.won", json!({ "term": 1 }));
    for (second, term) in [(10.0, 1), (20.0, 1)] {
        let fields = json!({ "run": run(second).as_str(), "term": term });
        story.say(second + 0.06, "a", "run.published", fields);
    }
    story.attempt(10.1, "b", &first, 1, 101, 0);
    for step in 0..3 {
        story.effect(10.2 + f64::from(step), &first, 1, 101, step);
        story.save(
            10.3 + f64::from(step),
            "b",
            &first,
            101,
            u64::from(step) + 1,
        );
    }
    story.finish(13.0, "b", &first, 1, 101);
    story.attempt(20.1, "a", &second, 1, 102, 0);
    for step in 0..2 {
        story.effect(20.2 + f64::from(step), &second, 1, 102, step);
        story.save(
            20.3 + f64::from(step),
            "a",
            &second,
            102,
            u64::from(step) + 1,
        );
    }
    // The leader executed it: both fall to others.
    story.fault(22.0, 28.0, Harm::Killed, "a");
    story.say(23.5, "b", "leader.won", json!({ "term": 2 }));
    let fields = json!({ "run": second.as_str(), "term": 2 });
    story.say(24.0, "b", "run.recovered", fields);
    story.attempt(24.1, "c", &second, 2, 103, 2);
    story.effect(24.2, &second, 2, 103, 2);
    story.save(24.3, "c", &second, 103, 3);
    story.finish(24.4, "c", &second, 2, 103);
    let gap = json!({ "job": JOB, "term": 2, "from": "x", "to": "x", "count": 1 });
    story.say(30.1, "b", "firing.gap", gap);
    story
}
