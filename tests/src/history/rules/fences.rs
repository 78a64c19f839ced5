//! 2: at most one attempt of a job holds a valid fence, as far as its effects show.

use std::collections::BTreeMap;

use wasmcron_core::ids::{JobName, RunId};

use crate::history::{Attempt, Became, Effect, History, Kind, Rule, Violation};

pub(in crate::history) fn check(history: &History) -> Vec<Violation> {
    let mut violations = given_once(history);
    let mut newest: BTreeMap<JobName, &Effect> = BTreeMap::new();
    for effect in &history.effects {
        let newest = newest.entry(effect.job()).or_insert(effect);
        if effect.fence > newest.fence {
            *newest = effect;
        } else if effect.fence < newest.fence && effect.became == Became::Applied {
            let text = format!("{effect}, after a newer attempt had begun with: {newest}");
            let runs: [&RunId; 2] = [&effect.run, &newest.run];
            violations.push(Violation::of_runs(history, Rule::OneFence, &runs, text));
        }
    }
    violations
}

/// No fence is given twice, and within a run they grow with the attempts.
fn given_once(history: &History) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut given: BTreeMap<u64, (&str, &Attempt)> = BTreeMap::new();
    let mut attempts: BTreeMap<&RunId, BTreeMap<u32, u64>> = BTreeMap::new();
    for event in &history.events {
        let Kind::Claimed(attempt) = &event.kind else {
            continue;
        };
        let (pod, known) = *given
            .entry(attempt.fence)
            .or_insert((event.pod.as_str(), attempt));
        if (pod, known) != (event.pod.as_str(), attempt) {
            let text = format!(
                "{} claimed {attempt:?} and {pod} claimed {known:?}: one fence",
                event.pod
            );
            let runs = [&attempt.run, &known.run];
            violations.push(Violation::of_runs(history, Rule::OneFence, &runs, text));
        }
        attempts
            .entry(&attempt.run)
            .or_default()
            .insert(attempt.number, attempt.fence);
    }
    for (run, fences) in attempts {
        let grow = fences.values().zip(fences.values().skip(1));
        if grow.into_iter().any(|(earlier, later)| earlier >= later) {
            let text = format!("the fences of {run} do not grow with its attempts: {fences:?}");
            violations.push(Violation::of_runs(history, Rule::OneFence, &[run], text));
        }
    }
    violations
}
