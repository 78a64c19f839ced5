//! Shows that the simulation notices what it is there for: every mutant is caught within some seeds.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Result, bail};
use clap::ValueEnum as _;

use crate::mutants::Mutant;
use crate::shrink::shrink;
use crate::world::{Outcome, Setup, run};

/// Worlds that the search for a shorter schedule may run for each mutant.
const SHRINK_TRIES: u32 = 40;

/// How a mutant was caught.
#[derive(Clone, Debug)]
pub struct Caught {
    /// The first seed in which something broke that does not break without it.
    pub seed: u64,
    /// Faults of the shortest schedule that was found.
    pub faults: Vec<usize>,
    /// All faults of the seed.
    pub planned: usize,
    /// What became of that world.
    pub outcome: Outcome,
}

/// Lets each mutant run until it is caught, on so many threads. `tell` hears of each as it is done;
/// answers those that were not.
///
/// # Errors
/// When a world could not be set up.
pub fn hunt(
    setup: &Setup,
    seeds: &[Range<u64>],
    threads: usize,
    tell: impl Fn(&str, Option<&Caught>) + Sync,
) -> Result<Vec<String>> {
    let (next, missed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || -> Result<()> {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(mutant) = Mutant::value_variants().get(index) else {
                return Ok(());
            };
            let caught = catch(setup, *mutant, seeds)?;
            let name = mutant.name();
            tell(&name, caught.as_ref());
            if caught.is_none()
                && let Ok(mut missed) = missed.lock()
            {
                missed.push(name);
            }
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().unwrap_or_else(|_| bail!("a world panicked")))
    })?;
    Ok(missed.into_inner().unwrap_or_default())
}

/// The first seed in which this mutant breaks something.
///
/// # Errors
/// When a world could not be set up.
pub fn catch(setup: &Setup, mutant: Mutant, seeds: &[Range<u64>]) -> Result<Option<Caught>> {
    for seed in seeds.iter().cloned().flatten() {
        let broken = Setup {
            seed,
            mutant: Some(mutant),
            ..setup.clone()
        };
        let outcome = run(&broken)?;
        if outcome.violations.is_empty() {
            continue;
        }
        let healthy = Setup {
            mutant: None,
            ..broken.clone()
        };
        if !run(&healthy)?.violations.is_empty() {
            continue;
        }
        let planned = outcome.plan.len();
        let (faults, outcome) = shrink(&broken, &outcome, SHRINK_TRIES)?;
        return Ok(Some(Caught {
            seed,
            faults,
            planned,
            outcome,
        }));
    }
    Ok(None)
}
