//! The command line: one verb a file, each answering people or, with `--json`, programs.
//!
//! Exit codes: 0 done, 1 failed, 2 bad usage or input that cannot be read.

mod backfill;
mod checkpoint;
mod completions;
mod config;
mod context;
mod cron;
mod dev;
mod job;
mod logs;
mod new;
mod out;
mod plugin;
mod pod;
mod quarantine;
mod run;
mod serve;
mod text;
mod trigger;
mod views;
mod why;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use context::Globals;
use out::Answer;

/// A distributed cron whose jobs are sandboxed WebAssembly components
#[derive(Debug, Parser)]
#[command(
    name = "wasmcron",
    version,
    propagate_version = true,
    arg_required_else_help = true
)]
struct Cli {
    #[command(flatten)]
    globals: Globals,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a pod until it is told to stop
    Serve,
    /// Run a pod on the plugins and job files of a folder, with its log and progress on the terminal
    Dev(dev::Dev),
    /// Jobs: list, show, trigger, backfill, pause, resume
    #[command(subcommand)]
    Job(job::JobCommand),
    /// Runs: list, show, logs, cancel, retry
    #[command(subcommand)]
    Run(run::RunCommand),
    /// Checkpoints of runs: show, list, export, rewind, clear
    #[command(subcommand)]
    Checkpoint(checkpoint::CheckpointCommand),
    /// Pods: list, drain
    #[command(subcommand)]
    Pod(pod::PodCommand),
    /// Jobs that the platform holds back: list, release
    #[command(subcommand)]
    Quarantine(quarantine::QuarantineCommand),
    /// Plugins: check a file, list what pods serve
    #[command(subcommand)]
    Plugin(plugin::PluginCommand),
    /// Write a Rust plugin project that builds
    New(new::New),
    /// Cron expressions: next
    #[command(subcommand)]
    Cron(cron::CronCommand),
    /// Configuration: check, show, schema
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Print the completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// Reads the command line and does what it says.
pub fn main() -> ExitCode {
    match Cli::try_parse() {
        Ok(cli) => run(cli).map_or_else(out::Failure::exit, |()| ExitCode::SUCCESS),
        Err(error) => {
            // Help and version come this way too; nobody may be there to read them.
            let _ = error.print();
            ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
        }
    }
}

fn run(cli: Cli) -> Answer {
    let globals = &cli.globals;
    match cli.command {
        Command::Serve => serve::run(globals),
        Command::Dev(verb) => dev::run(globals, &verb),
        Command::Job(command) => job::run(globals, command),
        Command::Run(command) => run::run(globals, command),
        Command::Checkpoint(command) => checkpoint::run(globals, command),
        Command::Pod(command) => pod::run(globals, command),
        Command::Quarantine(command) => quarantine::run(globals, command),
        Command::Plugin(command) => plugin::run(globals, command),
        Command::New(command) => new::run(globals.out(), &command),
        Command::Cron(command) => cron::run(globals.out(), command),
        Command::Config(command) => config::run(globals, &command),
        Command::Completions { shell } => completions::run(globals.out(), shell),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
