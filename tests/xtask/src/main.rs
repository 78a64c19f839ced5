//! Developer commands: `cargo xtask setup|build-guests|demo|test|bench|sim`.
//!
//! Each command is a module with an `Args` and a `run`; add one and name it in [`Command`].

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command line program speaks on standard output"
)]

mod bench;
mod build;
mod demo;
mod guests;
mod host;
mod setup;
mod sim;
mod test;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Developer commands of wasmcron")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Finds what building and testing need, and installs what is missing.
    Setup(setup::Args),
    /// Builds plugins and test guests as components.
    BuildGuests(guests::Args),
    /// Shows the main job end to end: fired by cron, killed, resumed elsewhere, hot-swapped.
    Demo(demo::Args),
    /// Checks format, lints and licences, and passes every test.
    Test(test::Args),
    /// Measures the product beside what its store does at most.
    Bench(bench::Args),
    /// Simulates fleets by their seeds, and hunts for broken promises.
    Sim(sim::Args),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Setup(args) => setup::run(&args),
        Command::BuildGuests(args) => guests::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Test(args) => test::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Sim(args) => sim::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
