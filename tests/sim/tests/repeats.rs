//! A seed stands for one history, and a failing one for one shortest schedule.

use std::time::Duration;

use anyhow::{Result, ensure};
use wasmcron_sim::mutants::Mutant;
use wasmcron_sim::shrink::shrink;
use wasmcron_sim::world::{Setup, run};

/// Worlds that the search for a shorter schedule may run here.
const TRIES: u32 = 40;

fn setup(seed: u64, mutant: Option<Mutant>) -> Setup {
    Setup {
        seed,
        pods: 5,
        jobs: 20,
        length: Duration::from_secs(600),
        faults: None,
        mutant,
        history: false,
    }
}

#[test]
fn a_seed_has_one_history() -> Result<()> {
    for seed in [1, 22, 28] {
        let (once, again) = (run(&setup(seed, None))?, run(&setup(seed, None))?);
        ensure!(once.digest == again.digest, "seed {seed} differs");
        ensure!(
            once.digest.0 > 1_000,
            "seed {seed}: hardly anything happened"
        );
        let other = run(&setup(seed + 1, None))?;
        ensure!(once.digest != other.digest, "the digest sees nothing");
    }
    Ok(())
}

#[test]
fn a_failing_seed_has_one_shortest_schedule() -> Result<()> {
    let setup = setup(0, Some(Mutant::SaveUnfenced));
    let failed = run(&setup)?;
    ensure!(!failed.violations.is_empty(), "the mutant was not noticed");
    let (kept, shortest) = shrink(&setup, &failed, TRIES)?;
    let (again, _) = shrink(&setup, &failed, TRIES)?;
    ensure!(kept == again, "{kept:?} and then {again:?}");
    ensure!(kept.len() < failed.plan.len(), "nothing was left out");
    ensure!(!shortest.violations.is_empty(), "the shorter one passes");
    Ok(())
}
