//! The source of demo and tests as a program of its own.

use std::net::SocketAddr;
use std::time::Duration;

use clap::Parser;
use wasmcron_tests::servers::source::{Config, Source};

/// Serves merchants by pages. Prints one JSON line with its address when it is ready.
#[derive(Parser)]
struct Args {
    /// Where to listen; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Seed of the rows.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of rows.
    #[arg(long, default_value_t = 20_000)]
    rows: usize,
    /// How long each page takes, in milliseconds.
    #[arg(long, default_value_t = 0)]
    latency_ms: u64,
    /// End when standard input does.
    #[arg(long)]
    with_parent: bool,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let latency = Duration::from_millis(args.latency_ms);
    let source = Source::new(Config {
        seed: args.seed,
        rows: args.rows,
        latency,
    });
    wasmcron_tests::servers::run_program(args.listen, source.router(), args.with_parent).await
}
