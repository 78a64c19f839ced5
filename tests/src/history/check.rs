//! Holds a history against the invariants.

use std::fmt;
use std::time::Duration;

use wasmcron_core::ids::RunId;

use super::{Became, History, Kind, Reading, Span, rules, timeline};

/// The settings of the pods that bound how long things may take.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// `lock.ttl`.
    pub lock_ttl: Duration,
    /// `recovery.scan`.
    pub scan: Duration,
    /// `lock.margin`.
    pub margin: Duration,
    /// `store_timeout`: no answer comes later than this.
    pub answer: Duration,
    /// How much later than it should something may happen on a busy machine.
    pub slack: Duration,
}

/// What is promised. The numbers are those of the protocol's invariants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// 1: one run, published once, for each run id.
    OneRun,
    /// 2: no effect of an attempt after one of a newer attempt of the job.
    OneFence,
    /// 3: a run ends once and never runs again.
    EndsOnce,
    /// 4: a claimed run ends, or is given back in time.
    GivenBack,
    /// 5: a deposed leader changes nothing.
    OneLeader,
    /// 6: no checkpoint steps back.
    CheckpointsGrow,
    /// 7: every nominal time has exactly one answer.
    EveryFiring,
    /// What succeeded is at the target, whole.
    TargetEqual,
    /// What happens once at the target happened once.
    OnceOnly,
    /// Without a fault nobody is deposed, and no attempt is taken over.
    NoFalseAlarm,
    /// No pod ends by itself.
    PodsStay,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Rule::OneRun => "1: one run for each run id",
            Rule::OneFence => "2: one valid fence of a job at a time",
            Rule::EndsOnce => "3: a run ends once and never runs again",
            Rule::GivenBack => "4: a claimed run ends or is given back in time",
            Rule::OneLeader => "5: a deposed leader changes nothing",
            Rule::CheckpointsGrow => "6: no checkpoint steps back",
            Rule::EveryFiring => "7: every nominal time has exactly one answer",
            Rule::TargetEqual => "the target equals the source after a success",
            Rule::OnceOnly => "no duplicate is applied",
            Rule::NoFalseAlarm => "where nothing failed, nothing is taken over",
            Rule::PodsStay => "no pod ends by itself",
        })
    }
}

/// A promise that was broken.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Which.
    pub rule: Rule,
    /// How.
    pub text: String,
    /// The lines that tell how it came about.
    pub timeline: Vec<String>,
}

impl Violation {
    pub(super) fn of_runs(history: &History, rule: Rule, runs: &[&RunId], text: String) -> Self {
        Violation {
            rule,
            text,
            timeline: timeline::of_runs(history, runs),
        }
    }

    pub(super) fn of_span(history: &History, rule: Rule, span: Span, text: String) -> Self {
        Violation {
            rule,
            text,
            timeline: timeline::of_span(history, span),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "VIOLATION of {}\n  {}", self.rule, self.text)?;
        for line in &self.timeline {
            writeln!(f, "    {line}")?;
        }
        Ok(())
    }
}

/// How much there was of what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Firings that became a run.
    pub firings: usize,
    /// Nominal times that were answered by a gap.
    pub in_gaps: u64,
    /// Among them those that were later than their misfire grace.
    pub misfired: u64,
    /// Attempts that began.
    pub attempts: usize,
    /// Runs that more than one attempt began.
    pub rerun: usize,
    /// Effects that a target made.
    pub effects: usize,
    /// Repeats that a target refused: it knew the effect, or had seen a later fence.
    pub duplicates_refused: usize,
    /// Among them those of an attempt that a newer one had overtaken.
    pub stragglers_refused: usize,
    /// Rows that a target had and was given again; writing them changes nothing.
    pub rows_again: usize,
    /// Writes that the store refused to an attempt that owned its run no more.
    pub fenced_writes: usize,
}

/// Whether the promises were kept.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Those that were not.
    pub violations: Vec<Violation>,
    /// How much there was of what.
    pub counted: Counted,
}

/// Holds a history and the final reading against every rule.
#[must_use]
pub fn check(history: &History, reading: &Reading, bounds: &Bounds) -> Verdict {
    let mut violations = Vec::new();
    violations.extend(rules::runs::check(history, reading, bounds));
    violations.extend(rules::fences::check(history));
    violations.extend(rules::recovery::check(history, reading, bounds));
    violations.extend(rules::leaders::check(history, reading, bounds));
    violations.extend(rules::checkpoints::check(history));
    violations.extend(rules::firings::check(history, reading));
    violations.extend(rules::targets::check(history, reading));
    violations.extend(rules::alarms::check(history));
    violations.extend(ended_by_themselves(reading));
    violations.sort_by_key(|violation| violation.rule);
    Verdict {
        violations,
        counted: count(history, reading),
    }
}

fn ended_by_themselves(reading: &Reading) -> impl Iterator<Item = Violation> {
    let texts = reading.ended_by_themselves.iter().cloned();
    texts.map(|text| Violation {
        rule: Rule::PodsStay,
        text,
        timeline: Vec::new(),
    })
}

fn count(history: &History, reading: &Reading) -> Counted {
    let mut counted = Counted::default();
    let mut started: Vec<&RunId> = Vec::new();
    for event in &history.events {
        match &event.kind {
            Kind::Started { attempt, .. } => started.push(&attempt.run),
            Kind::Fenced { .. } => counted.fenced_writes += 1,
            _ => {}
        }
    }
    counted.attempts = started.len();
    started.sort();
    counted.rerun = started
        .chunk_by(|a, b| a == b)
        .filter(|attempts| attempts.len() > 1)
        .count();
    for effect in &history.effects {
        counted.rows_again += effect.rewritten;
        match effect.became {
            Became::Applied => counted.effects += 1,
            Became::Duplicate => counted.duplicates_refused += 1,
            Became::Fenced => {
                counted.duplicates_refused += 1;
                counted.stragglers_refused += 1;
            }
            Became::Refused => {}
        }
    }
    for job in reading.jobs.values() {
        counted.firings += job.runs.len();
        counted.in_gaps += job.gaps.iter().map(|gap| gap.count).sum::<u64>();
        let misfired = job.gaps.iter().filter(|gap| gap.why == "misfire");
        counted.misfired += misfired.map(|gap| gap.count).sum::<u64>();
    }
    counted
}
