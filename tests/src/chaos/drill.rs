//! A workload on a fleet while faults happen, and what was seen of it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use wasmcron_core::ids::{JobName, RunId};
use wasmcron_core::time::Timestamp;
use wasmcron_store::Store;

use super::inject::inject;
use super::plan::Planned;
use super::workload::{JobPlan, Workload};
use crate::fleet::{self, Fleet, SharedFleet};
use crate::history::{
    Effect, Figures, History, JobReading, Reading, SyncReading, Verdict, check, figures,
};

/// How long the jobs may take until they are in force.
const OPEN: Duration = Duration::from_secs(60);
/// How long the fleet may take until it is whole after the last fault.
const HEAL: Duration = Duration::from_secs(90);
/// How long what runs may take to end once firing was stopped.
const IDLE: Duration = Duration::from_secs(120);
/// A whole fleet decides what is due within this time, on a busy machine too.
const LATE: Duration = Duration::from_secs(3);
/// The whole history, in the folder of the fleet.
const HISTORY: &str = "history.txt";
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Who stops the firing, for the record.
const BY: &str = "the end of the drill";

/// What was seen, and what it says.
pub struct Outcome {
    /// Whether the promises were kept.
    pub verdict: Verdict,
    /// How long takeovers took.
    pub figures: Figures,
    /// Everything that was seen.
    pub history: History,
    /// What store and target held in the end.
    pub reading: Reading,
    /// How often a pod ended before it served, since the store was away.
    pub failed_starts: u32,
}

/// Runs a workload for so long under these faults, heals the fleet, and judges.
///
/// # Errors
/// When the fleet cannot be started, harmed or healed; that is no verdict.
pub async fn drill(
    fleet: &SharedFleet,
    workload: &Workload,
    faults: &[Planned],
    time: Duration,
    say: impl Fn(&str) + Clone + Send + Sync + 'static,
) -> Result<Outcome> {
    workload.deploy(&fleet.site)?;
    fleet.start().await?;
    opened(&fleet.backing.store, &workload.jobs).await?;
    say(&format!(
        "{} pods serve, {} jobs are in force",
        fleet.slots.len(),
        workload.jobs.len()
    ));
    let began = Instant::now();
    let supervisor = {
        let fleet = fleet.clone();
        tokio::spawn(async move { fleet.supervise().await })
    };
    harm(fleet, workload, faults, began + time, &say).await?;
    for proxy in fleet.slots.iter().filter_map(|slot| slot.proxy.as_ref()) {
        proxy.heal();
    }
    fleet.whole(HEAL).await?;
    say("the fleet is whole again; firing goes on for a moment, then stops");
    sleep(2 * LATE).await;
    let stopped = fleet::now();
    stop_firing(&fleet.backing.store, &workload.jobs).await?;
    let over = idle(&fleet.backing.store).await?;
    say(over.as_deref().unwrap_or("everything that ran is over"));
    supervisor.abort();
    if let Ok(ended) = supervisor.await {
        ended?;
    }
    let reading = read(fleet, workload, stopped - LATE).await?;
    fleet.end().await?;
    let history = History {
        events: fleet.events()?,
        effects: workload
            .target
            .log()
            .entries
            .iter()
            .filter_map(Effect::of)
            .collect(),
        faults: fleet.faults(),
    }
    .sorted();
    std::fs::write(fleet.site.path().join(HISTORY), history.text())?;
    Ok(Outcome {
        verdict: check(&history, &reading, &fleet.timing.bounds()),
        figures: figures(&history),
        history,
        reading,
        failed_starts: fleet.failed_starts(),
    })
}

