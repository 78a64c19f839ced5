//! Each rule catches the fault it is there for, and finds nothing in a history without faults.

use std::time::Duration;

use serde_json::{Value, json};
use wasmcron_core::ids::{Fence, JobName, RunId};
use wasmcron_core::run::{AttemptRecord, Outcome, RunRecord, RunState};
use wasmcron_core::schedule::{Schedule, Trigger};
use wasmcron_core::task::Reason;
use wasmcron_core::time::Timestamp;
use wasmcron_core::view::Gap;

use super::*;
use crate::servers::target::Switch;

const JOB: &str = "sync";
const ALIAS: &str = "merchants";

fn at(second: f64) -> Timestamp {
    let start: Timestamp = "2026-11-29T00:00:00Z".parse().expect("a time");
    start + Duration::from_secs_f64(second)
}

fn run(second: f64) -> RunId {
    RunId::nominal(&JOB.parse().expect("a name"), at(second))
}

/// A history and a reading that a test spoils.
struct Story {
    history: History,
    reading: Reading,
}

impl Story {
    fn say(&mut self, second: f64, pod: &str, message: &str, fields: Value) {
        let mut line = fields;
        line["timestamp"] = at(second).to_string().into();
        line["message"] = message.into();
        let event = log::event(pod, &line.to_string()).expect("an event");
        assert!(event.kind != Kind::Other, "{line}");
        self.history.events.push(event);
    }

    fn attempt(&mut self, second: f64, pod: &str, run: &RunId, number: u32, fence: u64, from: u64) {
        let fields =
            json!({ "run": run.as_str(), "attempt": number, "fence": fence, "from": from });
        self.say(second, pod, "run.claimed", fields.clone());
        self.say(second + 0.01, pod, "run.started", fields);
    }

    fn finish(&mut self, second: f64, pod: &str, run: &RunId, number: u32, fence: u64) {
        let fields = json!({
            "run": run.as_str(), "attempt": number, "fence": fence,
            "next": "succeeded", "answer": "finished",
        });
        self.say(second, pod, "run.finished", fields);
    }

    fn save(&mut self, second: f64, pod: &str, run: &RunId, fence: u64, seq: u64) {
        let fields = json!({ "run": run.as_str(), "fence": fence, "seq": seq });
        self.say(second, pod, "checkpoint.saved", fields);
    }

