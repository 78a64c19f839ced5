//! `cargo xtask demo`: the main job, end to end, with real processes.
//!
//! Three pods share a store: a SQLite file, or a private Redis if asked for. A full sync of 20,000 merchants fires by cron; in the middle the pod
//! that executes it is killed with SIGKILL, another goes on from the last acknowledged checkpoint,
//! and a plugin is swapped under load. The verdict comes from the target's data and request log.

mod program;
mod stage;
mod verdict;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::setup::Install;
use crate::setup::{redis, toolchain};
use crate::{build, guests};
use stage::Stage;

/// Rows of the source.
const ROWS: u64 = 20_000;
/// How long the source takes for a page: the pace of the sync.
const PAGE_LATENCY_MS: u64 = 220;
/// How long any one step of the story may take.
const PATIENCE: Duration = Duration::from_secs(90);
/// The job whose pod is killed.
const SYNC: &str = "merchant-full-sync";
/// The job whose plugin is swapped.
const HELLO: &str = "hello";

/// Options of `demo`.
#[derive(clap::Args)]
pub struct Args {
    /// Decides when the pod is killed; printed, so that a run can be repeated.
    #[arg(long)]
    seed: Option<u64>,
    /// Keep the folder with configuration, logs and the store's data.
    #[arg(long)]
    keep: bool,
    /// Where the pods meet.
    #[arg(long, value_enum, default_value_t = Store::Sqlite)]
    store: Store,
    /// The Redis or Valkey server of `--store redis`; found or installed if not named.
    #[arg(long, value_name = "PATH")]
    redis_server: Option<PathBuf>,
}

/// Where the pods meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Store {
    /// One file, without any server.
    Sqlite,
    /// A private Redis or Valkey.
    Redis,
}

impl Args {
    /// With a fixed seed, keeping nothing.
    pub fn with_seed(seed: u64, store: Store, redis_server: &Path) -> Args {
        Args {
            seed: Some(seed),
            keep: false,
            store,
            redis_server: Some(redis_server.to_owned()),
        }
    }
}

/// Plays the story; an error is a verdict against it.
pub fn run(args: &Args) -> Result<()> {
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(0..10_000));
    let began = Instant::now();
    let server = match args.store {
        Store::Sqlite => None,
        Store::Redis => Some(redis::choose(args.redis_server.as_deref())?),
    };
    guests::build(&toolchain::ensure(Install::Missing)?, &[])?;
    let programs = build::programs()?;
    say(
        began,
        &format!("built; the seed is {seed} (repeat with --seed {seed})"),
    );
    let began = Instant::now();
    let mut stage = Stage::new(&programs, server.as_deref(), seed, ROWS, PAGE_LATENCY_MS)?;
    let told = story(&mut stage, seed, began);
    if told.is_err() {
        eprintln!("{}", stage.last_words());
    }
    let ended = stage.end(args.keep || told.is_err());
    told?;
    ended?;
    say(began, "all processes ended; nothing is left running");
    Ok(())
}

