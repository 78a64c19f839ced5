//! One world: a fleet, its store, its faults, and the questions at the end.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use wasmcron_core::ids::Digest;
use wasmcron_core::job::Job;
use wasmcron_core::time::Timestamp;
use wasmcron_store::Store;
use wasmcron_store::embedded::{EmbeddedOptions, EmbeddedStore};
use wasmcron_tests::memory_store::MemoryEngine;

use crate::check::{Answers, Violation, Witness, check_answers};
use crate::clock::{Clock, Wall, on_paused_time};
use crate::faults::Hand;
use crate::fragile::{Fragile, FragileLayer};
use crate::jobs;
use crate::layer::Layered;
use crate::mutants::Mutant;
use crate::net::Network;
use crate::plan::{self, Fault};
use crate::pod::{Ground, Host};

/// How long runs may take to end once nothing new begins: shorter than a backlog is left with a live
/// pod, so that nothing is found only by that.
const QUIET_MAX: Duration = Duration::from_secs(240);
/// How often the end is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// What a world is made from.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Everything else follows from it.
    pub seed: u64,
    /// How many pods.
    pub pods: usize,
    /// How many jobs.
    pub jobs: usize,
    /// How long, in simulated time.
    pub length: Duration,
    /// Which faults of the seed's plan happen; none: all.
    pub faults: Option<Vec<usize>>,
    /// What is broken on purpose.
    pub mutant: Option<Mutant>,
    /// Whether the history is kept.
    pub history: bool,
}

/// What became of a world.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What broke, earliest first.
    pub violations: Vec<Violation>,
    /// All faults of the seed's plan.
    pub plan: Vec<Fault>,
    /// How the nominal times were answered.
    pub answers: Answers,
    /// Requests to the store, and how many had bad luck.
    pub requests: (u64, u64),
    /// Events, and a number that two equal histories share.
    pub digest: (u64, u64),
    /// The last lines of what happened, if kept.
    pub history: Vec<String>,
}

/// Runs a world to its end.
///
/// # Errors
/// When it could not be set up; what breaks in it is part of the outcome.
pub fn run(setup: &Setup) -> Result<Outcome> {
    on_paused_time(live(setup))
}

/// The world while it lasts.
pub struct World {
    /// True time.
    pub clock: Clock,
    /// The way to the store.
    pub net: Arc<Network>,
    /// Where the store keeps its records.
    pub engine: Arc<MemoryEngine>,
    /// The store's clock.
    pub store_wall: Wall,
    /// What makes its scripts stop half-way.
    pub fragile: Arc<Fragile>,
    /// The store itself, watched.
    pub store: Arc<dyn Store>,
    /// Who watches.
    pub witness: Arc<Witness>,
    /// The pods.
    pub hosts: Vec<Arc<Host>>,
    /// The jobs as they began.
    pub jobs: Vec<Arc<Job>>,
}

async fn live(setup: &Setup) -> Result<Outcome> {
    let mut dice = fastrand::Rng::with_seed(setup.seed);
    let world = create(setup, &mut dice, None)?;
    let plan = plan::generate(&mut dice.fork(), setup.pods, setup.jobs, setup.length);
    for host in &world.hosts {
        tokio::spawn(host.clone().supervise());
    }
    let hand = Hand::new(&world, dice.fork());
    let chosen = plan.iter().enumerate().filter(|(index, _)| {
        setup
            .faults
            .as_ref()
            .is_none_or(|chosen| chosen.contains(index))
    });
    for (_, fault) in chosen {
        hand.expect(fault.clone());
    }
    tokio::time::sleep_until(world.clock.at(setup.length)).await;
    let until = close(&world).await?;
    let answers = judge(&world, until).await?;
    Ok(Outcome {
        violations: world.witness.violations(),
        plan,
        answers,
        requests: world.net.counts(),
        digest: world.witness.digest(),
        history: world.witness.history(),
    })
}

impl World {
    /// One that has these jobs, and neither random faults nor wrong clocks.
    ///
    /// # Errors
    /// When it cannot be set up.
    pub fn with_jobs(setup: &Setup, jobs: Vec<Arc<Job>>) -> Result<World> {
        create(setup, &mut fastrand::Rng::with_seed(setup.seed), Some(jobs))
    }

    /// Lets nothing new begin, waits for what did, and answers what broke.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn finish(&self) -> Result<Vec<Violation>> {
        let until = close(self).await?;
        judge(self, until).await?;
        Ok(self.witness.violations())
    }
}

