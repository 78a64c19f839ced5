//! Invariant 7: every nominal time of every job has exactly one answer.

use std::collections::BTreeSet;

use wasmcron_core::ids::{JobName, RunKey};
use wasmcron_core::job::StoredDefinition;
use wasmcron_core::time::Timestamp;
use wasmcron_core::view::Gap;
use wasmcron_store::{Result, Store};

use super::Ledger;
use super::ledger::RunFacts;

/// Nominal times that may lie after the cursor because their moment has only just come, in
/// milliseconds.
const JUST_DUE_MS: i64 = 10_000;
/// Why a leader passes times when it publishes.
const DECIDED: [&str; 2] = ["misfire", "coalesced"];
/// Gaps of one job that are read.
const GAPS_MAX: usize = 1_000;

/// How many nominal times there were, and how they were answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// By a run.
    pub ran: u64,
    /// By a gap.
    pub passed: u64,
    /// Not yet, since the job is held back.
    pub held: u64,
}

/// Reads the store's own records and compares them with what the schedules say. `until` is when the
/// jobs were last free to fire.
///
/// # Errors
/// When the store does not answer.
pub async fn check_answers(
    store: &dyn Store,
    ledger: &Ledger,
    until: Timestamp,
    broken: &mut Vec<(u8, String)>,
) -> Result<Answers> {
    let mut sum = Answers::default();
    for (job, facts) in &ledger.jobs {
        if facts.opened.is_empty() {
            continue;
        }
        let Some(view) = store.job(job).await? else {
            broken.push((7, format!("{job} was opened and is not there")));
            continue;
        };
        let runs = nominal_times(ledger, job, |_| true);
        let halves = nominal_times(ledger, job, |facts| facts.half);
        let gaps = store.gaps(job, GAPS_MAX).await?;
        let mut answered = Answered {
            job,
            runs: &runs,
            halves: &halves,
            gaps: &gaps,
            cursor: view.cursor,
            due: until - std::time::Duration::from_millis(JUST_DUE_MS.unsigned_abs()),
            is_held: wasmcron_core::decide::due::is_held(&view) || view.waiting.is_some(),
            sum: Answers::default(),
        };
        answered.check(&facts.opened, broken);
        sum.ran += answered.sum.ran;
        sum.passed += answered.sum.passed;
        sum.held += answered.sum.held;
    }
    Ok(sum)
}

/// The nominal times that have a run, by the witness's own ledger.
fn nominal_times(
    ledger: &Ledger,
    job: &JobName,
    want: fn(&RunFacts) -> bool,
) -> BTreeSet<Timestamp> {
    let of_job = ledger.runs.iter().filter(|(run, _)| run.job() == *job);
    let scheduled = of_job.filter(|(_, facts)| !facts.asked_for && want(facts));
    scheduled
        .filter_map(|(run, _)| match run.key() {
            RunKey::Nominal(at) => Some(at),
            _ => None,
        })
        .collect()
}

struct Answered<'a> {
    job: &'a JobName,
    runs: &'a BTreeSet<Timestamp>,
    halves: &'a BTreeSet<Timestamp>,
    gaps: &'a [Gap],
    cursor: Timestamp,
    due: Timestamp,
    is_held: bool,
    sum: Answers,
}

impl Answered<'_> {
    /// Walks each definition over the time in which it ruled.
    fn check(&mut self, opened: &[(Timestamp, StoredDefinition)], broken: &mut Vec<(u8, String)>) {
        for (index, (from, stored)) in opened.iter().enumerate() {
            let to = opened.get(index + 1).map(|(next, _)| *next);
            let mut at = *from;
            while let Some(nominal) = stored.definition.schedule.next_after(at) {
                if to.is_some_and(|to| nominal > to) || nominal > self.cursor.max(self.due) {
                    break;
                }
                self.one(nominal, stored, broken);
                at = nominal;
            }
        }
    }

    fn one(
        &mut self,
        nominal: Timestamp,
        stored: &StoredDefinition,
        broken: &mut Vec<(u8, String)>,
    ) {
        let ran = self.runs.contains(&nominal);
        let gaps = self
            .gaps
            .iter()
            .filter(|gap| gap.from <= nominal && nominal <= gap.to);
        let decided = |gap: &&Gap| DECIDED.contains(&gap.why.as_str());
        let (passed, decided) = (gaps.clone().count(), gaps.filter(decided).count());
        let job = self.job;
        match (ran, passed) {
            (true, 0) => self.sum.ran += 1,
            (false, 1) => self.sum.passed += 1,
            (true, 1) if decided == 0 && self.halves.contains(&nominal) => self.sum.ran += 1,
            (false, 0) if nominal > self.cursor => {
                let due = stored.definition.schedule.due_at(job, nominal);
                if due <= self.due && !self.is_held {
                    let cursor = self.cursor;
                    broken.push((
                        7,
                        format!(
                            "{job}: {nominal} is due, the cursor is {cursor}, and nothing says why"
                        ),
                    ));
                }
                self.sum.held += 1;
            }
            (false, 0) => broken.push((7, format!("{job}: {nominal} has no answer"))),
            (ran, gaps) => broken.push((
                7,
                format!("{job}: {nominal} has {} answers", gaps + usize::from(ran)),
            )),
        }
    }
}
