//! Where the guests that tests run are: built before, or built now.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use anyhow::{Context as _, Result, bail};

/// The component of a guest package (`hostile`, `hello`, …).
///
/// The folder `WASMCRON_GUESTS` is asked first (several, as in `PATH`); a guest that is in none of them is
/// built with the `wasm32-wasip2` target. There is no third way: a test that has no guest fails.
pub fn component(package: &str) -> Result<PathBuf> {
    let file = format!("{package}.wasm");
    let as_cargo_names_it = file.replace('-', "_");
    if let Some(folders) = std::env::var_os("WASMCRON_GUESTS") {
        for folder in std::env::split_paths(&folders) {
            for name in [&file, &as_cargo_names_it] {
                let path = folder.join(name);
                if path.is_file() {
                    return Ok(path);
                }
            }
        }
    }
    build(package)?;
    let path = target().join("wasm32-wasip2/guest").join(as_cargo_names_it);
    if !path.is_file() {
        bail!("building `{package}` left no `{}`", path.display());
    }
    Ok(path)
}

/// The bytes of a guest's component.
pub fn bytes(package: &str) -> Result<Vec<u8>> {
    let path = component(package)?;
    std::fs::read(&path).with_context(|| format!("cannot read `{}`", path.display()))
}

/// The same component with other bytes: a custom section that says `tag` follows it. It behaves the
/// same and has another digest, as a new version of a plugin has.
#[must_use]
pub fn retagged(component: &[u8], tag: &str) -> Vec<u8> {
    let name = b"test-tag";
    let mut section = leb(name.len());
    section.extend_from_slice(name);
    section.extend_from_slice(tag.as_bytes());
    let mut bytes = component.to_vec();
    bytes.push(0);
    bytes.extend(leb(section.len()));
    bytes.extend(section);
    bytes
}

fn leb(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = u8::try_from(number & 0x7f).unwrap_or(0);
        number >>= 7;
        if number == 0 {
            bytes.push(low);
            return bytes;
        }
        bytes.push(low | 0x80);
    }
}

/// Guests have a target folder of their own, so that building one inside a test does not wait for the
/// cargo that runs the test.
fn target() -> PathBuf {
    root().join("target/guests")
}

fn root() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().unwrap_or(tests).to_owned()
}

fn build(package: &str) -> Result<()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .current_dir(root())
        .args(["build", "--package", package, "--target", "wasm32-wasip2"])
        .args(["--profile", "guest", "--target-dir"])
        .arg(target())
        .output()
        .context("cannot run cargo")?;
    if !output.status.success() {
        bail!(
            "cannot build the guest `{package}`; `cargo xtask setup` installs what is missing, and \
             WASMCRON_GUESTS names a folder with guests that were built elsewhere:\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}
