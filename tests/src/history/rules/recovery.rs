//! 4: a claimed run ends, or is given back in time.

use wasmcron_core::time::Timestamp;

use crate::history::{
    Attempt, Bounds, Event, Fault, Harm, History, Kind, Reading, Rule, Span, Violation,
};

pub(in crate::history) fn check(
    history: &History,
    reading: &Reading,
    bounds: &Bounds,
) -> Vec<Violation> {
    let mut violations = left_over(history, reading);
    let leaderless = leaderless(history);
    let allowed = bounds.lock_ttl + bounds.scan + bounds.margin + bounds.slack;
    for fault in &history.faults {
        let Some(pod) = fault.pod.as_deref() else {
            continue;
        };
        if !matches!(fault.harm, Harm::Killed | Harm::Frozen) {
            continue;
        }
        for attempt in open_attempts(history, pod, fault.span.from) {
            let logged = settled(history, attempt, fault.span.from);
            let until = recorded(reading, attempt).or(logged);
            // A pod that woke up in time goes on with what it has.
            let until = match (until, fault.harm) {
                (None, Harm::Frozen) => fault.span.until,
                (until, _) => until.unwrap_or(Timestamp::MAX),
            };
            let span = Span {
                from: fault.span.from,
                until,
            };
            let others = disturbances(history, fault, bounds);
            let took = span.without(others.chain(leaderless.iter().copied()));
            if took > allowed {
                let text = format!(
                    "{} of fence {} was not given back {took:?} after \"{}\", beside the time without leader, store or pods; {allowed:?} are allowed",
                    attempt.run, attempt.fence, fault.text
                );
                violations.push(Violation::of_runs(
                    history,
                    Rule::GivenBack,
                    &[&attempt.run],
                    text,
                ));
            }
        }
    }
    violations
}

/// When an attempt ended by the record: a pod may be killed between the end and the line about it.
fn recorded(reading: &Reading, attempt: &Attempt) -> Option<Timestamp> {
    let record = reading
        .jobs
        .get(&attempt.run.job())?
        .runs
        .get(&attempt.run)?;
    let found = record
        .attempts
        .iter()
        .find(|known| known.fence.0 == attempt.fence);
    found?.ended_at
}

/// Runs that are not over although they had the time to end.
fn left_over(history: &History, reading: &Reading) -> Vec<Violation> {
    let records = reading.jobs.values().flat_map(|job| job.runs.values());
    records
        .filter(|record| !record.state.is_ended())
        .map(|record| {
            let text = format!(
                "{} is not over: {} ({})",
                record.run,
                record.state.as_str(),
                record.why.as_deref().unwrap_or("no reason")
            );
            Violation::of_runs(history, Rule::GivenBack, &[&record.run], text)
        })
        .collect()
}

/// What a pod had claimed at a moment and not ended.
pub(in crate::history) fn open_attempts<'a>(
    history: &'a History,
    pod: &'a str,
    at: Timestamp,
) -> impl Iterator<Item = &'a Attempt> {
    let before = history
        .events
        .iter()
        .take_while(move |event| event.at <= at);
    before
        .filter(move |event| event.pod == pod)
        .filter_map(move |event| match &event.kind {
            Kind::Claimed(attempt) => Some((event, attempt)),
            _ => None,
        })
        .filter(move |(claimed, attempt)| {
            settled(history, attempt, claimed.at).is_none_or(|settled| settled > at)
        })
        .map(|(_, attempt)| attempt)
}

/// When an attempt was over, taken away or given back, after a moment.
pub(in crate::history) fn settled(
    history: &History,
    attempt: &Attempt,
    after: Timestamp,
) -> Option<Timestamp> {
    let begin = history.events.partition_point(|event| event.at < after);
    let settles = |event: &&Event| match &event.kind {
        Kind::Finished { attempt: other, .. } => other == attempt,
        Kind::HandedBack { run, fence } => *run == attempt.run && *fence == Some(attempt.fence),
        Kind::Claimed(other) => other.run == attempt.run && other.fence > attempt.fence,
        Kind::Lost { run, .. } => *run == attempt.run,
        Kind::Led {
            run: Some(run),
            recovered: true,
            ..
        } => *run == attempt.run,
        _ => false,
    };
    let event = history.events.get(begin..)?.iter().find(settles)?;
    Some(event.at)
}

/// Times at which the fleet could not act: other pods dead, frozen or cut off, the store away.
fn disturbances<'a>(
    history: &'a History,
    but: &'a Fault,
    bounds: &Bounds,
) -> impl Iterator<Item = Span> + use<'a> {
    let (scan, answer) = (bounds.scan, bounds.answer);
    history
        .faults
        .iter()
        .filter(move |fault| *fault != but && fault.harm != Harm::Swapped)
        .map(move |fault| fault.span.and(scan + answer))
}

/// Times without a leader that acts, as the logs of pods and the faults show them.
fn leaderless(history: &History) -> Vec<Span> {
    let wins: Vec<&Event> = history
        .events
        .iter()
        .filter(|event| matches!(event.kind, Kind::Won { .. }))
        .collect();
    let mut spans = Vec::new();
    for (index, won) in wins.iter().enumerate() {
        let next = wins.get(index + 1).map_or(Timestamp::MAX, |next| next.at);
        let deposed = history.events.iter().find(|event| {
            event.pod == won.pod
                && event.at >= won.at
                && matches!(event.kind, Kind::Deposed { .. } | Kind::PodStarted)
        });
        let harmed = history.faults.iter().find(|fault| {
            fault.pod.as_ref() == Some(&won.pod)
                && fault.span.from >= won.at
                && fault.harm != Harm::Swapped
        });
        let ended = [
            deposed.map(|event| event.at),
            harmed.map(|one| one.span.from),
        ];
        if let Some(from) = ended.into_iter().flatten().min().filter(|at| *at < next) {
            spans.push(Span { from, until: next });
        }
    }
    spans
}
