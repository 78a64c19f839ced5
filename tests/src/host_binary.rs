//! The product's own program: built before, or built now.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Names the program that was built before.
pub const VARIABLE: &str = "WASMCRON_BIN";

/// The `wasmcron` program.
///
/// # Panics
/// When there is none and cargo cannot build it.
pub fn path() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| match std::env::var_os(VARIABLE) {
        Some(program) => {
            let program = PathBuf::from(program);
            assert!(
                program.is_file(),
                "{VARIABLE}: there is no file {}",
                program.display()
            );
            program
        }
        None => build(),
    })
}

/// The product's program as a command, without variables that are meant for tests or for whoever runs
/// them: it takes some for settings, and with a backtrace each error costs more.
pub fn command() -> Command {
    let mut command = Command::new(path());
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("WASMCRON_") || text == "RUST_BACKTRACE" {
            command.env_remove(&name);
        }
    }
    command
}

fn build() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = tests.parent().unwrap_or(tests);
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .current_dir(root)
        .args(["build", "-p", "wasmcron"])
        .status();
    assert!(
        built.is_ok_and(|status| status.success()),
        "cargo cannot build wasmcron"
    );
    // This test is `<target>/debug/deps/…`, the program `<target>/debug/wasmcron`.
    let test = std::env::current_exe().unwrap_or_default();
    let folder = test.ancestors().nth(2).unwrap_or(root);
    folder.join("wasmcron")
}