    fn effect(&mut self, second: f64, run: &RunId, attempt: u32, fence: u64, step: u32) {
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

    fn fault(&mut self, from: f64, until: f64, harm: Harm, pod: &str) {
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

    fn job(&mut self) -> &mut JobReading {
        let name: JobName = JOB.parse().expect("a name");
        self.reading.jobs.get_mut(&name).expect("the job")
    }

    fn record(&mut self, second: f64) -> &mut RunRecord {
        self.job().runs.get_mut(&run(second)).expect("the record")
    }

    fn violations(mut self) -> Vec<Violation> {
        self.history = self.history.sorted();
        check(&self.history, &self.reading, &bounds()).violations
    }

    /// The one rule that is broken; its timeline tells of it.
    fn broken(self) -> Rule {
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

fn bounds() -> Bounds {
    Bounds {
        lock_ttl: Duration::from_secs(2),
        scan: Duration::from_millis(200),
        margin: Duration::from_millis(300),
        answer: Duration::from_millis(300),
        slack: Duration::from_secs(1),
    }
}

fn record(second: f64) -> RunRecord {
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

/// A job that fires every ten seconds from second 10 on. The first run succeeds at once; the pod of the
/// second is killed after two steps, and another pod goes on.
fn good() -> Story {
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
    let mut story = Story {
        history: History::default(),
        reading: Reading {
            jobs: [(name.clone(), job)].into(),
            switches: vec![switch(&first), switch(&second)],
            syncs: vec![sync],
            steps: [(name, 3)].into(),
            ended_by_themselves: Vec::new(),
        },
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

#[test]
fn a_history_without_faults_of_ours_is_good() {
    let violations = good().violations();
    assert!(violations.is_empty(), "{violations:#?}");
    let story = good();
    let history = story.history.sorted();
    let counted = check(&history, &story.reading, &bounds()).counted;
    assert_eq!((counted.firings, counted.in_gaps), (2, 1));
    assert_eq!((counted.attempts, counted.rerun), (3, 1));
    assert_eq!((counted.effects, counted.duplicates_refused), (6, 0));
    let figures = figures(&history);
    let length = |waits: &[Wait]| waits.iter().map(|one| one.length).collect::<Vec<_>>();
    assert_eq!(length(&figures.resumes), [Duration::from_millis(2110)]);
    assert_eq!(length(&figures.takeovers), [Duration::from_millis(1500)]);
    assert!(figures.resumes[0].alone);
}

#[test]
fn a_run_that_is_made_twice_is_found() {
    let mut story = good();
    let fields = json!({ "run": run(10.0).as_str(), "term": 1 });
    story.say(10.2, "a", "run.published", fields);
    assert_eq!(story.broken(), Rule::OneRun);
}

#[test]
fn an_effect_of_an_overtaken_attempt_is_found() {
    let mut story = good();
    let mut late = story.history.effects[4].clone();
    (late.at, late.key) = (at(24.25), None);
    story.history.effects.push(late.clone());
    assert_eq!(story.broken(), Rule::OneFence);
    // One that the target refused did no harm, and is counted.
    let mut story = good();
    late.became = Became::Fenced;
    story.history.effects.push(late);
    let verdict = check(&story.history.sorted(), &story.reading, &bounds());
    assert!(verdict.violations.is_empty());
    assert_eq!(verdict.counted.stragglers_refused, 1);
}

#[test]
fn a_fence_that_two_attempts_hold_is_found() {
    let mut story = good();
    let other = run(20.0);
    let fields = json!({ "run": other.as_str(), "attempt": 1, "fence": 101 });
    story.say(20.1, "c", "run.claimed", fields);
    let rules: Vec<_> = story.violations().iter().map(|one| one.rule).collect();
    assert!(rules.contains(&Rule::OneFence), "{rules:?}");
}

#[test]
fn a_run_that_ends_twice_is_found() {
    let mut story = good();
    story.finish(24.5, "a", &run(20.0), 1, 102);
    let rules: Vec<_> = story.violations().iter().map(|one| one.rule).collect();
    assert!(
        rules.iter().all(|rule| *rule == Rule::EndsOnce),
        "{rules:?}"
    );
    assert!(!rules.is_empty());
}

#[test]
fn a_run_that_runs_after_its_end_is_found() {
    let mut story = good();
    story.attempt(26.0, "c", &run(10.0), 2, 104, 3);
    assert_eq!(story.broken(), Rule::EndsOnce);
    // The leader gave it up, and its pod went on.
    let mut story = good();
    story.record(20.0).state = RunState::Lost;
    let fields = json!({ "run": run(20.0).as_str(), "term": 1 });
    story.say(21.5, "a", "run.lost", fields);
    let rules: Vec<_> = story.violations().iter().map(|one| one.rule).collect();
    assert!(rules.contains(&Rule::EndsOnce), "{rules:?}");
}

#[test]
fn an_end_that_the_record_lacks_is_found() {
    let mut story = good();
    story.record(10.0).state = RunState::Failed;
    story.reading.syncs.clear();
    assert_eq!(story.broken(), Rule::EndsOnce);
}

#[test]
fn a_run_that_is_left_over_is_found() {
    let mut story = good();
    story.record(20.0).state = RunState::Running;
    story.history.events.retain(
        |event| !matches!(&event.kind, Kind::Finished { attempt, .. } if attempt.fence == 103),
    );
    let rules: Vec<_> = story.violations().iter().map(|one| one.rule).collect();
    assert!(rules.contains(&Rule::GivenBack), "{rules:?}");
}

fn late_recovery() -> Story {
    let mut story = good();
    for event in &mut story.history.events {
        if event.at > at(23.8) && event.at < at(25.0) {
            event.at = event.at + Duration::from_secs(5);
        }
    }
    for effect in &mut story.history.effects {
        if effect.at > at(23.8) {
            effect.at = effect.at + Duration::from_secs(5);
        }
    }
    story
}

#[test]
fn a_run_that_is_given_back_late_is_found() {
    assert_eq!(late_recovery().broken(), Rule::GivenBack);
    // Not if there was a reason.
    let mut excused = late_recovery();
    excused.fault(23.0, 28.0, Harm::StoreAway, "");
    excused.history.faults[1].pod = None;
    assert!(excused.violations().is_empty());
    // Nor if it had ended and only its pod's line is missing.
    let mut ended = late_recovery();
    ended.record(20.0).attempts.push(AttemptRecord {
        attempt: 1,
        pod: "a".parse().expect("an address"),
        fence: Fence(102),
        reason: Reason::Scheduled,
        digest: None,
        claimed_at: at(20.1),
        ended_at: Some(at(22.0)),
        resumed_from: None,
        outcome: Some(Outcome::Yielded),
    });
    assert!(ended.violations().is_empty());
}

#[test]
fn a_deposed_leader_that_acts_is_found() {
    // Its run was made after the next term had begun.
    let mut story = good();
    story.record(20.0).created_at = at(20.5);
    story.say(20.2, "c", "leader.won", json!({ "term": 2 }));
    story
        .history
        .events
        .retain(|event| !(event.pod == "b" && matches!(event.kind, Kind::Won { .. })));
    let rules: Vec<_> = story.violations().iter().map(|one| one.rule).collect();
    assert_eq!(rules, [Rule::OneLeader]);
    // It says so long after.
    let mut story = good();
    let fields = json!({ "run": run(20.0).as_str(), "term": 1 });
    story.say(35.0, "a", "run.recovered", fields);
    assert_eq!(story.broken(), Rule::OneLeader);
}

#[test]
fn a_term_that_two_pods_win_is_found() {
    let mut story = good();
    story.say(1.5, "c", "leader.won", json!({ "term": 1 }));
    assert_eq!(story.broken(), Rule::OneLeader);
}

#[test]
fn a_checkpoint_that_steps_back_is_found() {
    let mut story = good();
    for event in &mut story.history.events {
        if let Kind::Started { attempt, from } = &mut event.kind
            && attempt.fence == 103
        {
            *from = 1;
        }
    }
    assert_eq!(story.broken(), Rule::CheckpointsGrow);
    let mut story = good();
    story.save(12.5, "b", &run(10.0), 101, 2);
    assert_eq!(story.broken(), Rule::CheckpointsGrow);
}

#[test]
fn a_lost_firing_is_found() {
    let mut story = good();
    story.job().gaps.clear();
    assert_eq!(story.broken(), Rule::EveryFiring);
    // One that was not decided in time.
    let mut story = good();
    story.job().answered_until = at(40.0);
    assert_eq!(story.broken(), Rule::EveryFiring);
    // Not if something says why.
    let mut story = good();
    story.job().answered_until = at(40.0);
    story.job().waiting = Some("no pod has the plugin".into());
    assert!(story.violations().is_empty());
}

#[test]
fn a_firing_with_two_answers_is_found() {
    let mut story = good();
    story.job().gaps[0].from = at(20.0);
    story.job().gaps[0].count = 2;
    assert_eq!(story.broken(), Rule::EveryFiring);
}

#[test]
fn a_gap_that_miscounts_is_found() {
    let mut story = good();
    story.job().gaps[0].count = 2;
    assert_eq!(story.broken(), Rule::EveryFiring);
}

#[test]
fn a_run_of_no_nominal_time_is_found() {
    let mut story = good();
    let odd = record(13.0);
    story.job().runs.insert(odd.run.clone(), odd);
    story.reading.syncs.clear();
    story.reading.steps.clear();
    assert_eq!(story.broken(), Rule::EveryFiring);
}

#[test]
fn a_target_that_differs_is_found() {
    let mut story = good();
    story.reading.switches[1].count = 2;
    assert_eq!(story.broken(), Rule::TargetEqual);
    let mut story = good();
    story.reading.switches.pop();
    assert_eq!(story.broken(), Rule::TargetEqual);
    let mut story = good();
    story.reading.syncs[0].in_service = Some((3, "abd".into()));
    assert_eq!(story.broken(), Rule::TargetEqual);
}

#[test]
fn a_step_that_was_left_out_is_found() {
    let mut story = good();
    story.history.effects.remove(1);
    assert_eq!(story.broken(), Rule::TargetEqual);
}

#[test]
fn a_duplicate_that_was_applied_is_found() {
    let mut story = good();
    let again = story.history.effects[5].clone();
    story.history.effects.push(again.clone());
    assert_eq!(story.broken(), Rule::OnceOnly);
    // One that was refused is counted.
    let mut story = good();
    let became = Became::Duplicate;
    story.history.effects.push(Effect { became, ..again });
    let verdict = check(&story.history.sorted(), &story.reading, &bounds());
    assert!(verdict.violations.is_empty());
    assert_eq!(verdict.counted.duplicates_refused, 1);
}

#[test]
fn a_pod_that_ends_by_itself_is_found() {
    let mut story = good();
    story.reading.ended_by_themselves.push("a ended".into());
    assert_eq!(story.broken(), Rule::PodsStay);
}
