//! The jobs of a simulated fleet, and what their guests do, made from the seed.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use wasmcron_core::job::{
    Allow, Definition, Job, Limits, Misfire, MisfirePolicy, Overlap, Reload, Retry,
};
use wasmcron_core::schedule::{Schedule, Trigger};

/// What a model guest does; the job's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Behaviour {
    /// Steps of a run, each with one effect on the outside world.
    pub steps: u32,
    /// Length of a step in milliseconds.
    pub step_ms: u64,
    /// It saves a checkpoint after so many steps; 0: never.
    pub save_every: u32,
    /// Attempts that fail and ask for another, in per cent.
    pub fails: u8,
    /// Attempts that trap, in per cent.
    pub traps: u8,
    /// Attempts that hang until they are ended, in per cent.
    pub hangs: u8,
    /// Whether it heeds a request to stop.
    pub heeds: bool,
    /// So many attempts of a run fail, each after one step, before one goes on.
    #[serde(default, skip_serializing_if = "is_none")]
    pub fails_first: u32,
}

fn is_none(count: &u32) -> bool {
    *count == 0
}

/// The name of the only plugin of a simulated fleet.
pub const PLUGIN: &str = "model";

/// The most time that one undisturbed attempt of a generated job takes.
pub const TIMEOUT_MAX: Duration = Duration::from_secs(30);

/// Makes job number `index` of a world.
///
/// # Errors
/// Never for the values used here; cron and name parsers say so through a `Result`.
pub fn generate(dice: &mut fastrand::Rng, index: usize) -> Result<Arc<Job>> {
    let name = format!("job-{index:05}");
    let resumable = dice.u8(0..100) < 60;
    let behaviour = Behaviour {
        steps: dice.u32(1..=12),
        step_ms: if dice.u8(0..100) < 50 {
            dice.u64(10..=100)
        } else {
            dice.u64(200..=1_500)
        },
        save_every: if resumable { dice.u32(1..=4) } else { 0 },
        fails: if dice.u8(0..100) < 30 { 20 } else { 0 },
        traps: if dice.u8(0..100) < 15 { 10 } else { 0 },
        hangs: if dice.u8(0..100) < 10 { 10 } else { 0 },
        heeds: dice.u8(0..100) < 80,
        fails_first: 0,
    };
    let definition = Definition {
        plugin: PLUGIN.parse()?,
        enabled: true,
        schedule: schedule(dice)?,
        resumable,
        auto_rerun: dice.bool(),
        exclusive: dice.u8(0..100) < 5,
        timeout: Duration::from_secs(dice.u64(10..=TIMEOUT_MAX.as_secs())),
        run_timeout: None,
        overlap: *choose(dice, &[Overlap::Skip, Overlap::Queue, Overlap::Replace]),
        misfire: misfire(dice),
        retry: Retry {
            max_attempts: dice.u32(1..=3),
            backoff: Duration::from_millis(dice.u64(200..=4_000)),
            max_backoff: Duration::from_secs(10),
        },
        pods: std::collections::BTreeMap::new(),
        digest: None,
        params: serde_json::to_string(&behaviour)?,
    };
    Ok(Arc::new(Job {
        name: name.parse().context("a job's name")?,
        definition,
        limits: Limits::default(),
        allow: Allow::default(),
        reload: *choose(dice, &[Reload::Finish, Reload::Handoff]),
    }))
}

/// A guest that does so many steps of so many milliseconds, saves after each, and ends well.
#[must_use]
pub fn model(steps: u32, step_ms: u64) -> Behaviour {
    Behaviour {
        steps,
        step_ms,
        save_every: 1,
        fails: 0,
        traps: 0,
        hangs: 0,
        heeds: true,
        fails_first: 0,
    }
}

/// A job that fires every so often and can be resumed.
///
/// # Errors
/// When the name is none.
pub fn plain(name: &str, every: Duration, behaviour: Behaviour) -> Result<Job> {
    let definition = Definition {
        plugin: PLUGIN.parse()?,
        enabled: true,
        schedule: Schedule {
            trigger: Trigger::Every { period: every },
            starts: None,
            ends: None,
            jitter: Duration::ZERO,
        },
        resumable: behaviour.save_every > 0,
        auto_rerun: false,
        exclusive: false,
        timeout: TIMEOUT_MAX,
        run_timeout: None,
        overlap: Overlap::Skip,
        misfire: Misfire {
            policy: MisfirePolicy::Once,
            grace: Duration::from_secs(600),
        },
        retry: Retry {
            max_attempts: 3,
            backoff: Duration::from_secs(1),
            max_backoff: Duration::from_secs(10),
        },
        pods: std::collections::BTreeMap::new(),
        digest: None,
        params: serde_json::to_string(&behaviour)?,
    };
    Ok(Job {
        name: name.parse()?,
        definition,
        limits: Limits::default(),
        allow: Allow::default(),
        reload: Reload::Finish,
    })
}

/// The same job on another schedule.
///
/// # Errors
/// As [`generate`].
pub fn reschedule(dice: &mut fastrand::Rng, job: &Job) -> Result<Arc<Job>> {
    let mut job = job.clone();
    job.definition.schedule = schedule(dice)?;
    Ok(Arc::new(job))
}

fn schedule(dice: &mut fastrand::Rng) -> Result<Schedule> {
    let trigger = if dice.u8(0..100) < 40 {
        let seconds = *choose(dice, &[7, 10, 15, 20, 30, 45, 60, 90]);
        Trigger::Every {
            period: Duration::from_secs(seconds),
        }
    } else {
        let text = *choose(
            dice,
            &[
                "*/10 * * * * *",
                "*/15 * * * * *",
                "5,25,45 * * * * *",
                "*/30 * * * * *",
                "0 * * * * *",
                "30 */2 * * * *",
                "* * * * *",
                "*/2 * * * *",
            ],
        );
        let zone = *choose(dice, &["UTC", "Asia/Shanghai", "America/New_York"]);
        Trigger::Cron {
            expression: text.parse().context("an expression")?,
            timezone: zone.parse().context("a zone")?,
        }
    };
    let jitter = if dice.u8(0..100) < 20 {
        Duration::from_millis(dice.u64(100..=3_000))
    } else {
        Duration::ZERO
    };
    Ok(Schedule {
        trigger,
        starts: None,
        ends: None,
        jitter,
    })
}

fn misfire(dice: &mut fastrand::Rng) -> Misfire {
    let policy = match dice.u8(0..4) {
        0 => MisfirePolicy::Skip,
        1 => MisfirePolicy::All {
            max: dice.u32(1..=4),
        },
        _ => MisfirePolicy::Once,
    };
    Misfire {
        policy,
        grace: Duration::from_secs(*choose(dice, &[2, 10, 60, 600])),
    }
}

/// One of several.
pub fn choose<'a, T>(dice: &mut fastrand::Rng, among: &'a [T]) -> &'a T {
    &among[dice.usize(0..among.len())]
}
