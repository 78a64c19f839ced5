//! How the leader's work grows with the number of jobs: large quiet fleets, with the CPU time of the
//! leading pod measured apart from that of the simulated store.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use wasmcron_core::ids::{Digest, PodRef, SessionId};
use wasmcron_core::job::{Job, StoredDefinition};
use wasmcron_core::time::Timestamp;
use wasmcron_core::view::PodReport;
use wasmcron_store::Store;
use wasmcron_store::embedded::{EmbeddedOptions, EmbeddedStore};
use wasmcron_store::leadership::{Campaign, TermRef};
use wasmcron_tests::memory_store::MemoryEngine;

use crate::check::Witness;
use crate::clock::{Clock, on_paused_time};
use crate::jobs::{Behaviour, model, plain};
use crate::net::Network;
use crate::pod::{Ground, Host};

/// How long a fleet is left alone before it is measured: it elects, reads and opens meanwhile.
const WARM_UP: Duration = Duration::from_secs(60);
/// All periods divide this, so that a nominal time of every job lies where the world begins.
const ALIGNED: i64 = 3_600_000 * 500;

/// A fleet to be measured.
#[derive(Clone, Copy, Debug)]
pub struct Fleet {
    /// How many pods.
    pub pods: usize,
    /// How many jobs.
    pub jobs: usize,
    /// How often each fires.
    pub period: Duration,
    /// How long it is measured, in simulated time.
    pub length: Duration,
}

/// What a fleet cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Firings while it was measured.
    pub firings: u64,
    /// Looks of the leading loop.
    pub ticks: u64,
    /// CPU time of the leading pod, which also takes and executes its share of the runs.
    pub leader: Duration,
    /// CPU time of the other pods together.
    pub followers: Duration,
    /// Wall time of the whole simulation.
    pub took: Duration,
}

/// Runs a fleet and measures it.
///
/// # Errors
/// When it cannot be set up, or leadership changes while it is measured.
pub fn measure(fleet: Fleet) -> Result<Cost> {
    let began = Instant::now();
    let cost = on_paused_time(live(fleet));
    let took = began.elapsed();
    cost.map(|cost| Cost { took, ..cost })
}

async fn live(fleet: Fleet) -> Result<Cost> {
    let clock = Clock::starting_at(Timestamp::from_millis(ALIGNED * 1_000 - 1_000));
    let shown = clock.clone();
    let engine = MemoryEngine::new(Arc::new(move || shown.now()));
    let store = Arc::new(EmbeddedStore::new(
        Arc::new(engine),
        EmbeddedOptions::default(),
    ));
    let jobs = (0..fleet.jobs)
        .map(|index| job(index, fleet.period))
        .collect::<Result<Vec<_>>>()?;
    open_all(&*store, &jobs).await?;
    let witness = Witness::new(clock.clone(), false);
    let net = Network::new(store.clone(), 1, witness.clone());
    let ground = Ground {
        clock: clock.clone(),
        net,
        witness,
        seed: 1,
        metered: true,
        mutant: None,
    };
    let plugin = Digest::of(b"model 1");
    let mut hosts = Vec::new();
    for index in 0..fleet.pods {
        let address = format!("pod-{index:03}").parse().context("an address")?;
        let dice = fastrand::Rng::with_seed(u64::try_from(index)?);
        let host = Host::new(address, ground.clone(), dice, jobs.clone(), plugin.clone());
        tokio::spawn(host.clone().supervise());
        hosts.push(host);
    }
    tokio::time::sleep(WARM_UP).await;
    let leader = leader(&hosts)?;
    let before = reading(&hosts, &ground);
    tokio::time::sleep(fleet.length).await;
    let after = reading(&hosts, &ground);
    if !leader.leads() {
        bail!("leadership changed while the fleet was measured");
    }
    let index = hosts.iter().position(|host| Arc::ptr_eq(host, &leader));
    let index = index.context("the leader is one of the pods")?;
    let spent = |index: usize| after.pods[index].1.saturating_sub(before.pods[index].1);
    Ok(Cost {
        firings: after.firings - before.firings,
        ticks: after.pods[index].0 - before.pods[index].0,
        leader: spent(index),
        followers: (0..hosts.len())
            .filter(|other| *other != index)
            .map(spent)
            .sum(),
        took: Duration::ZERO,
    })
}

