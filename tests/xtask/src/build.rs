//! Native builds: which packages, and the host's programs built once for demo and tests.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::{guests, host};

/// Time for a cold build on a slow machine.
const LIMIT: Duration = Duration::from_secs(3600);
/// The package of the tests that span crates.
const SHARED_TESTS: &str = "wasmcron-tests";

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
    cargo.arg("build").args(selection()?).arg("--bins");
    host::run(&mut cargo, LIMIT)?;
    let folder = folder();
    Ok(Programs {
        wasmcron: folder.join("wasmcron"),
        source: folder.join("source-server"),
        target: folder.join("target-server"),
    })
}

/// The packages of every native build. Always the same ones, so that cargo chooses the same features
/// each time and builds no dependency twice.
pub fn selection() -> Result<Vec<String>> {
    // This program runs already: building it anew with other features would replace it.
    let mut words = ["--workspace", "--exclude", "xtask"]
        .map(str::to_owned)
        .to_vec();
    for guest in guests::names()?.only_tests {
        words.extend(["--exclude".to_owned(), guest]);
    }
    Ok(words)
}

/// Names of the test binaries that lie beside their crates.
pub fn tests_of_crates() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for package in host::packages()? {
        if package.name != SHARED_TESTS {
            let tests = package
                .targets
                .into_iter()
                .filter(|target| target.is("test"));
            names.extend(tests.map(|target| target.name));
        }
    }
    Ok(names)
}

/// Where cargo puts development builds.
pub fn folder() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| host::root().join("target"), PathBuf::from);
    target.join("debug")
}
