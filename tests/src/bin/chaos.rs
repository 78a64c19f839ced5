//! The program behind `cargo xtask chaos`.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use wasmcron_tests::chaos::program::{exit, say};
use wasmcron_tests::chaos::{self, Kind, Options};
use wasmcron_tests::fleet::{StoreKind, Timing};

/// Real pods on a private store, random faults from a seed, and a verdict.
#[derive(Parser)]
struct Args {
    /// For how many minutes faults happen.
    #[arg(long, default_value_t = 5.0)]
    minutes: f64,
    /// Decides which faults come when; a random one is printed.
    #[arg(long)]
    seed: Option<u64>,
    /// How many pods.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=9))]
    pods: u8,
    /// Where the pods meet.
    #[arg(long, value_enum, default_value = "redis")]
    store: StoreKind,
    /// How the pods are timed.
    #[arg(long, value_enum, default_value = "fast")]
    timing: Timing,
    /// Only these faults, with commas between them.
    #[arg(long, value_enum, value_delimiter = ',')]
    faults: Vec<Kind>,
    /// No fault at all: whatever is taken over then is a false alarm.
    #[arg(long, conflicts_with_all = ["faults", "pace"])]
    idle: bool,
    /// About how many seconds lie between two faults.
    #[arg(long)]
    pace: Option<f64>,
    /// Keep the folder with settings and logs.
    #[arg(long)]
    keep: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    exit(judge(Args::parse()).await)
}

/// Whether every promise was kept.
async fn judge(args: Args) -> anyhow::Result<bool> {
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(0..100_000));
    let mut options = Options::new(seed, Duration::try_from_secs_f64(args.minutes * 60.0)?);
    options.pods = usize::from(args.pods);
    (options.store, options.timing) = (args.store, args.timing);
    options.pace = args.pace.map(Duration::try_from_secs_f64).transpose()?;
    options.keep = args.keep;
    (options.kinds, options.idle) = (args.faults, args.idle);
    say(&format!("seed {seed} (repeat with --seed {seed})"));
    let outcome = chaos::run(&options, say).await?;
    say(&format!("\n{}", chaos::report(&outcome)));
    say(&chaos::verdict(&outcome));
    Ok(outcome.verdict.violations.is_empty())
}
