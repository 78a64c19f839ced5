//! Measures the product beside what its store does at most: `cargo xtask bench`.
//!
//! Raw figures come from the same run, so that ratios mean something on any machine. Everything that
//! is measured is the product with its default settings; there is no switch for this program.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command line program speaks on standard output"
)]

mod measures;
mod pod;
mod raw;
mod report;
mod stats;
mod wire;

use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use clap::{Parser, ValueEnum};

use measures::{late, memory, publish, reload, runs, sandbox, start};
use report::Figure;

/// Options of the program.
#[derive(Parser)]
#[command(name = "speed")]
struct Args {
    /// Measure only this; repeat for several.
    #[arg(long, value_enum)]
    only: Vec<Measure>,
    /// Jobs whose no-op runs are due at the same instant.
    #[arg(long, default_value_t = 5_000)]
    runs: usize,
    /// Print the figures as JSON, on one line.
    #[arg(long)]
    json: bool,
    /// What `cargo bench` says of itself.
    #[arg(long, hide = true)]
    bench: bool,
}

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Measure {
    /// Publishing, a hundred tasks a call.
    Publish,
    /// Whole no-op runs, their requests and their processor time.
    Runs,
    /// From published to the guest's first instruction.
    Start,
    /// Lateness of a thousand jobs each second.
    Late,
    /// A sandbox's start.
    Sandbox,
    /// From a plugin's file to its service.
    Reload,
    /// Memory of an idle pod.
    Memory,
}

#[tokio::main(worker_threads = 2)]
async fn main() -> ExitCode {
    match run(&Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: &Args) -> Result<()> {
    let mut figures = Vec::new();
    for measure in Measure::value_variants() {
        if args.only.is_empty() || args.only.contains(measure) {
            eprintln!("measuring: {measure:?}");
            let measured = one(*measure, args).await;
            figures.extend(measured.with_context(|| format!("measuring {measure:?}"))?);
        }
    }
    if args.json {
        println!("{}", serde_json::to_string(&figures)?);
    } else {
        println!();
        report::print(&figures);
    }
    Ok(())
}

async fn one(measure: Measure, args: &Args) -> Result<Vec<Figure>> {
    match measure {
        Measure::Publish => publish::measure().await,
        Measure::Runs => runs::measure(args.runs).await,
        Measure::Start => start::measure().await,
        Measure::Late => late::measure().await,
        Measure::Sandbox => sandbox::measure().await,
        Measure::Reload => reload::measure().await,
        Measure::Memory => memory::measure().await,
    }
}

/// The wall clock, as guests and servers on this machine read it, in nanoseconds since 1970.
fn now_nanos() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
