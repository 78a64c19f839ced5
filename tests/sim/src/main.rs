//! Runs worlds by their seeds. `cargo xtask sim` builds this for speed and ends here.

#![allow(
    clippy::print_stdout,
    reason = "a command line program speaks on standard output"
)]

use std::ops::Range;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use wasmcron_sim::hunt::hunt;
use wasmcron_sim::mutants::Mutant;
use wasmcron_sim::shrink::{TRIES_MAX, shrink};
use wasmcron_sim::world::{Outcome, Setup, run};

/// Failing seeds that are shown; the search ends there.
const FAILURES_MAX: usize = 5;

#[derive(Parser)]
#[command(name = "cargo xtask sim", about = "Simulates fleets by their seeds")]
struct Args {
    /// Which seeds: `A..B`, one, or several of these: `0..300,823`.
    #[arg(long, default_value = "0..1000", value_delimiter = ',', value_parser = seeds)]
    seeds: Vec<Range<u64>>,
    /// Pods of each world.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pods: u32,
    /// Jobs of each world.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    jobs: u32,
    /// Simulated hours.
    #[arg(long, default_value_t = 1.0 / 6.0)]
    hours: f64,
    /// Only these faults of the seed's schedule, by number: `3,7`, or `none`.
    #[arg(long)]
    faults: Option<String>,
    /// Break one rule on purpose.
    #[arg(long)]
    mutant: Option<Mutant>,
    /// Let every mutant run until a seed catches it, and fail if none does.
    #[arg(long)]
    mutants: bool,
    /// Print what happened in the last seed.
    #[arg(long)]
    trace: bool,
    /// Run every seed twice, and fail where its two histories differ.
    #[arg(long)]
    twice: bool,
    /// Leave a failing seed as it is instead of looking for a shorter schedule.
    #[arg(long)]
    no_shrink: bool,
    /// Measure the leader's work in large quiet fleets instead.
    #[arg(long)]
    scale: bool,
    /// Threads; each runs worlds of its own.
    #[arg(long, default_value_t = 2)]
    threads: usize,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let done = if args.scale {
        wasmcron_sim::scale::table(|line| println!("{line}")).map(|()| true)
    } else if args.mutants {
        hunt_all(&args)
    } else {
        search(&args)
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            println!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn seeds(text: &str) -> Result<Range<u64>> {
    let (from, to) = match text.split_once("..") {
        Some((from, to)) => (from.parse()?, to.parse()?),
        None => {
            let seed: u64 = text.parse()?;
            (seed, seed + 1)
        }
    };
    if from >= to {
        bail!("{text} has no seed in it");
    }
    Ok(from..to)
}

fn faults(text: &str) -> Result<Vec<usize>> {
    if text == "none" {
        return Ok(Vec::new());
    }
    let number = |part: &str| {
        part.trim()
            .parse()
            .with_context(|| format!("--faults: {part:?} is no number"))
    };
    text.split(',').map(number).collect()
}

/// What all threads add up.
#[derive(Default)]
struct Sum {
    worlds: AtomicU64,
    requests: AtomicU64,
    mishaps: AtomicU64,
    ran: AtomicU64,
    passed: AtomicU64,
}

/// The world that all seeds share.
fn setup(args: &Args) -> Result<Setup> {
    Ok(Setup {
        seed: 0,
        pods: usize::try_from(args.pods)?,
        jobs: usize::try_from(args.jobs)?,
        length: Duration::try_from_secs_f64(args.hours * 3_600.0).context("--hours")?,
        faults: args.faults.as_deref().map(faults).transpose()?,
        mutant: args.mutant,
        history: args.trace,
    })
}

/// Lets every mutant run; whether each was caught.
fn hunt_all(args: &Args) -> Result<bool> {
    let began = Instant::now();
    let missed = hunt(
        &setup(args)?,
        &args.seeds,
        args.threads,
        |name, caught| match caught {
            Some(caught) => {
                let first = caught.outcome.violations.first();
                let what = first.map_or_else(String::new, ToString::to_string);
                let (seed, left) = (caught.seed, caught.faults.len());
                println!(
                    "{name:22} seed {seed:>4}, {left:>2} of {:>2} faults: {what}",
                    caught.planned
                );
            }
            None => println!("{name:22} was not caught"),
        },
    )?;
    let cpu = cpu_seconds();
    println!(
        "{} mutants were not caught; {:.1} s, {cpu:.1} CPU s",
        missed.len(),
        began.elapsed().as_secs_f64()
    );
    Ok(missed.is_empty())
}

/// Runs all seeds; whether none failed.
fn search(args: &Args) -> Result<bool> {
    let setup = setup(args)?;
    let (began, sum) = (Instant::now(), Sum::default());
    let seeds = Mutex::new(args.seeds.iter().cloned().flatten());
    let failed: Mutex<Vec<(Setup, Outcome)>> = Mutex::default();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..args.threads.max(1))
            .map(|_| scope.spawn(|| work(&setup, args, &seeds, &sum, &failed)))
            .collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().unwrap_or_else(|_| bail!("a world panicked")))
    })?;
    let mut failed = failed.into_inner().unwrap_or_default();
    failed.sort_by_key(|(setup, _)| setup.seed);
    for (setup, outcome) in failed.iter().take(FAILURES_MAX) {
        show(args, setup, outcome)?;
    }
    report(&sum, began.elapsed(), failed.len());
    Ok(failed.is_empty())
}

