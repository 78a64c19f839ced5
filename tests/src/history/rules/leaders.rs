//! 5: a deposed leader changes nothing.

use std::collections::BTreeMap;

use wasmcron_core::ids::RunId;
use wasmcron_core::time::Timestamp;

use crate::history::{Bounds, Event, History, Kind, Reading, Rule, Span, Violation};

/// By term: the line of its winner.
type Terms<'a> = BTreeMap<u64, &'a Event>;

pub(in crate::history) fn check(
    history: &History,
    reading: &Reading,
    bounds: &Bounds,
) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut terms = Terms::new();
    for event in &history.events {
        let Kind::Won { term } = event.kind else {
            continue;
        };
        let winner = *terms.entry(term).or_insert(event);
        if winner.pod != event.pod {
            let span = Span {
                from: winner.at,
                until: event.at,
            };
            let text = format!("{} and {} both won term {term}", winner.pod, event.pod);
            violations.push(Violation::of_span(history, Rule::OneLeader, span, text));
        }
    }
    for event in &history.events {
        let acted = match &event.kind {
            Kind::Published { run, term } => {
                not_its_own(&terms, event, *term).or_else(|| made_late(reading, &terms, run, *term))
            }
            Kind::Led { term, .. } | Kind::Lost { term, .. } => not_its_own(&terms, event, *term)
                .or_else(|| said_late(history, &terms, event, *term, bounds)),
            _ => None,
        };
        if let Some((since, text)) = acted {
            let span = Span {
                from: since,
                until: event.at,
            };
            let text = format!("{}: {}; {text}", event.pod, event.text);
            violations.push(Violation::of_span(history, Rule::OneLeader, span, text));
        }
    }
    violations
}

/// A pod that acted in a term that another had won.
fn not_its_own(terms: &Terms, event: &Event, term: u64) -> Option<(Timestamp, String)> {
    let winner = terms.get(&term).filter(|winner| winner.pod != event.pod)?;
    Some((winner.at, format!("{} had won term {term}", winner.pod)))
}

/// When a later term had been won for certain: its winner had said so.
fn overtaken(terms: &Terms, term: u64) -> Option<(u64, Timestamp)> {
    let later = terms.range(term + 1..);
    let first = later.min_by_key(|(_, event)| event.at)?;
    Some((*first.0, first.1.at))
}

/// The record says by the store's own clock when the run was made: no allowance is needed.
fn made_late(
    reading: &Reading,
    terms: &Terms,
    run: &RunId,
    term: u64,
) -> Option<(Timestamp, String)> {
    let (later, since) = overtaken(terms, term)?;
    let made = reading.jobs.get(&run.job())?.runs.get(run)?.created_at;
    (made > since).then(|| {
        let text = format!("made at {made} in term {term}, and term {later} had begun at {since}");
        (since, text)
    })
}

/// Without a record there is only the line, which may come as late as the answer may, or later while
/// the pod is frozen or the store away.
fn said_late(
    history: &History,
    terms: &Terms,
    event: &Event,
    term: u64,
    bounds: &Bounds,
) -> Option<(Timestamp, String)> {
    let (later, since) = overtaken(terms, term)?;
    let span = Span {
        from: since,
        until: event.at,
    };
    let disturbed = history
        .faults
        .iter()
        .filter(|fault| fault.pod.as_ref().is_none_or(|pod| *pod == event.pod))
        .map(|fault| fault.span.and(bounds.answer));
    let late = event.at > since && span.without(disturbed) > bounds.answer + bounds.slack;
    late.then(|| {
        let text = format!("said in term {term}, and term {later} had begun at {since}");
        (since, text)
    })
}
