//! `cargo xtask build-guests`: plugins and test guests as components, each as `NAME.wasm`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::host;
use crate::setup::Install;
use crate::setup::toolchain::{self, Toolchain};

/// Time to build everything, the standard library among it, on a slow machine.
const LIMIT: Duration = Duration::from_secs(1800);

/// Options of `build-guests`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Build only these packages; all if none is named.
    packages: Vec<String>,
}

/// A guest: its package, and where its component goes.
struct Guest {
    package: String,
    /// The file's name as cargo gives it.
    built: String,
    component: PathBuf,
}

/// Builds and says what was built.
pub(crate) fn run(args: &Args) -> Result<()> {
    let toolchain = toolchain::ensure(Install::Missing)?;
    println!("building with {toolchain}");
    for component in build(&toolchain, &args.packages)? {
        let size = component.metadata()?.len() / 1024;
        println!("{} ({size} KiB)", component.display());
    }
    Ok(())
}

/// Builds guests, all if none is named, and returns their components. Plugins go to
/// `target/plugins`, guests that only tests use to `target/test-guests`: a pod that is pointed at
/// the plugins shall not load a hostile one.
pub(crate) fn build(toolchain: &Toolchain, only: &[String]) -> Result<Vec<PathBuf>> {
    let mut guests = list()?;
    for name in only {
        if !guests.iter().any(|guest| guest.package == *name) {
            let known: Vec<_> = guests.iter().map(|guest| guest.package.as_str()).collect();
            bail!("no guest `{name}`; there are {}", known.join(", "));
        }
    }
    if !only.is_empty() {
        guests.retain(|guest| only.contains(&guest.package));
    }
    let mut cargo = toolchain.cargo_build();
    for guest in &guests {
        cargo.args(["-p", &guest.package]);
    }
    host::run(&mut cargo, LIMIT)?;
    let built = toolchain.out_dir();
    for guest in &guests {
        place(&built.join(&guest.built), &guest.component)?;
    }
    Ok(guests.into_iter().map(|guest| guest.component).collect())
}

/// Names of guest packages.
pub struct Names {
    /// All of them.
    pub all: Vec<String>,
    /// Those that only tests use; they have nothing to test natively.
    pub only_tests: Vec<String>,
}

/// The names of all guests.
pub fn names() -> Result<Names> {
    let guests = list()?;
    let for_tests = |guest: &&Guest| guest.component.starts_with(host::target("test-guests"));
    let only_tests = guests
        .iter()
        .filter(for_tests)
        .map(|guest| guest.package.clone())
        .collect();
    Ok(Names {
        only_tests,
        all: guests.into_iter().map(|guest| guest.package).collect(),
    })
}

/// Every workspace package below `plugins/` or `tests/guests/` that is a `cdylib`.
fn list() -> Result<Vec<Guest>> {
    let root = host::root();
    let homes = [
        ("plugins", host::target("plugins")),
        ("tests/guests", host::target("test-guests")),
    ];
    let mut guests = Vec::new();
    for package in host::packages()? {
        let home = homes
            .iter()
            .find(|(folder, _)| package.manifest_path.starts_with(root.join(folder)));
        let library = package
            .targets
            .iter()
            .find(|target| target.crate_types.iter().any(|kind| kind == "cdylib"));
        if let (Some((_, home)), Some(library)) = (home, library) {
            guests.push(Guest {
                built: format!("{}.wasm", library.name.replace('-', "_")),
                component: home.join(format!("{}.wasm", package.name)),
                package: package.name,
            });
        }
    }
    Ok(guests)
}

/// Puts a component in its place in one step, and not at all if it is there already: a pod may be
/// watching the folder.
fn place(built: &Path, component: &Path) -> Result<()> {
    let bytes = fs::read(built).with_context(|| format!("cargo left no {}", built.display()))?;
    if fs::read(component).is_ok_and(|before| before == bytes) {
        return Ok(());
    }
    let folder = component.parent().context("a component lies in a folder")?;
    fs::create_dir_all(folder)?;
    // Watchers skip names that begin with a dot.
    let name = component.file_name().unwrap_or_default().to_string_lossy();
    let beside = folder.join(format!(".{name}.new"));
    fs::write(&beside, bytes)?;
    fs::rename(beside, component)?;
    Ok(())
}
