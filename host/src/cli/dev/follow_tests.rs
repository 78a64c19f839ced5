use wasmcron_core::ids::Fence;
use wasmcron_core::run::{AttemptRecord, Outcome, RunState};
use wasmcron_core::task::Reason;

use super::*;

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn attempt(number: u32, resumed_from: Option<u64>) -> AttemptRecord {
    AttemptRecord {
        attempt: number,
        pod: "dev".parse().expect("an address"),
        fence: Fence(number.into()),
        reason: Reason::Manual,
        digest: None,
        claimed_at: at(1_000),
        ended_at: None,
        resumed_from,
        outcome: None,
    }
}

fn record(state: RunState, attempts: Vec<AttemptRecord>) -> RunRecord {
    let run: RunId = "j@2026-11-29T01:00:00Z".parse().expect("a run");
    RunRecord {
        job: run.job(),
        run,
        nominal: at(0),
        reason: Reason::Manual,
        state,
        created_at: at(0),
        ended_at: None,
        why: None,
        recoveries: 0,
        of: None,
        attempts,
        progress: None,
        params: "{}".into(),
    }
}

fn line(attempt: u32, message: &str) -> LogLine {
    LogLine {
        at: at(1_000),
        attempt,
        level: "info".into(),
        message: message.into(),
        fields: Vec::new(),
    }
}

/// What would be printed, without jobs and tones.
fn told(told: &mut Told, record: &RunRecord, lines: &[LogLine]) -> Vec<String> {
    let mut events = Vec::new();
    told.tell(record, lines, &mut events);
    events
        .iter()
        .flat_map(Event::lines)
        .map(|(job, _, text)| {
            assert_eq!(job, "j");
            text.replace("j@2026-11-29T01:00:00Z", "RUN")
        })
        .collect()
}

#[test]
fn a_run_is_told_once_and_in_order() {
    let mut so_far = Told::default();
    let mut run = record(RunState::Running, vec![attempt(1, None)]);
    assert_eq!(
        told(&mut so_far, &run, &[line(1, "hello")]),
        ["started RUN, attempt 1", "info  hello"]
    );
    run.progress = Some(Progress {
        done: 3.0,
        total: Some(10.0),
        message: "rows".into(),
    });
    assert_eq!(told(&mut so_far, &run, &[]), ["3 of 10 rows"]);
    assert!(told(&mut so_far, &run, &[]).is_empty(), "nothing new");

    run.state = RunState::Delayed;
    run.why = Some("attempt 1 failed: 503".into());
    assert_eq!(
        told(&mut so_far, &run, &[]),
        ["delayed: attempt 1 failed: 503"]
    );
    assert!(told(&mut so_far, &run, &[]).is_empty(), "still waiting");

    let mut last = attempt(2, Some(7));
    last.outcome = Some(Outcome::Succeeded {
        summary: "10 rows".into(),
    });
    run.attempts.push(last);
    run.state = RunState::Succeeded;
    run.why = None;
    run.ended_at = Some(at(3_500));
    assert_eq!(
        told(&mut so_far, &run, &[line(2, "again")]),
        [
            "started RUN, attempt 2, goes on from checkpoint 7",
            "info  again",
            "succeeded RUN in 2.5s: 10 rows",
        ]
    );
}

#[test]
fn attempts_stand_before_their_own_lines() {
    let run = record(RunState::Running, vec![attempt(1, None), attempt(2, None)]);
    let lines = [line(1, "one"), line(2, "two")];
    assert_eq!(
        told(&mut Told::default(), &run, &lines),
        [
            "started RUN, attempt 1",
            "info  one",
            "started RUN, attempt 2",
            "info  two",
        ]
    );
}

#[test]
fn a_run_that_waits_for_its_first_attempt_is_told_of_if_it_goes_on_waiting() {
    let mut so_far = Told::default();
    let mut run = record(RunState::Delayed, Vec::new());
    run.why = Some("asked for".into());
    assert!(told(&mut so_far, &run, &[]).is_empty());
    assert_eq!(told(&mut so_far, &run, &[]), ["delayed: asked for"]);
    assert!(told(&mut so_far, &run, &[]).is_empty());
}

#[test]
fn a_run_that_never_began_has_no_duration() {
    let mut run = record(RunState::Skipped, Vec::new());
    run.why = Some("overlap with run j@x".into());
    run.ended_at = Some(at(5));
    assert_eq!(
        told(&mut Told::default(), &run, &[]),
        ["skipped RUN: overlap with run j@x"]
    );
}
