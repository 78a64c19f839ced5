//! A distributed cron whose jobs are sandboxed WebAssembly components.

mod api;
mod cli;
mod config;
mod services;
mod store;
mod telemetry;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