fn create(setup: &Setup, dice: &mut fastrand::Rng, jobs: Option<Vec<Arc<Job>>>) -> Result<World> {
    // Somewhere in two years, so that clock changes, ends of months and a leap day come along.
    let epoch = 1_790_000_000_000 + dice.i64(0..63_072_000_000);
    let clock = Clock::starting_at(Timestamp::from_millis(epoch));
    let store_wall = Wall::new(clock.clone(), dice.i64(-500..=500));
    let shown = store_wall.clone();
    let engine = Arc::new(MemoryEngine::new(Arc::new(move || shown.now())));
    let plain: Arc<dyn Store> = Arc::new(EmbeddedStore::new(
        engine.clone(),
        EmbeddedOptions::default(),
    ));
    let witness = Witness::new(clock.clone(), setup.history);
    let broken = match setup.mutant {
        Some(mutant) => mutant.wrap(plain, engine.clone(), dice.u64(..)),
        None => plain,
    };
    let store = witness.watch(broken);
    let fragile = Fragile::new(store.clone(), engine.clone(), witness.clone());
    let shown = Arc::new(Layered(FragileLayer(fragile.clone())));
    let net = Network::new(shown, dice.u64(..), witness.clone());
    let jobs = match jobs {
        Some(jobs) => jobs,
        None => (0..setup.jobs)
            .map(|index| jobs::generate(dice, index))
            .collect::<Result<Vec<_>>>()?,
    };
    let ground = Ground {
        clock: clock.clone(),
        net: net.clone(),
        witness: witness.clone(),
        seed: setup.seed,
        metered: false,
        mutant: setup.mutant,
    };
    let plugin = Digest::of(b"model 1");
    let hosts = (0..setup.pods)
        .map(|index| {
            let address = format!("pod-{index:03}").parse().context("an address")?;
            let (ground, dice) = (ground.clone(), dice.fork());
            Ok(Host::new(
                address,
                ground,
                dice,
                jobs.clone(),
                plugin.clone(),
            ))
        })
        .collect::<Result<Vec<_>>>()?;
    Ok(World {
        clock,
        net,
        engine,
        store_wall,
        fragile,
        store,
        witness,
        hosts,
        jobs,
    })
}

/// Lets nothing new begin, and waits for the end of what did. Answers until when jobs could fire.
async fn close(world: &World) -> Result<Timestamp> {
    let until = world.store.now().await?;
    for job in &world.jobs {
        world.store.pause(&job.name, "sim", "the end").await?;
    }
    let give_up = world.clock.elapsed() + QUIET_MAX;
    loop {
        let counts = world.store.counts().await?;
        if counts.scheduled + counts.running + counts.delayed == 0 {
            return Ok(until);
        }
        if world.clock.elapsed() >= give_up {
            let what = what_is_left(world).await?;
            world.witness.broken(
                4,
                format!("{} s later there is still: {what}", QUIET_MAX.as_secs()),
            );
            return Ok(until);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn what_is_left(world: &World) -> Result<String> {
    let mut left = Vec::new();
    for entry in world.store.scheduled(None).await?.entries {
        left.push(format!("{} in the queue of {}", entry.task.run, entry.pod));
    }
    for entry in world.store.running(None).await?.entries {
        left.push(format!(
            "{} running on {} with fence {}",
            entry.task.run, entry.pod, entry.fence
        ));
    }
    for entry in world.store.due_delayed(10).await?.entries {
        left.push(format!("{} delayed ({})", entry.task.run, entry.why));
    }
    let counts = world.store.counts().await?;
    left.push(format!("{} delayed in all", counts.delayed));
    left.truncate(10);
    Ok(left.join(", "))
}

async fn judge(world: &World, until: Timestamp) -> Result<Answers> {
    let ledger = world.witness.snapshot();
    let mut broken = Vec::new();
    for (run, facts) in &ledger.runs {
        if facts.ended.is_none() && !facts.tainted {
            let state = world.store.run(run).await?.map(|record| record.state);
            broken.push((4, format!("{run} never ended; its record says {state:?}")));
        }
    }
    let answers = check_answers(&*world.store, &ledger, until, &mut broken).await?;
    for (invariant, what) in broken {
        world.witness.broken(invariant, what);
    }
    Ok(answers)
}
