//! `cargo xtask load`: the load test of the settlement article.
//!
//! The article runs 100 jobs on three nodes, one firing every five seconds each, kills nodes, and
//! counts. Here a pod is killed, then the leader, then the leader is cut off from the store.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use wasmcron_core::run::RunState;

use crate::chaos::{Cut, Fault, Outcome, Planned, Who, Workload, drill, stamp};
use crate::fleet::{Fleet, Plan, StoreKind, Timing};
use crate::history::{Kind, Rule};

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// For how long firings are watched.
    pub time: Duration,
    /// How many jobs.
    pub jobs: usize,
    /// How long after one firing of a job the next one is due.
    pub period: Duration,
    /// How many pods.
    pub pods: usize,
    /// How they are timed.
    pub timing: Timing,
    /// Where they meet.
    pub store: StoreKind,
    /// The longest takeover that passes.
    pub takeover: Duration,
    /// Keep the folder with settings and logs.
    pub keep: bool,
}

impl Options {
    /// The article's test for so long.
    #[must_use]
    pub fn new(time: Duration) -> Options {
        Options {
            time,
            jobs: 100,
            period: Duration::from_secs(5),
            pods: 3,
            timing: Timing::Defaults,
            store: StoreKind::Redis,
            takeover: Duration::from_secs(15),
            keep: false,
        }
    }
}

/// What was counted.
#[derive(Clone, Debug)]
pub struct Counted {
    /// Nominal times that no run answered with success.
    pub missed: u64,
    /// Runs that were made twice, or ended twice.
    pub doubled: usize,
    /// Runs that a second attempt had to end.
    pub rerun: usize,
    /// Firings that became a run.
    pub firings: usize,
    /// Firings in a second.
    pub rate: f64,
    /// The longest time without a leader.
    pub takeover: Duration,
    /// How long after its nominal time a run was claimed: half of them, and 99 of 100.
    pub late: (Duration, Duration),
    /// Attempts by pod.
    pub by_pod: BTreeMap<String, usize>,
    /// Promises that were broken.
    pub violations: usize,
    asked: Options,
}

/// Runs it; `say` hears what happens, a line at a time.
///
/// # Errors
/// When it could not be carried through; that is no verdict.
pub async fn run(
    options: &Options,
    say: impl Fn(&str) + Clone + Send + Sync + 'static,
) -> Result<(Counted, Outcome)> {
    let fleet = Fleet::new(Plan {
        name: "load",
        pods: options.pods,
        timing: options.timing,
        store: options.store,
    });
    let fleet = Arc::new(fleet.await?);
    let workload = Workload::uniform(options.jobs, options.period).await?;
    let began = Instant::now();
    let timed = {
        let say = say.clone();
        move |text: &str| say(&format!("{} {text}", stamp(began.elapsed())))
    };
    let outcome = drill(&fleet, &workload, &faults(options), options.time, timed).await?;
    let counted = count(options, &outcome);
    if (options.keep || !counted.passes())
        && let Some(fleet) = Arc::into_inner(fleet)
    {
        say(&format!("kept: {}", fleet.keep().display()));
    }
    Ok((counted, outcome))
}

/// One pod dies, then the leader, then the leader is cut off for longer than its lease lasts, or frozen
/// where nothing can be cut.
fn faults(options: &Options) -> Vec<Planned> {
    let step = options.time / 4;
    let ttl = options.timing.lock_ttl();
    let planned = |fault| Planned { after: step, fault };
    let third = match options.store {
        StoreKind::Redis => Fault::Cut(Who::Leader, Cut::HoldBoth, ttl),
        StoreKind::Sqlite => Fault::Freeze(Who::Leader, ttl),
    };
    vec![
        planned(Fault::Kill(Who::Any(1), ttl)),
        planned(Fault::Kill(Who::Leader, ttl)),
        planned(third),
    ]
}

