//! The target of demo and tests as a program of its own.

use std::net::SocketAddr;
use std::time::Duration;

use clap::Parser;
use wasmcron_tests::servers::target::Target;

/// Serves indexes, aliases, reports and effects. Prints one JSON line with its address when it is
/// ready.
#[derive(Parser)]
struct Args {
    /// Where to listen; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// How long each request takes, in milliseconds.
    #[arg(long, default_value_t = 0)]
    latency_ms: u64,
    /// End when standard input does.
    #[arg(long)]
    with_parent: bool,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let target = Target::new(Duration::from_millis(args.latency_ms));
    wasmcron_tests::servers::run_program(args.listen, target.router(), args.with_parent).await
}