fn story(stage: &mut Stage, seed: u64, began: Instant) -> Result<()> {
    for pod in ["pod-a", "pod-b", "pod-c"] {
        stage.start_pod(pod)?;
    }
    // Compiling the plugins takes seconds on a busy machine: the sync must not be due before.
    wait("the pods to have both plugins", || {
        let pods = stage.json(&["pod", "list"])?;
        Ok(all_have_plugins(&pods, 3, 2).then_some(()))
    })?;
    say(began, &format!("three pods share {}", stage.store()));
    let due = stage.schedule_sync()?;
    say(
        began,
        &format!("{SYNC}.toml is there: it is due by cron at {due}"),
    );
    let run = wait("the sync to run", || {
        let runs = stage.json(&["run", "list", SYNC])?;
        Ok(first(&runs, "runs")
            .filter(|run| run["state"] == "running")
            .cloned())
    })?;
    let id = text(&run, "run")?;
    let first_pod = executing(stage, &id)?;
    say(
        began,
        &format!("due -> published -> claimed: {id} runs on {first_pod}"),
    );

    let mut dice = fastrand::Rng::with_seed(seed);
    let kill_at = dice.u64(ROWS * 3 / 10..ROWS * 7 / 10);
    let written = wait("enough rows in the target", || {
        Ok(Some(stage.rows_written()?).filter(|rows| *rows >= kill_at))
    })?;
    let victim = executing(stage, &id)?;
    stage.kill_pod(&victim)?;
    let killed = Instant::now();
    say(
        began,
        &format!("SIGKILL to {victim}, which executed it, at {written} of {ROWS} rows"),
    );

    let resumed = wait("the sync to go on elsewhere", || {
        let shown = stage.json(&["run", "show", &id])?;
        Ok(attempts(&shown)
            .last()
            .filter(|last| last["pod"] != *victim)
            .cloned())
    })?;
    let pause = killed.elapsed();
    let from = resumed["resumed_from"].as_u64().unwrap_or(0);
    let pod = text(&resumed, "pod")?;
    say(
        began,
        &format!(
            "{pod} goes on from checkpoint {from}, {:.1} s after the kill",
            pause.as_secs_f64()
        ),
    );

    swap(stage, began)?;

    let ended = wait("the sync to end", || {
        let shown = stage.json(&["run", "show", &id])?;
        Ok(Some(shown).filter(|run| run["ended"].is_string()))
    })?;
    say(began, &format!("{id} ended: {}", text(&ended, "state")?));
    let verdict = verdict::reach(stage, &id, ROWS)?;
    println!("\n{verdict}");
    println!("  kill to resumed elsewhere   {:.1} s", pause.as_secs_f64());
    verdict.check(&ended)
}

/// Swaps a plugin while its job fires every second: the next run uses the new bytes.
fn swap(stage: &mut Stage, began: Instant) -> Result<()> {
    let before = wait("a run of hello", || newest_digest(stage))?;
    let new = stage.swap_plugin(HELLO)?;
    let dropped = Instant::now();
    say(
        began,
        &format!(
            "a new {HELLO}.wasm is dropped over the old one ({} -> {})",
            short(&before),
            short(&new)
        ),
    );
    wait("a run on the new version", || {
        Ok(newest_digest(stage)?.filter(|digest| *digest == new))
    })?;
    say(
        began,
        &format!(
            "the next run of {HELLO} uses it, {:.1} s later, no pod restarted",
            dropped.elapsed().as_secs_f64()
        ),
    );
    Ok(())
}

/// Whether so many pods are active, each with so many plugins.
fn all_have_plugins(list: &Value, pods: usize, plugins: usize) -> bool {
    let active: Vec<_> = list["pods"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|pod| pod["state"] == "active")
        .collect();
    let has = |pod: &&Value| {
        pod["plugins"]
            .as_object()
            .is_some_and(|known| known.len() == plugins)
    };
    active.len() == pods && active.iter().all(has)
}

fn executing(stage: &Stage, run: &str) -> Result<String> {
    let shown = stage.json(&["run", "show", run])?;
    let last = attempts(&shown)
        .last()
        .cloned()
        .context("the run has no attempt")?;
    text(&last, "pod")
}

fn attempts(run: &Value) -> Vec<Value> {
    run["attempt_list"].as_array().cloned().unwrap_or_default()
}

fn first<'a>(list: &'a Value, key: &str) -> Option<&'a Value> {
    list.get(key).unwrap_or(list).as_array()?.first()
}

/// The plugin version of the newest ended run of hello.
fn newest_digest(stage: &Stage) -> Result<Option<String>> {
    let runs = stage.json(&["run", "list", HELLO])?;
    let Some(newest) = first(&runs, "runs").and_then(|run| run["run"].as_str()) else {
        return Ok(None);
    };
    let shown = stage.json(&["run", "show", newest])?;
    let last = attempts(&shown).pop();
    Ok(last.and_then(|last| last["digest"].as_str().map(str::to_owned)))
}

fn text(value: &Value, key: &str) -> Result<String> {
    let found = value[key]
        .as_str()
        .with_context(|| format!("no {key:?} in {value}"))?;
    Ok(found.to_owned())
}

fn short(digest: &str) -> &str {
    digest.get(..12).unwrap_or(digest)
}

/// Looks until there is an answer, for a bounded time.
fn wait<T>(what: &str, mut look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        if Instant::now() >= end {
            bail!("waited {} s in vain for {what}", PATIENCE.as_secs());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn say(began: Instant, text: &str) {
    println!("[{:5.1} s] {text}", began.elapsed().as_secs_f64());
}
