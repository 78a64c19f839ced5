//! `cargo xtask chaos`: a mixed workload under random faults, judged by the history checker.

mod drill;
mod inject;
mod plan;
pub mod program;
mod report;
mod workload;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::fleet::{Fleet, Plan, StoreKind, Timing};

pub use drill::{Outcome, drill};
pub use plan::{Cut, Fault, Kind, Planned, Who, plan};
pub use report::{report, stamp, verdict};
pub use workload::{JobPlan, Workload};

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Options {
    /// Decides which faults come when.
    pub seed: u64,
    /// For how long.
    pub time: Duration,
    /// How many pods.
    pub pods: usize,
    /// How they are timed.
    pub timing: Timing,
    /// Where they meet.
    pub store: StoreKind,
    /// About how often a fault begins; none: often enough that some overlap.
    pub pace: Option<Duration>,
    /// Only these kinds of faults; none named: all that the store can be met by.
    pub kinds: Vec<Kind>,
    /// No fault at all: whatever is taken over then is a false alarm.
    pub idle: bool,
    /// Keep the folder with settings and logs.
    pub keep: bool,
}

impl Options {
    /// The defaults, for a seed and a time.
    #[must_use]
    pub fn new(seed: u64, time: Duration) -> Options {
        Options {
            seed,
            time,
            pods: 3,
            timing: Timing::Fast,
            store: StoreKind::Redis,
            pace: None,
            kinds: Vec::new(),
            idle: false,
            keep: false,
        }
    }
}

fn kinds(options: &Options) -> Result<Vec<Kind>> {
    let possible = Kind::of(options.store);
    if options.idle {
        return Ok(Vec::new());
    }
    if options.kinds.is_empty() {
        return Ok(possible);
    }
    if let Some(kind) = options.kinds.iter().find(|kind| !possible.contains(kind)) {
        bail!(
            "{kind:?} cannot happen to {:?}; {possible:?} can",
            options.store
        );
    }
    Ok(options.kinds.clone())
}

/// Runs it; `say` hears what happens, a line at a time.
///
/// # Errors
/// When it could not be carried through; that is no verdict.
pub async fn run(
    options: &Options,
    say: impl Fn(&str) + Clone + Send + Sync + 'static,
) -> Result<Outcome> {
    let pace = options.pace.unwrap_or(options.timing.lock_ttl());
    let kinds = kinds(options)?;
    let faults = plan(options.seed, options.time, pace, options.timing, &kinds);
    let fleet = Fleet::new(Plan {
        name: "chaos",
        pods: options.pods,
        timing: options.timing,
        store: options.store,
    });
    let fleet = Arc::new(fleet.await?);
    let workload = Workload::mixed(options.seed, options.timing).await?;
    let began = Instant::now();
    let timed = {
        let say = say.clone();
        move |text: &str| say(&format!("{} {text}", stamp(began.elapsed())))
    };
    let outcome = drill(&fleet, &workload, &faults, options.time, timed).await;
    let bad = outcome
        .as_ref()
        .map_or(true, |outcome| !outcome.verdict.violations.is_empty());
    if (options.keep || bad)
        && let Some(fleet) = Arc::into_inner(fleet)
    {
        say(&format!("kept: {}", fleet.keep().display()));
    }
    outcome
}
