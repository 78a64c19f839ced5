//! Guests on Debian without rustup's download server: Debian's own second Rust, which builds the
//! standard library from source, and a `wasi-libc` that is new enough.
//!
//! Compiler and library source must match, so rustup's compiler cannot build Debian's source; only
//! its linkers are borrowed.

use std::env;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::Install;
use super::toolchain::TARGET;
use crate::host;

const PACKAGES: [&str; 3] = ["rustc-web", "cargo-web", "rust-web-src"];
/// `wasi-libc` of earlier suites lacks the target, or what `std::thread` needs to link.
const WASI_SUITE: &str = "forky";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
const MAIN_MIRROR: &str = "http://deb.debian.org/debian/";
/// A hundred megabytes of packages by a slow line.
const APT_LIMIT: Duration = Duration::from_secs(900);

/// Debian's Rust and what it links with.
pub(crate) struct DebianRust {
    wasi_libs: PathBuf,
    linkers: Vec<PathBuf>,
}

impl fmt::Display for DebianRust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Debian's /usr/bin/rustc with {}",
            self.wasi_libs.display()
        )
    }
}

impl DebianRust {
    /// Debian's cargo, set up for the guest target.
    pub(crate) fn cargo(&self) -> Command {
        let mut cargo = Command::new("/usr/bin/cargo");
        // This process may itself run under rustup's cargo, whose settings would lead the other
        // compiler astray.
        for (name, _) in env::vars_os() {
            let name = name.to_string_lossy().into_owned();
            let led = ["CARGO", "RUST", "LD_LIBRARY_PATH"];
            let kept = [
                "CARGO_HOME",
                "CARGO_NET_",
                "CARGO_HTTP_",
                "CARGO_REGISTRIES_",
            ];
            if led.iter().any(|prefix| name.starts_with(prefix))
                && !kept.iter().any(|prefix| name.starts_with(prefix))
            {
                cargo.env_remove(name);
            }
        }
        let mut path = vec![PathBuf::from("/usr/bin")];
        path.extend(self.linkers.iter().cloned());
        path.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
        if let Ok(path) = env::join_paths(path) {
            cargo.env("PATH", path);
        }
        cargo.env("RUSTC", "/usr/bin/rustc");
        cargo.env("RUSTC_BOOTSTRAP", "1");
        cargo.env(
            "RUSTFLAGS",
            format!("-L native={}", self.wasi_libs.display()),
        );
        cargo
    }
}

/// Finds Debian's Rust, installing it if this is Debian and root asks.
pub(crate) fn ensure(install: Install) -> Result<DebianRust> {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    if !release.lines().any(|line| line == "ID=debian") {
        bail!("this is not Debian");
    }
    let linkers = linkers()?;
    if !is_installed() {
        may_install(install, &format!("apt-get install {}", PACKAGES.join(" ")))?;
        println!("installing Debian's second Rust, about 150 MB");
        host::run(Command::new("apt-get").args(["-q", "update"]), APT_LIMIT)?;
        let mut apt = Command::new("apt-get");
        apt.env("DEBIAN_FRONTEND", "noninteractive");
        apt.args(["-q", "-y", "--no-install-recommends", "install"])
            .args(PACKAGES);
        host::run(&mut apt, APT_LIMIT)?;
        if !is_installed() {
            bail!(
                "{} are installed but /usr/bin/rustc has no library source",
                PACKAGES.join(" ")
            );
        }
    }
    let wasi = host::target("wasi-libc");
    let wasi_libs = wasi.join("usr/lib").join(TARGET);
    if !wasi_libs.join("libc.a").is_file() {
        may_install(
            install,
            "apt-get download wasi-libc, unpacked below target/",
        )?;
        fetch_wasi_libc(&wasi).with_context(|| format!("wasi-libc of Debian's {WASI_SUITE}"))?;
    }
    Ok(DebianRust { wasi_libs, linkers })
}

fn may_install(install: Install, what: &str) -> Result<()> {
    if install == Install::Nothing {
        bail!("not installed; as root `{what}` would");
    }
    if !host::is_root() {
        bail!("`{what}` needs root");
    }
    Ok(())
}

