//! Developer commands: `cargo xtask setup|build-guests`.
//!
//! Each command is a module with an `Args` and a `run`; add one and name it in [`Command`].

#![allow(clippy::print_stdout, reason = "a command line program speaks on standard output")]

mod guests;
mod host;
mod setup;

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
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Setup(args) => setup::run(&args),
        Command::BuildGuests(args) => guests::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
