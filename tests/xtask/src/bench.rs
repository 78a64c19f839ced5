//! `cargo xtask bench`: the product's figures beside what its store does at most.
//!
//! Builds the host and the program that measures it with the release profile, and starts the latter.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::setup::{Install, redis, toolchain};
use crate::{guests, host};

/// The program in the package `wasmcron-tests`, and the host.
const NAMES: [&str; 2] = ["speed", "wasmcron"];
/// The guests it measures with.
const GUESTS: [&str; 4] = ["hello", "daily-report", "merchant-full-sync", "stopwatch"];
/// Time for all measurements on a slow machine.
const LIMIT: Duration = Duration::from_secs(3600);

/// Options of `bench`.
#[derive(clap::Args)]
pub struct Args {
    /// Measure only this: publish, runs, start, late, sandbox, reload or memory. Repeat for several.
    #[arg(long)]
    only: Vec<String>,
    /// Jobs whose no-op runs are due at the same instant.
    #[arg(long)]
    runs: Option<usize>,
    /// Print the figures as JSON, on one line, the last.
    #[arg(long)]
    json: bool,
    /// A Redis or Valkey server to measure with.
    #[arg(long, value_name = "PATH")]
    redis_server: Option<PathBuf>,
}

/// Builds and measures.
pub fn run(args: &Args) -> Result<()> {
    let server = redis::choose(args.redis_server.as_deref())?;
    let only = GUESTS.map(str::to_owned);
    guests::build(&toolchain::ensure(Install::Missing)?, &only)?;
    let [speed, wasmcron] = build()?;
    let folders = std::env::join_paths([host::target("test-guests"), host::target("plugins")])?;
    let mut command = Command::new(speed);
    command
        .env("WASMCRON_REDIS_SERVER", server)
        .env("WASMCRON_GUESTS", folders)
        .env("WASMCRON_BIN", wasmcron)
        // Whoever debugs makes each error cost more.
        .env_remove("RUST_BACKTRACE");
    for measure in &args.only {
        command.args(["--only", measure]);
    }
    if let Some(runs) = args.runs {
        command.args(["--runs", &runs.to_string()]);
    }
    if args.json {
        command.arg("--json");
    }
    host::run(&mut command, LIMIT)
}

/// Builds both programs in one go, so that they share their dependencies.
fn build() -> Result<[PathBuf; 2]> {
    println!("building for release; the first time takes many minutes");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo.current_dir(host::root()).stderr(Stdio::inherit());
    cargo.args([
        "build",
        "--release",
        "-p",
        "wasmcron",
        "-p",
        "wasmcron-tests",
    ]);
    cargo.args(["--bin", "wasmcron", "--bench", "speed"]);
    cargo.arg("--message-format=json-render-diagnostics");
    let output = cargo.output().context("cannot run cargo")?;
    if !output.status.success() {
        bail!("the release build failed ({})", output.status);
    }
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let built: Vec<Value> = said
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    let program = |name: &str| {
        built
            .iter()
            .filter(|message| message["target"]["name"] == name)
            .find_map(|message| message["executable"].as_str())
            .map(PathBuf::from)
            .with_context(|| format!("cargo built no `{name}`"))
    };
    Ok([program(NAMES[0])?, program(NAMES[1])?])
}
