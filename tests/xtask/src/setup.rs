//! `cargo xtask setup`: what is missing, installed where that is possible, explained where not.

pub(crate) mod redis;
pub(crate) mod toolchain;

mod debian;

use anyhow::Result;

use crate::host;

/// Options of `setup`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only say what is there and what is missing.
    #[arg(long)]
    check: bool,
}

/// Whether something that is missing may be installed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Install {
    /// Install it if there is a way.
    Missing,
    /// Install nothing.
    Nothing,
}

/// Finds everything, and says what is missing only after looking for all of it.
pub(crate) fn run(args: &Args) -> Result<()> {
    let install = if args.check {
        Install::Nothing
    } else {
        Install::Missing
    };
    println!("checkout: {}", host::root().display());
    let guests = toolchain::ensure(install);
    if let Ok(toolchain) = &guests {
        println!("guest toolchain: {toolchain}");
    }
    let server = redis::ensure(install);
    if let Ok(server) = &server {
        println!("redis server: {}", server.display());
    }
    match (guests, server) {
        (Ok(_), Ok(_)) => {
            println!("everything is there");
            Ok(())
        }
        (Err(guests), Err(server)) => Err(anyhow::anyhow!("{guests:#}\n\nand: {server:#}")),
        (Err(error), Ok(_)) | (Ok(_), Err(error)) => Err(error),
    }
}