/// Whether Debian's compiler is there with the source of its library.
fn is_installed() -> bool {
    let rustc = Command::new("/usr/bin/rustc")
        .args(["--print", "sysroot"])
        .env_remove("LD_LIBRARY_PATH")
        .output();
    let Ok(output) = rustc else { return false };
    let sysroot = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    Path::new("/usr/bin/cargo").is_file()
        && sysroot
            .join("lib/rustlib/src/rust/library/std/Cargo.toml")
            .is_file()
}

/// The folders of `rust-lld`, `wasm-component-ld` and `wasm-ld`, which come with rustup's compiler.
fn linkers() -> Result<Vec<PathBuf>> {
    let rustc = host::find_program("rustup")
        .and_then(|_| host::output(Command::new("rustup").args(["which", "rustc"])).ok())
        .map_or_else(|| PathBuf::from("rustc"), PathBuf::from);
    let ask = |what: &str| host::output(Command::new(&rustc).args(["--print", what]));
    let bin = PathBuf::from(ask("sysroot")?)
        .join("lib/rustlib")
        .join(ask("host-tuple")?)
        .join("bin");
    let folders = vec![bin.join("gcc-ld"), bin];
    for program in ["wasm-component-ld", "rust-lld", "wasm-ld"] {
        let there = folders.iter().any(|folder| folder.join(program).is_file());
        if !there && host::find_program(program).is_none() {
            bail!(
                "no linker `{program}`: it comes with a Rust by rustup; `cargo install \
                 wasm-component-ld` and Debian's package `lld` have them as well"
            );
        }
    }
    Ok(folders)
}

/// Downloads `wasi-libc` of a later suite from the configured mirror and unpacks it below
/// `target/`. The system's own sources and package lists stay as they are.
fn fetch_wasi_libc(into: &Path) -> Result<()> {
    let apt = host::target("apt");
    for folder in ["lists/partial", "archives/partial"] {
        fs::create_dir_all(apt.join(folder))?;
    }
    let sources = apt.join("sources.list");
    fs::write(
        &sources,
        format!("deb [signed-by={KEYRING}] {} {WASI_SUITE} main\n", mirror()),
    )?;
    let apt_get = |verb: &[&str]| {
        let mut command = Command::new("apt-get");
        command.current_dir(&apt).arg("-q");
        for (key, value) in [
            ("Dir::Etc::SourceList", sources.as_path()),
            ("Dir::Etc::SourceParts", Path::new("/dev/null")),
            ("Dir::State::Lists", &apt.join("lists")),
            ("Dir::Cache", &apt),
            // apt's own user cannot write below a home folder.
            ("APT::Sandbox::User", Path::new("root")),
        ] {
            command.arg("-o").arg(format!("{key}={}", value.display()));
        }
        command.args(verb);
        command
    };
    host::run(&mut apt_get(&["update"]), APT_LIMIT)?;
    host::run(&mut apt_get(&["download", "wasi-libc"]), APT_LIMIT)?;
    let package = newest_package(&apt)?;
    let mut unpack = Command::new("dpkg");
    unpack.arg("-x").arg(&package).arg(into);
    host::run(&mut unpack, APT_LIMIT)
}

fn newest_package(folder: &Path) -> Result<PathBuf> {
    let mut newest = None;
    for entry in folder.read_dir()? {
        let path = entry?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if name.starts_with("wasi-libc") && name.ends_with(".deb") {
            let modified = path.metadata()?.modified()?;
            newest = newest.max(Some((modified, path)));
        }
    }
    newest
        .map(|(_, path)| path)
        .context("apt-get left no package")
}

/// The mirror that the system gets Debian itself from.
fn mirror() -> String {
    let format = [
        "indextargets",
        "--format",
        "$(REPO_URI)|$(LABEL)",
        "Identifier: Packages",
    ];
    let list = host::output(Command::new("apt-get").args(format)).unwrap_or_default();
    let main = list.lines().find_map(|line| line.strip_suffix("|Debian"));
    main.unwrap_or(MAIN_MIRROR).to_owned()
}
