//! 6: a resume starts at the last acknowledged checkpoint or a later one.

use std::collections::BTreeMap;

use wasmcron_core::ids::RunId;

use crate::history::{History, Kind, Rule, Violation};

pub(in crate::history) fn check(history: &History) -> Vec<Violation> {
    // By run: fence and sequence of every acknowledged save.
    let mut saved: BTreeMap<&RunId, Vec<(u64, u64)>> = BTreeMap::new();
    for event in &history.events {
        if let Kind::Saved { run, fence, seq } = &event.kind {
            saved.entry(run).or_default().push((*fence, *seq));
        }
    }
    let mut violations = Vec::new();
    for event in &history.events {
        let Kind::Started { attempt, from } = &event.kind else {
            continue;
        };
        let earlier = saved.get(&attempt.run).into_iter().flatten();
        let last = earlier
            .filter(|(fence, _)| *fence < attempt.fence)
            .max_by_key(|(_, seq)| *seq);
        if let Some((fence, seq)) = last.filter(|(_, seq)| seq > from) {
            let text = format!(
                "attempt {} of {} began from checkpoint {from}; {seq} had been acknowledged to fence {fence}",
                attempt.number, attempt.run
            );
            let runs = [&attempt.run];
            violations.push(Violation::of_runs(
                history,
                Rule::CheckpointsGrow,
                &runs,
                text,
            ));
        }
    }
    for (run, saves) in &saved {
        let steps = saves.iter().zip(saves.iter().skip(1));
        let back = steps
            .into_iter()
            .find(|((old, before), (new, after))| new >= old && after <= before);
        if let Some(((_, before), (_, after))) = back {
            let text = format!("checkpoint {after} of {run} was acknowledged after {before}");
            violations.push(Violation::of_runs(
                history,
                Rule::CheckpointsGrow,
                &[run],
                text,
            ));
        }
    }
    violations
}
