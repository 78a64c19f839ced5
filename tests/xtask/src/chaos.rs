//! `cargo xtask chaos` and `cargo xtask load`: long runs of real pods under faults.
//!
//! Both build what they need with the development profile and start the program of that name from the
//! package `wasmcron-tests`, which does the rest and whose exit code is the verdict.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::setup::{Install, redis, toolchain};
use crate::{build, guests, host};

/// Time beyond what was asked for: starting, healing, and what still runs then.
const BESIDE: Duration = Duration::from_secs(900);

/// Options of `chaos`.
#[derive(clap::Args)]
pub struct ChaosArgs {
    /// For how many minutes faults happen.
    #[arg(long, default_value_t = 5.0)]
    minutes: f64,
    /// Decides which faults come when; a random one is printed.
    #[arg(long)]
    seed: Option<u64>,
    /// Only these faults, with commas between them: kill, terminate, freeze, cut, store-restart,
    /// store-pause, store-refuse, swap.
    #[arg(long)]
    faults: Option<String>,
    /// About how many seconds lie between two faults; without it some overlap.
    #[arg(long)]
    pace: Option<f64>,
    #[command(flatten)]
    fleet: FleetArgs,
}

/// Options of `load`.
#[derive(clap::Args)]
pub struct LoadArgs {
    /// For how many seconds firings are watched.
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// How many jobs.
    #[arg(long)]
    jobs: Option<u16>,
    /// How many seconds after one firing of a job the next one is due.
    #[arg(long)]
    period: Option<f64>,
    #[command(flatten)]
    fleet: FleetArgs,
}

/// What both let choose about the pods.
#[derive(clap::Args)]
struct FleetArgs {
    /// How many pods.
    #[arg(long)]
    pods: Option<u8>,
    /// Where the pods meet: redis or sqlite.
    #[arg(long)]
    store: Option<String>,
    /// How the pods are timed: fast or defaults.
    #[arg(long)]
    timing: Option<String>,
    /// Keep the folder with settings and logs.
    #[arg(long)]
    keep: bool,
    /// A Redis or Valkey server to run on.
    #[arg(long, value_name = "PATH")]
    redis_server: Option<PathBuf>,
}

/// Builds, and lets faults happen.
pub fn chaos(args: &ChaosArgs) -> Result<()> {
    let mut command = prepared("chaos", &args.fleet)?;
    command.args(["--minutes", &args.minutes.to_string()]);
    option(&mut command, "--seed", args.seed.as_ref());
    option(&mut command, "--faults", args.faults.as_ref());
    option(&mut command, "--pace", args.pace.as_ref());
    let asked = Duration::try_from_secs_f64(args.minutes * 60.0)?;
    host::run(&mut command, asked + BESIDE)
}

/// Builds, and runs the load test.
pub fn load(args: &LoadArgs) -> Result<()> {
    let mut command = prepared("load", &args.fleet)?;
    command.args(["--seconds", &args.seconds.to_string()]);
    option(&mut command, "--jobs", args.jobs.as_ref());
    option(&mut command, "--period", args.period.as_ref());
    host::run(&mut command, Duration::from_secs(args.seconds) + BESIDE)
}

fn prepared(name: &str, args: &FleetArgs) -> Result<Command> {
    let server = redis::choose(args.redis_server.as_deref())?;
    guests::build(&toolchain::ensure(Install::Missing)?, &[])?;
    let programs = build::programs()?;
    let folder = programs.wasmcron.parent().unwrap_or(Path::new("."));
    let guests = std::env::join_paths([host::target("test-guests"), host::target("plugins")])?;
    let mut command = Command::new(folder.join(name));
    command
        .env("WASMCRON_REDIS_SERVER", server)
        .env("WASMCRON_GUESTS", guests)
        .env("WASMCRON_BIN", &programs.wasmcron)
        // Whoever debugs makes each error cost more.
        .env_remove("RUST_BACKTRACE");
    option(&mut command, "--pods", args.pods.as_ref());
    option(&mut command, "--store", args.store.as_ref());
    option(&mut command, "--timing", args.timing.as_ref());
    if args.keep {
        command.arg("--keep");
    }
    Ok(command)
}

fn option(command: &mut Command, name: &str, value: Option<&impl ToString>) {
    if let Some(value) = value {
        command.args([name, &value.to_string()]);
    }
}
