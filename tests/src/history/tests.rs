//! Each rule catches the fault it is there for, and finds nothing in a history without faults.

mod story;

use std::time::Duration;

use serde_json::json;
use wasmcron_core::ids::Fence;
use wasmcron_core::run::{AttemptRecord, Outcome, RunState};
use wasmcron_core::task::Reason;

use super::*;
use story::{Story, at, bounds, good, record, run};

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
fn what_is_taken_over_without_a_fault_is_found() {
    let mut story = good();
    story.history.faults.clear();
    let rules: Vec<_> = story.violations().iter().map(|one| one.rule).collect();
    assert!(rules.contains(&Rule::NoFalseAlarm), "{rules:?}");
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
    for event in &mut story.history.events {
        if event.pod == "b" && matches!(event.kind, Kind::Won { .. }) {
            event.at = at(20.2);
        }
    }
    let rules: Vec<_> = story.violations().iter().map(|one| one.rule).collect();
    assert_eq!(rules, [Rule::OneLeader]);
    // It says so long after.
    let mut story = good();
    let fields = json!({ "run": run(20.0).as_str(), "term": 1 });
    story.say(35.0, "a", "run.recovered", fields);
    assert_eq!(story.broken(), Rule::OneLeader);
}

#[test]
fn a_pod_that_acts_in_anothers_term_is_found() {
    let mut story = good();
    let fields = json!({ "run": run(20.0).as_str(), "term": 2, "was": "delayed" });
    story.say(25.0, "c", "run.published", fields);
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