fn count(options: &Options, outcome: &Outcome) -> Counted {
    let broken = |rules: &[Rule]| {
        let violations = outcome.verdict.violations.iter();
        violations.filter(|one| rules.contains(&one.rule)).count()
    };
    let runs: Vec<_> = outcome
        .reading
        .jobs
        .values()
        .flat_map(|job| job.runs.values())
        .collect();
    let unsuccessful = runs
        .iter()
        .filter(|run| run.state != RunState::Succeeded)
        .count();
    let unanswered = broken(&[Rule::EveryFiring]);
    let missed = (unanswered + unsuccessful) as u64 + outcome.verdict.counted.in_gaps;
    let mut late: Vec<Duration> = runs
        .iter()
        .filter_map(|run| Some(run.attempts.first()?.claimed_at.since(run.nominal)))
        .collect();
    late.sort();
    let at = |hundredths: usize| {
        let rank = (late.len() * hundredths).div_ceil(100).max(1);
        late.get(rank - 1).copied().unwrap_or_default()
    };
    let mut by_pod = BTreeMap::new();
    for event in &outcome.history.events {
        if let Kind::Started { .. } = event.kind {
            *by_pod.entry(event.pod.clone()).or_default() += 1;
        }
    }
    let takeovers = outcome.figures.takeovers.iter().map(|one| one.length);
    let firings = outcome.verdict.counted.firings;
    // Each job's last firing stands for the period after it.
    let first = runs.iter().map(|run| run.nominal).min().unwrap_or_default();
    let last = runs.iter().map(|run| run.nominal).max().unwrap_or_default();
    let stretch = last.since(first) + options.period;
    Counted {
        missed,
        doubled: broken(&[Rule::OneRun, Rule::EndsOnce]),
        rerun: outcome.verdict.counted.rerun,
        firings,
        rate: f64::from(u32::try_from(firings).unwrap_or(u32::MAX)) / stretch.as_secs_f64(),
        takeover: takeovers.max().unwrap_or_default(),
        late: (at(50), at(99)),
        by_pod,
        violations: outcome.verdict.violations.len(),
        asked: *options,
    }
}

impl Counted {
    /// Whether the article's goals are met and no promise was broken.
    #[must_use]
    pub fn passes(&self) -> bool {
        let taken_over = self.takeover > Duration::ZERO && self.takeover <= self.asked.takeover;
        self.missed == 0 && self.doubled == 0 && self.violations == 0 && taken_over
    }

    /// A table beside the article's.
    #[must_use]
    pub fn table(&self) -> String {
        let Options {
            jobs, period, pods, ..
        } = self.asked;
        let asked = f64::from(u32::try_from(jobs).unwrap_or(u32::MAX)) / period.as_secs_f64();
        let mut text = format!(
            "{jobs} jobs, one firing every {} s each, {pods} pods; beside it the load test of\n\
             \"etcd scheduler for settlement jobs\" (3 nodes, 100 jobs, one firing every 5 s each)\n\n",
            period.as_secs_f64()
        );
        let mut row = |what: &str, here: String, there: &str| {
            let _ = writeln!(text, "  {what:34} {here:24} {there}");
        };
        row("", "here".into(), "article");
        row("missed firings", self.missed.to_string(), "0");
        row("doubled firings", self.doubled.to_string(), "0");
        let takeover = format!("{:.1} s", self.takeover.as_secs_f64());
        row("longest takeover", takeover, "<= 15 s");
        let rate = format!("{:.1} (asked {asked:.1})", self.rate);
        row("firings per second", rate, "20");
        let each = self.rate / f64::from(u32::try_from(pods).unwrap_or(1));
        row(
            "firings per second per node",
            format!("{each:.1} (as asked)"),
            "about 2,400 at most, by etcd's transactions",
        );
        let late = format!(
            "{:.0} ms, {:.0} ms",
            self.late.0.as_secs_f64() * 1e3,
            self.late.1.as_secs_f64() * 1e3
        );
        row("claimed after due, p50 and p99", late, "-");
        row("firings", self.firings.to_string(), "-");
        row("runs a second attempt ended", self.rerun.to_string(), "-");
        for (pod, attempts) in &self.by_pod {
            row(&format!("attempts on {pod}"), attempts.to_string(), "-");
        }
        text + "\nHow many firings a second there can be at most: `cargo xtask bench --only publish`.\n"
    }
}