/// Injects each fault at its time and waits for the last one to be over.
async fn harm(
    fleet: &SharedFleet,
    workload: &Workload,
    faults: &[Planned],
    end: Instant,
    say: &(impl Fn(&str) + Clone + Send + Sync + 'static),
) -> Result<()> {
    let plugins = workload.guests();
    let mut under_way = JoinSet::new();
    for planned in faults {
        sleep(planned.after).await;
        let (fleet, say, fault) = (Arc::clone(fleet), say.clone(), planned.fault);
        under_way.spawn(async move { inject(&fleet, fault, plugins, |text| say(&text)).await });
        while let Some(done) = under_way.try_join_next() {
            done.context("a fault")??;
        }
    }
    tokio::time::sleep_until(end).await;
    while let Some(done) = under_way.join_next().await {
        done.context("a fault")??;
    }
    Ok(())
}

fn names(jobs: &[JobPlan]) -> Result<Vec<JobName>> {
    jobs.iter().map(|job| Ok(job.name.parse()?)).collect()
}

async fn opened(store: &Arc<dyn Store>, jobs: &[JobPlan]) -> Result<()> {
    let end = Instant::now() + OPEN;
    for name in names(jobs)? {
        while store.job(&name).await?.is_none() {
            if Instant::now() >= end {
                bail!("job {name} is not in force after {OPEN:?}");
            }
            sleep(LOOK_EVERY).await;
        }
    }
    Ok(())
}

async fn stop_firing(store: &Arc<dyn Store>, jobs: &[JobPlan]) -> Result<()> {
    for name in names(jobs)? {
        store.pause(&name, BY, BY).await?;
    }
    Ok(())
}

/// Waits until nothing is queued, runs or waits; says what is left if that takes too long.
async fn idle(store: &Arc<dyn Store>) -> Result<Option<String>> {
    let end = Instant::now() + IDLE;
    loop {
        let counts = store.counts().await?;
        if counts.scheduled + counts.running + counts.delayed == 0 {
            return Ok(None);
        }
        if Instant::now() >= end {
            return Ok(Some(format!(
                "not everything is over after {IDLE:?}: {counts:?}"
            )));
        }
        sleep(LOOK_EVERY).await;
    }
}

async fn read(fleet: &Fleet, workload: &Workload, answered_until: Timestamp) -> Result<Reading> {
    let mut reading = Reading {
        switches: workload.target.data().switches,
        ended_by_themselves: fleet.ends(),
        ..Reading::default()
    };
    let data = workload.target.data();
    for job in &workload.jobs {
        let name: JobName = job.name.parse()?;
        let read = read_job(&fleet.backing.store, &name, answered_until).await?;
        reading.jobs.insert(name.clone(), read);
        if let Some(steps) = job.steps {
            reading.steps.insert(name.clone(), steps);
        }
        if let Some(alias) = &job.alias {
            let (count, checksum) = workload.rows.clone();
            reading.syncs.push(SyncReading {
                job: name,
                alias: alias.clone(),
                count,
                checksum,
                in_service: data.aliases.get(alias).map(|index| data.held(index)),
            });
        }
    }
    Ok(reading)
}

/// Everything about a job, with the record of every nominal time, however many there are.
async fn read_job(
    store: &Arc<dyn Store>,
    name: &JobName,
    answered_until: Timestamp,
) -> Result<JobReading> {
    let view = store.job(name).await?;
    let view = view.with_context(|| format!("job {name} is gone"))?;
    let stored = view.stored;
    let schedule = stored.definition.schedule;
    let listed = store.runs(name, 1000).await?;
    let mut runs: std::collections::BTreeMap<RunId, _> = listed
        .into_iter()
        .map(|record| (record.run.clone(), record))
        .collect();
    let mut last = stored.since;
    while let Some(nominal) = schedule.next_after(last).filter(|at| *at <= view.cursor) {
        last = nominal;
        let run = RunId::nominal(name, nominal);
        if !runs.contains_key(&run)
            && let Some(record) = store.run(&run).await?
        {
            runs.insert(run, record);
        }
    }
    Ok(JobReading {
        schedule,
        opened: stored.since,
        cursor: view.cursor,
        answered_until,
        waiting: view.waiting.map(|waiting| waiting.why),
        runs,
        gaps: store.gaps(name, 1000).await?,
        kept_from: Timestamp::EPOCH,
    })
}
