//! 1 and 3: one run for each run id, which ends once and never runs again.

use std::collections::BTreeMap;

use wasmcron_core::ids::RunId;
use wasmcron_core::time::Timestamp;

use crate::history::{Attempt, Bounds, Event, History, Kind, Reading, Rule, Violation};

/// How a run ended, by the log of whoever ended it.
struct End<'a> {
    event: &'a Event,
    /// The fence that ended it; none: the leader did.
    fence: Option<u64>,
    state: &'a str,
}

pub(in crate::history) fn check(
    history: &History,
    reading: &Reading,
    bounds: &Bounds,
) -> Vec<Violation> {
    let mut violations = published_once(history);
    let mut ends: BTreeMap<&RunId, Vec<End>> = BTreeMap::new();
    for event in &history.events {
        if let Some((run, end)) = end(event) {
            ends.entry(run).or_default().push(end);
        }
    }
    for (run, ends) in &ends {
        if let [_, second, ..] = ends.as_slice() {
            let text = format!("{run} ended twice; the second time: {}", second.event.text);
            violations.push(Violation::of_runs(history, Rule::EndsOnce, &[run], text));
        }
        let ended = ends.iter().min_by_key(|end| end.event.at);
        let again = ended.and_then(|end| after_end(history, run, end, bounds));
        if let Some(what) = again {
            let text = format!("{run} ended, and then: {what}");
            violations.push(Violation::of_runs(history, Rule::EndsOnce, &[run], text));
        }
    }
    violations.extend(records(history, reading, &ends));
    violations
}

fn published_once(history: &History) -> Vec<Violation> {
    let mut published: BTreeMap<&RunId, u32> = BTreeMap::new();
    for event in &history.events {
        if let Kind::Published { run, .. } = &event.kind {
            *published.entry(run).or_default() += 1;
        }
    }
    let twice = published.into_iter().filter(|(_, times)| *times > 1);
    twice
        .map(|(run, times)| {
            let text = format!("{run} was published {times} times as new");
            Violation::of_runs(history, Rule::OneRun, &[run], text)
        })
        .collect()
}

fn end(event: &Event) -> Option<(&RunId, End<'_>)> {
    match &event.kind {
        Kind::Finished {
            attempt,
            next,
            answer,
        } if answer == "finished" && next != "again" => {
            let fence = Some(attempt.fence);
            let end = End {
                event,
                fence,
                state: next,
            };
            Some((&attempt.run, end))
        }
        Kind::Lost { run, .. } => {
            let end = End {
                event,
                fence: None,
                state: "lost",
            };
            Some((run, end))
        }
        _ => None,
    }
}

/// What a run did after its end. Fences only grow, so a larger one was given later, whatever the
/// order of the lines. An end by the leader carries none; there the time decides.
fn after_end(history: &History, run: &RunId, end: &End, bounds: &Bounds) -> Option<String> {
    let at = end.event.at + bounds.answer + bounds.slack;
    let later = |fence: u64, time: Timestamp| match end.fence {
        Some(ended) => fence > ended,
        None => time > at,
    };
    let again = |attempt: &Attempt, time| attempt.run == *run && later(attempt.fence, time);
    let begun = history.events.iter().find(|event| match &event.kind {
        Kind::Claimed(attempt) | Kind::Started { attempt, .. } => again(attempt, event.at),
        _ => false,
    });
    let done = || {
        history
            .effects
            .iter()
            .find(|effect| effect.run == *run && later(effect.fence, effect.at))
    };
    begun
        .map(|event| event.text.clone())
        .or_else(|| done().map(ToString::to_string))
}

/// What the log says of an end is what the record says.
fn records(
    history: &History,
    reading: &Reading,
    ends: &BTreeMap<&RunId, Vec<End>>,
) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (run, ends) in ends {
        let record = reading
            .jobs
            .get(&run.job())
            .and_then(|job| job.runs.get(*run));
        let (Some(record), Some(end)) = (record, ends.first()) else {
            continue;
        };
        if record.state.as_str() != end.state {
            let text = format!(
                "{run} is recorded as {}, and its end was acknowledged as {}",
                record.state.as_str(),
                end.state
            );
            violations.push(Violation::of_runs(history, Rule::EndsOnce, &[run], text));
        }
    }
    violations
}
