//! `cargo xtask sim`: simulated fleets, built for speed.

use std::ffi::OsString;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::host;

/// Time for a long search on a slow machine.
const LIMIT: Duration = Duration::from_secs(24 * 3600);

/// Options of `sim`.
#[derive(clap::Args)]
pub struct Args {
    /// What the simulation takes: `--seeds 0..10000 --pods 5 --jobs 20 --hours 0.1667`; `--help` tells.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<OsString>,
}

/// Builds for release and runs.
pub fn run(args: &Args) -> Result<()> {
    println!("building for release; the first time takes many minutes");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo.current_dir(host::root());
    cargo.args([
        "run",
        "--quiet",
        "--release",
        "-p",
        "wasmcron-sim",
        "--bin",
        "sim",
        "--",
    ]);
    cargo.args(&args.rest);
    host::run(&mut cargo, LIMIT)
}
