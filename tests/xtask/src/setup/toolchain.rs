//! The compiler for guests: rustup's `wasm32-wasip2`, or Debian's second Rust where rustup cannot
//! download it.

use std::env;
use std::fmt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::Install;
use super::debian::{self, DebianRust};
use crate::host;

/// The target of guests.
pub(crate) const TARGET: &str = "wasm32-wasip2";
/// Forces one way.
const VARIABLE: &str = "WASMCRON_GUEST_TOOLCHAIN";
/// A download server that a firewall swallows never answers.
const RUSTUP_LIMIT: Duration = Duration::from_secs(120);

/// What compiles guests.
pub(crate) enum Toolchain {
    /// The Rust in use has the target.
    Rustup,
    /// Debian's Rust builds the standard library itself.
    Debian(DebianRust),
}

impl fmt::Display for Toolchain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rustup => write!(f, "{TARGET} of the Rust in use"),
            Self::Debian(rust) => write!(f, "{TARGET} built by {rust}"),
        }
    }
}

impl Toolchain {
    /// `cargo build` for the guest target, ready for package names.
    pub(crate) fn cargo_build(&self) -> Command {
        let mut cargo = match self {
            Self::Rustup => {
                let mut cargo = Command::new(env::var_os("CARGO").unwrap_or("cargo".into()));
                cargo
                    .arg("build")
                    .arg("--target-dir")
                    .arg(host::target("guests"));
                cargo
            }
            Self::Debian(rust) => {
                let mut cargo = rust.cargo();
                cargo.args(["build", "-Zbuild-std=std,panic_abort"]);
                // A folder of its own, so that the two compilers do not undo each other's work.
                cargo.arg("--target-dir").arg(host::target("guests-debian"));
                cargo
            }
        };
        cargo.current_dir(host::root());
        cargo.args(["--target", TARGET, "--profile", "guest"]);
        cargo
    }

    /// Where built guests lie.
    pub(crate) fn out_dir(&self) -> std::path::PathBuf {
        let folder = match self {
            Self::Rustup => "guests",
            Self::Debian(_) => "guests-debian",
        };
        host::target(folder).join(TARGET).join("guest")
    }
}

/// Finds a toolchain, installing one if there is a way and leave to do so.
pub(crate) fn ensure(install: Install) -> Result<Toolchain> {
    match env::var(VARIABLE).ok().as_deref() {
        None | Some("") => any(install),
        Some("rustup") => rustup(install).context("WASMCRON_GUEST_TOOLCHAIN asks for rustup"),
        Some("debian") => debian::ensure(install)
            .map(Toolchain::Debian)
            .context("WASMCRON_GUEST_TOOLCHAIN asks for Debian's packages"),
        Some(other) => bail!("{VARIABLE}: `{other}`; `rustup` and `debian` are accepted"),
    }
}

fn any(install: Install) -> Result<Toolchain> {
    let by_rustup = match rustup(install) {
        Ok(toolchain) => return Ok(toolchain),
        Err(error) => error,
    };
    let by_debian = match debian::ensure(install) {
        Ok(rust) => return Ok(Toolchain::Debian(rust)),
        Err(error) => error,
    };
    bail!(
        "no compiler for {TARGET}, which plugins are built with.\n\
         - by rustup: {by_rustup:#}\n\
         - by Debian's packages: {by_debian:#}\n\
         With a network: `rustup target add {TARGET}`. With a distribution's Rust: its package of \
         the standard library for {TARGET}, if it has one. On Debian: `cargo xtask setup` as root. \
         Without any of these, build the plugins elsewhere and copy them to target/plugins: \
         the host itself needs no such compiler."
    )
}

fn rustup(install: Install) -> Result<Toolchain> {
    if is_installed()? {
        return Ok(Toolchain::Rustup);
    }
    if host::find_program("rustup").is_none() {
        bail!("the Rust in use has no {TARGET}, and there is no rustup to add it");
    }
    if install == Install::Nothing {
        bail!("not installed; `rustup target add {TARGET}` would add it");
    }
    println!(
        "adding {TARGET} by rustup, for at most {} s",
        RUSTUP_LIMIT.as_secs()
    );
    host::run(
        Command::new("rustup").args(["target", "add", TARGET]),
        RUSTUP_LIMIT,
    )?;
    if !is_installed()? {
        bail!("rustup added {TARGET} to another toolchain than the one in use");
    }
    Ok(Toolchain::Rustup)
}

/// Whether the Rust in use has the target's standard library.
fn is_installed() -> Result<bool> {
    let rustc = env::var_os("RUSTC").unwrap_or("rustc".into());
    let query =
        host::output(Command::new(rustc).args(["--print", "target-libdir", "--target", TARGET]));
    // A compiler too old to know the target has no library for it either.
    let Ok(folder) = query else { return Ok(false) };
    has_std(Path::new(&folder))
}

fn has_std(folder: &Path) -> Result<bool> {
    if !folder.is_dir() {
        return Ok(false);
    }
    for entry in folder.read_dir()? {
        if entry?.file_name().to_string_lossy().starts_with("libstd-") {
            return Ok(true);
        }
    }
    Ok(false)
}
