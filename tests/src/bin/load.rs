//! The program behind `cargo xtask load`.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use wasmcron_tests::chaos;
use wasmcron_tests::chaos::program::{exit, say};
use wasmcron_tests::fleet::{StoreKind, Timing};
use wasmcron_tests::load::{self, Options};

/// The settlement article's load test: three pods, many jobs, and pods that die.
#[derive(Parser)]
struct Args {
    /// For how many seconds firings are watched.
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// How many jobs.
    #[arg(long, default_value_t = 100)]
    jobs: u16,
    /// How many seconds after one firing of a job the next one is due.
    #[arg(long, default_value_t = 5.0)]
    period: f64,
    /// How many pods.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(2..=9))]
    pods: u8,
    /// Where the pods meet.
    #[arg(long, value_enum, default_value = "redis")]
    store: StoreKind,
    /// How the pods are timed.
    #[arg(long, value_enum, default_value = "defaults")]
    timing: Timing,
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
    let options = Options {
        jobs: usize::from(args.jobs),
        period: Duration::try_from_secs_f64(args.period)?,
        pods: usize::from(args.pods),
        timing: args.timing,
        store: args.store,
        keep: args.keep,
        ..Options::new(Duration::from_secs(args.seconds))
    };
    let (counted, outcome) = load::run(&options, say).await?;
    say(&format!("\n{}", counted.table()));
    say(&chaos::report(&outcome));
    let passes = counted.passes();
    say(if passes {
        "VERDICT: the article's goals are met, and every promise was kept."
    } else {
        "VERDICT: not passed."
    });
    Ok(passes)
}
