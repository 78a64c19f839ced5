//! What succeeded is at the target, whole and once.

use std::collections::{BTreeMap, BTreeSet};

use wasmcron_core::ids::RunId;
use wasmcron_core::run::RunState;

use crate::history::{Became, History, Reading, Rule, SyncReading, Violation};

pub(in crate::history) fn check(history: &History, reading: &Reading) -> Vec<Violation> {
    let mut violations = once(history);
    for sync in &reading.syncs {
        violations.extend(equal(history, reading, sync));
    }
    violations.extend(steps(history, reading));
    violations
}

fn succeeded<'a>(reading: &'a Reading, job: &wasmcron_core::ids::JobName) -> Vec<&'a RunId> {
    let runs = reading.jobs.get(job).into_iter().flat_map(|job| &job.runs);
    runs.filter(|(_, record)| record.state == RunState::Succeeded)
        .map(|(run, _)| run)
        .collect()
}

fn equal(history: &History, reading: &Reading, sync: &SyncReading) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut tell = |run: Option<&RunId>, text: String| {
        let runs: Vec<&RunId> = run.into_iter().collect();
        violations.push(Violation::of_runs(history, Rule::TargetEqual, &runs, text));
    };
    let source = (sync.count, sync.checksum.as_str());
    let mut switched = BTreeSet::new();
    for switch in reading
        .switches
        .iter()
        .filter(|one| one.alias == sync.alias)
    {
        let run: Option<RunId> = switch.run.as_deref().and_then(|run| run.parse().ok());
        if (switch.count, switch.checksum.as_str()) != source {
            tell(
                run.as_ref(),
                format!("{switch:?} came into service; the source has {source:?}"),
            );
        }
        switched.extend(run);
    }
    let done = succeeded(reading, &sync.job);
    for run in done.iter().filter(|run| !switched.contains(**run)) {
        tell(
            Some(*run),
            format!("{run} succeeded and put nothing in service"),
        );
    }
    let in_service = sync.in_service.as_ref();
    let found = in_service.map(|(count, sum)| (*count, sum.as_str()));
    if !done.is_empty() && found != Some(source) {
        tell(
            done.last().copied(),
            format!("in service is {found:?}; the source has {source:?}"),
        );
    }
    violations
}

/// Effects with a key take place once.
fn once(history: &History) -> Vec<Violation> {
    let mut applied: BTreeMap<&str, u32> = BTreeMap::new();
    let mut violations = Vec::new();
    for effect in &history.effects {
        let Some(key) = effect.key.as_deref() else {
            continue;
        };
        if effect.became != Became::Applied || !effect.what.contains("/effects/once") {
            continue;
        }
        let times = applied.entry(key).or_default();
        *times += 1;
        if *times > 1 {
            let text = format!("the effect {key} was applied again by: {effect}");
            violations.push(Violation::of_runs(
                history,
                Rule::OnceOnly,
                &[&effect.run],
                text,
            ));
        }
    }
    violations
}

/// A run of numbered effects that succeeded made each of them.
fn steps(history: &History, reading: &Reading) -> Vec<Violation> {
    let applied: BTreeSet<&str> = history
        .effects
        .iter()
        .filter(|effect| effect.became == Became::Applied)
        .filter_map(|effect| effect.key.as_deref())
        .collect();
    let mut violations = Vec::new();
    for (job, steps) in &reading.steps {
        for run in succeeded(reading, job) {
            let missing: Vec<u32> = (0..*steps)
                .filter(|step| !applied.contains(format!("{run}/{step}").as_str()))
                .collect();
            if !missing.is_empty() {
                let text = format!("{run} succeeded without the effects of its steps {missing:?}");
                violations.push(Violation::of_runs(history, Rule::TargetEqual, &[run], text));
            }
        }
    }
    violations
}
