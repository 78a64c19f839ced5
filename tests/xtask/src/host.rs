//! The machine this runs on: folders, programs, bounded commands.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

/// How often a bounded command is looked at.
const POLL: Duration = Duration::from_millis(50);

/// The root of the checkout.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}

/// A folder below `target/`. It does not follow `CARGO_TARGET_DIR`: what is built here is looked
/// for at a fixed place.
pub(crate) fn target(name: &str) -> PathBuf {
    root().join("target").join(name)
}

/// The program of this name on PATH.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|program| is_executable(program))
}

#[cfg(unix)]
fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    path.metadata()
        .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_executable(path: &Path) -> bool {
    path.is_file()
}

/// Whether this process may install system packages.
pub(crate) fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

/// The standard output of a command that must succeed.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let shown = show(command);
    let output = command
        .output()
        .with_context(|| format!("cannot start `{shown}`"))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("`{shown}` failed ({}): {}", output.status, stderr.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Runs a command that must succeed within a time limit; it is shown first, and killed after.
pub(crate) fn run(command: &mut Command, limit: Duration) -> Result<()> {
    let shown = show(command);
    println!("  $ {shown}");
    let mut child = command
        .stdin(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot start `{shown}`"))?;
    let end = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait()? {
            if status.success() {
                return Ok(());
            }
            bail!("`{shown}` failed ({status})");
        }
        if Instant::now() >= end {
            child.kill()?;
            child.wait()?;
            bail!("`{shown}` took longer than {} s", limit.as_secs());
        }
        thread::sleep(POLL);
    }
}

/// A command as a person would type it, without its environment.
fn show(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words
        .map(OsStr::to_string_lossy)
        .collect::<Vec<_>>()
        .join(" ")
}

/// The packages of the workspace, as cargo describes them.
pub fn packages() -> Result<Vec<Package>> {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo.current_dir(root());
    cargo.args(["metadata", "--no-deps", "--format-version", "1"]);
    let metadata: Metadata =
        serde_json::from_str(&output(&mut cargo)?).context("the answer of cargo metadata")?;
    Ok(metadata.packages)
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

/// A package of the workspace.
#[derive(Deserialize)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its Cargo.toml.
    pub manifest_path: PathBuf,
    /// What it builds.
    pub targets: Vec<Target>,
}

/// One thing that a package builds.
#[derive(Deserialize)]
pub struct Target {
    /// Its name.
    pub name: String,
    /// `lib`, `bin`, `test`…
    pub kind: Vec<String>,
    /// `cdylib`, `rlib`…
    pub crate_types: Vec<String>,
}

impl Target {
    /// Whether it is of this kind.
    pub fn is(&self, kind: &str) -> bool {
        self.kind.iter().any(|known| known == kind)
    }
}