fn work(
    setup: &Setup,
    args: &Args,
    seeds: &Mutex<impl Iterator<Item = u64>>,
    sum: &Sum,
    failed: &Mutex<Vec<(Setup, Outcome)>>,
) -> Result<()> {
    loop {
        let next = seeds.lock().ok().and_then(|mut seeds| seeds.next());
        let enough = failed
            .lock()
            .is_ok_and(|failed| failed.len() >= FAILURES_MAX);
        let Some(seed) = next.filter(|_| !enough) else {
            return Ok(());
        };
        let setup = Setup {
            seed,
            ..setup.clone()
        };
        let outcome = run(&setup).with_context(|| format!("seed {seed}"))?;
        if args.twice && run(&setup)?.digest != outcome.digest {
            bail!("seed {seed} has two histories: something in it does not come from the seed");
        }
        sum.worlds.fetch_add(1, Ordering::Relaxed);
        sum.requests
            .fetch_add(outcome.requests.0, Ordering::Relaxed);
        sum.mishaps.fetch_add(outcome.requests.1, Ordering::Relaxed);
        sum.ran.fetch_add(outcome.answers.ran, Ordering::Relaxed);
        sum.passed
            .fetch_add(outcome.answers.passed, Ordering::Relaxed);
        if setup.history {
            println!("{}", outcome.history.join("\n"));
        }
        if !outcome.violations.is_empty()
            && let Ok(mut failed) = failed.lock()
        {
            failed.push((setup, outcome));
        }
    }
}

/// Shows a failing seed, its shortest schedule, and how to see it again.
fn show(args: &Args, setup: &Setup, outcome: &Outcome) -> Result<()> {
    println!("\nseed {} fails:", setup.seed);
    let (kept, shortest) = if args.no_shrink {
        let all = setup.faults.clone();
        (
            all.unwrap_or_else(|| (0..outcome.plan.len()).collect()),
            outcome.clone(),
        )
    } else {
        shrink(setup, outcome, TRIES_MAX)?
    };
    for violation in shortest.violations.iter().take(5) {
        println!("  {violation}");
    }
    println!(
        "  with {} of its {} faults:",
        kept.len(),
        outcome.plan.len()
    );
    for index in &kept {
        if let Some(fault) = outcome.plan.get(*index) {
            println!("  {index:>4}  {fault}");
        }
    }
    let numbers: Vec<String> = kept.iter().map(usize::to_string).collect();
    let numbers = if kept.is_empty() {
        "none".to_owned()
    } else {
        numbers.join(",")
    };
    let mutant = args
        .mutant
        .map_or_else(String::new, |mutant| format!(" --mutant {}", mutant.name()));
    println!(
        "  replay: cargo xtask sim --seeds {} --pods {} --jobs {} --hours {}{mutant} --faults {numbers} --trace",
        setup.seed, args.pods, args.jobs, args.hours
    );
    Ok(())
}

fn report(sum: &Sum, took: Duration, failed: usize) {
    let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let cpu = cpu_seconds();
    #[allow(clippy::cast_precision_loss, reason = "a figure for people")]
    let each = cpu / (of(&sum.worlds).max(1) as f64);
    println!(
        "{} worlds, {failed} failed; {} firings ran, {} were answered by a gap; {} requests, {} had bad luck; {:.1} s, {each:.3} CPU s a world",
        of(&sum.worlds),
        of(&sum.ran),
        of(&sum.passed),
        of(&sum.requests),
        of(&sum.mishaps),
        took.as_secs_f64(),
    );
}

/// CPU time of this process so far, in seconds.
fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
    .as_secs_f64()
}