fn leader(hosts: &[Arc<Host>]) -> Result<Arc<Host>> {
    let leads = hosts.iter().find(|host| host.leads());
    leads.cloned().context("nobody leads after the warm-up")
}

/// What each pod did so far, and how many runs began.
struct Reading {
    pods: Vec<(u64, Duration)>,
    firings: u64,
}

fn reading(hosts: &[Arc<Host>], ground: &Ground) -> Reading {
    Reading {
        pods: hosts.iter().map(|host| host.effort()).collect(),
        firings: ground.witness.begun(),
    }
}

/// A job that fires once a period, at a moment of its own, and does nothing.
fn job(index: usize, period: Duration) -> Result<Arc<Job>> {
    let behaviour = Behaviour {
        save_every: 0,
        ..model(0, 0)
    };
    let mut job = plain(&format!("job-{index:06}"), period, behaviour)?;
    job.definition.schedule.jitter = period;
    Ok(Arc::new(job))
}

/// Opens all jobs as a leader that came before, so that the fleet finds them in force.
async fn open_all(store: &dyn Store, jobs: &[Arc<Job>]) -> Result<()> {
    let before = PodRef {
        address: "before".parse()?,
        session: SessionId::new("01J00000000000000000000000")?,
    };
    let now = store.now().await?;
    let report = PodReport {
        version: String::new(),
        started: now,
        capacity: 1,
        labels: std::collections::BTreeMap::new(),
        plugins: std::collections::BTreeMap::new(),
        jobs: std::collections::BTreeMap::new(),
        refused: std::collections::BTreeMap::new(),
    };
    store.register(&before, now, &report).await?;
    let lease = Duration::from_secs(60);
    let Campaign::Won(term) = store.campaign(&before, lease).await? else {
        bail!("an empty store has a leader");
    };
    let term = TermRef { pod: before, term };
    for job in jobs {
        let stored = StoredDefinition {
            hash: job.definition.hash(),
            definition: job.definition.clone(),
            since: now,
        };
        store.open(&term, &job.name, None, &stored).await?;
    }
    store.leave(&term.pod).await?;
    store.resign(&term).await?;
    Ok(())
}

/// Measures the fleets that the design names and writes a line for each: ten pods with more and more
/// jobs at equal firings a second, and a hundred pods with 100,000 jobs for an hour.
///
/// # Errors
/// When one of them cannot be measured.
pub fn table(mut write: impl FnMut(String)) -> Result<()> {
    let head = [
        "pods",
        "jobs",
        "firings",
        "ticks",
        "µs/firing",
        "µs/tick",
        "others",
        "took",
    ];
    write(line(head.map(str::to_owned)));
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    let mut costs = Vec::new();
    for (jobs, period) in [(1_000, 50), (10_000, 500), (100_000, 5_000)] {
        let fleet = Fleet {
            pods: 10,
            jobs,
            period: Duration::from_secs(period),
            length: minutes(10),
        };
        let cost = measure(fleet)?;
        write(row(fleet, cost));
        costs.push(cost);
    }
    if let [_, fewer, more] = costs.as_slice() {
        write(format!(
            "100,000 jobs cost {:.2} times as much a firing as 10,000",
            per_firing(*more) / per_firing(*fewer)
        ));
    }
    let fleet = Fleet {
        pods: 100,
        jobs: 100_000,
        period: Duration::from_secs(3_600),
        length: minutes(60),
    };
    write(row(fleet, measure(fleet)?));
    Ok(())
}

#[allow(clippy::cast_precision_loss, reason = "figures for people")]
fn per_firing(cost: Cost) -> f64 {
    cost.leader.as_secs_f64() * 1e6 / cost.firings.max(1) as f64
}

#[allow(clippy::cast_precision_loss, reason = "figures for people")]
fn row(fleet: Fleet, cost: Cost) -> String {
    let per_tick = cost.leader.as_secs_f64() * 1e6 / cost.ticks.max(1) as f64;
    line([
        fleet.pods.to_string(),
        fleet.jobs.to_string(),
        cost.firings.to_string(),
        cost.ticks.to_string(),
        format!("{:.1}", per_firing(cost)),
        format!("{per_tick:.1}"),
        format!("{:.1} s", cost.followers.as_secs_f64()),
        format!("{:.1} s", cost.took.as_secs_f64()),
    ])
}

fn line(cells: [String; 8]) -> String {
    cells.map(|cell| format!("{cell:>10}")).concat()
}
