//! Finds a shorter fault schedule that still breaks the same invariant.

use anyhow::Result;

use crate::world::{Outcome, Setup, run};

/// Worlds that a thorough search may run.
pub const TRIES_MAX: u32 = 400;

/// The shortest schedule that was found, as numbers of the seed's faults, and what became of it.
///
/// Halves, quarters and so on are left out as long as what is left still fails (Zeller and
/// Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", 2002), then single faults.
///
/// It runs `tries_max` worlds at most.
///
/// # Errors
/// When a world cannot be set up.
pub fn shrink(setup: &Setup, failed: &Outcome, tries_max: u32) -> Result<(Vec<usize>, Outcome)> {
    let invariant = failed.violations.first().map(|first| first.invariant);
    let mut kept: Vec<usize> = match &setup.faults {
        Some(faults) => faults.clone(),
        None => (0..failed.plan.len()).collect(),
    };
    let mut best = failed.clone();
    let mut tries = 0;
    let mut parts = 2;
    loop {
        let size = kept.len().div_ceil(parts).max(1);
        let mut shorter = None;
        for begin in (0..kept.len()).step_by(size) {
            if tries == tries_max {
                return Ok((kept, best));
            }
            tries += 1;
            let end = (begin + size).min(kept.len());
            let rest: Vec<usize> = [&kept[..begin], &kept[end..]].concat();
            let outcome = run(&Setup {
                faults: Some(rest.clone()),
                ..setup.clone()
            })?;
            if outcome.violations.first().map(|first| first.invariant) == invariant {
                shorter = Some((rest, outcome));
                break;
            }
        }
        match shorter {
            Some((rest, outcome)) => {
                kept = rest;
                best = outcome;
                parts = parts.saturating_sub(1).max(2);
            }
            None if size <= 1 => return Ok((kept, best)),
            None => parts *= 2,
        }
        if kept.is_empty() {
            return Ok((kept, best));
        }
    }
}
