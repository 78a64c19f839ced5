//! The host's programs, built once for demo and tests.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::host;

/// Time for a cold build on a slow machine.
const LIMIT: Duration = Duration::from_secs(3600);

/// What demo and tests start.
pub struct Programs {
    /// `wasmcron`.
    pub wasmcron: PathBuf,
    /// `source-server`.
    pub source: PathBuf,
    /// `target-server`.
    pub target: PathBuf,
}

/// Builds with the development profile, whose dependencies are optimised.
pub fn programs() -> Result<Programs> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo.current_dir(host::root());
    cargo.args(["build", "-p", "wasmcron", "-p", "wasmcron-tests", "--bins"]);
    host::run(&mut cargo, LIMIT)?;
    let folder = folder();
    Ok(Programs {
        wasmcron: folder.join("wasmcron"),
        source: folder.join("source-server"),
        target: folder.join("target-server"),
    })
}

/// Where cargo puts development builds.
pub fn folder() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| host::root().join("target"), PathBuf::from);
    target.join("debug")
}
