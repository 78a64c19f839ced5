//! 7: every nominal time of an enabled job has exactly one answer.

use wasmcron_core::ids::{JobName, RunId, RunKey};
use wasmcron_core::time::Timestamp;
use wasmcron_core::view::Gap;

use crate::history::{History, JobReading, Reading, Rule, Span, Violation};

pub(in crate::history) fn check(history: &History, reading: &Reading) -> Vec<Violation> {
    let jobs = reading.jobs.iter();
    jobs.flat_map(|(name, job)| of_job(history, name, job))
        .collect()
}

fn of_job(history: &History, name: &JobName, job: &JobReading) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut tell = |at: Timestamp, text: String| {
        let run = RunId::nominal(name, at);
        let mut violation = Violation::of_runs(history, Rule::EveryFiring, &[&run], text);
        if violation.timeline.is_empty() {
            let span = Span {
                from: at,
                until: at,
            };
            violation = Violation::of_span(history, Rule::EveryFiring, span, violation.text);
        }
        violations.push(violation);
    };
    let mut last = job.opened;
    while let Some(nominal) = job.schedule.next_after(last) {
        if nominal > job.cursor.max(job.answered_until) {
            break;
        }
        last = nominal;
        let run = job.runs.contains_key(&RunId::nominal(name, nominal));
        let gap = job.gaps.iter().find(|gap| covers(gap, nominal));
        match (run, gap) {
            (true, Some(gap)) => tell(
                nominal,
                format!("{name} at {nominal} has two answers: a run, and the gap {gap:?}"),
            ),
            (false, None) if nominal <= job.cursor && nominal >= job.kept_from => tell(
                nominal,
                format!(
                    "{name} at {nominal} has no answer, and the cursor is at {}",
                    job.cursor
                ),
            ),
            (false, None) if nominal > job.cursor && job.waiting.is_none() => tell(
                nominal,
                format!(
                    "{name} at {nominal} is due and not decided: the cursor is at {}, and nothing says why",
                    job.cursor
                ),
            ),
            _ => {}
        }
    }
    for gap in &job.gaps {
        let times = times_in(job, gap);
        if gap.from > job.opened && times != gap.count {
            tell(
                gap.from,
                format!(
                    "{name}: a gap counts {}, its times are {times}: {gap:?}",
                    gap.count
                ),
            );
        }
    }
    for run in job.runs.keys() {
        if let RunKey::Nominal(at) = run.key()
            && job.schedule.next_after(at - MILLISECOND) != Some(at)
        {
            tell(
                at,
                format!("{run} stands for a time that the schedule does not have"),
            );
        }
    }
    violations
}

const MILLISECOND: std::time::Duration = std::time::Duration::from_millis(1);

fn covers(gap: &Gap, at: Timestamp) -> bool {
    gap.from <= at && at <= gap.to
}

fn times_in(job: &JobReading, gap: &Gap) -> u64 {
    let mut count = 0;
    let mut last = gap.from - MILLISECOND;
    while let Some(next) = job.schedule.next_after(last).filter(|next| *next <= gap.to) {
        (count, last) = (count + 1, next);
    }
    count
}
