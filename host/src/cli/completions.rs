//! `completions`: scripts for shells.

use clap::CommandFactory as _;

use super::out::{Answer, Out};

/// Writes the script for a shell.
pub fn run(out: Out, shell: clap_complete::Shell) -> Answer {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut super::Cli::command(), "wasmcron", &mut script);
    out.bytes(&script)
}
