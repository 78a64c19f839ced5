//! `cargo xtask test`: format, lints, licences, and every test.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::setup::Install;
use crate::setup::toolchain::{TARGET, Toolchain};
use crate::setup::{redis, toolchain};
use crate::{build, guests, host};

/// Time for one step on a slow machine.
const LIMIT: Duration = Duration::from_secs(3600);

/// The plugins of this repository.
const PLUGINS: [&str; 3] = ["hello", "daily-report", "merchant-full-sync"];
/// Guests that only tests use.
const TEST_GUESTS: [&str; 2] = ["hostile", "stepper"];

/// Options of `test`.
#[derive(clap::Args)]
pub struct Args {
    /// Only these steps; all if none is named.
    #[arg(value_enum)]
    steps: Vec<Step>,
}

/// The parts of a test run, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Step {
    /// Format.
    Fmt,
    /// Lints of host, tests and guests.
    Clippy,
    /// Licences and advisories, where cargo-deny is installed.
    Deny,
    /// Tests beside the code of host, SDK and plugins.
    Unit,
    /// The store's promises over every backend.
    Conformance,
    /// Hostile guests.
    Guests,
    /// Real processes, a real Redis, real signals.
    E2e,
    /// The demo with a fixed seed.
    Demo,
}

/// All steps.
const ALL: [Step; 8] = [
    Step::Fmt,
    Step::Clippy,
    Step::Deny,
    Step::Unit,
    Step::Conformance,
    Step::Guests,
    Step::E2e,
    Step::Demo,
];

/// Runs the steps; the first that fails ends the run.
pub fn run(args: &Args) -> Result<()> {
    let steps = if args.steps.is_empty() {
        ALL.to_vec()
    } else {
        args.steps.clone()
    };
    let server = redis::ensure(Install::Missing)?;
    let toolchain = toolchain::ensure(Install::Missing)?;
    let mut took = Vec::new();
    for step in ALL.into_iter().filter(|step| steps.contains(step)) {
        let began = Instant::now();
        println!("\n== {step:?}");
        run_step(step, &toolchain, &server)?;
        took.push((step, began.elapsed()));
    }
    println!();
    for (step, time) in took {
        println!("{:12} {:6.1} s", format!("{step:?}"), time.as_secs_f64());
    }
    Ok(())
}

fn run_step(step: Step, toolchain: &Toolchain, server: &std::path::Path) -> Result<()> {
    match step {
        Step::Fmt => host::run(cargo().args(["fmt", "--all", "--check"]), LIMIT),
        Step::Clippy => clippy(toolchain),
        Step::Deny => deny(),
        Step::Unit => {
            guests::build(toolchain, &[])?;
            let mut cargo = cargo();
            cargo.args([
                "test",
                "--workspace",
                "--exclude",
                "wasmcron-tests",
                "--exclude",
                "hostile",
            ]);
            tested(&mut cargo, server)?;
            let mut servers = self::cargo();
            servers.args(["test", "-p", "wasmcron-tests", "--lib"]);
            tested(&mut servers, server)
        }
        Step::Conformance => suite("conformance", toolchain, server),
        Step::Guests => suite("guests", toolchain, server),
        Step::E2e => {
            build::programs()?;
            suite("e2e", toolchain, server)
        }
        Step::Demo => {
            let this = std::env::current_exe()?;
            host::run(Command::new(this).args(["demo", "--seed", "7"]), LIMIT)
        }
    }
}

fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo.current_dir(host::root());
    cargo
}

fn clippy(toolchain: &Toolchain) -> Result<()> {
    let deny = ["--", "-D", "warnings"];
    host::run(
        cargo()
            .args([
                "clippy",
                "--workspace",
                "--all-targets",
                "--exclude",
                "hostile",
            ])
            .args(deny),
        LIMIT,
    )?;
    // Guests have code that exists for their target only. Debian's Rust comes without clippy.
    if matches!(toolchain, Toolchain::Rustup) {
        let mut guests = cargo();
        guests.args([
            "clippy",
            "--target",
            TARGET,
            "--profile",
            "guest",
            "--target-dir",
        ]);
        guests.arg(host::target("guests"));
        guests.args([
            "-p",
            "hello",
            "-p",
            "daily-report",
            "-p",
            "merchant-full-sync",
            "-p",
            "hostile",
        ]);
        host::run(guests.args(deny), LIMIT)?;
    }
    Ok(())
}

fn deny() -> Result<()> {
    if host::find_program("cargo-deny").is_none() {
        println!("cargo-deny is not installed; licences and advisories are not checked");
        return Ok(());
    }
    host::run(
        cargo().args(["deny", "--offline", "check", "licenses", "bans", "sources"]),
        LIMIT,
    )
}

/// One test binary of the package `wasmcron-tests`.
fn suite(name: &str, toolchain: &Toolchain, server: &std::path::Path) -> Result<()> {
    guests::build(toolchain, &[])?;
    tested(
        cargo().args(["test", "-p", "wasmcron-tests", "--test", name]),
        server,
    )
}

/// Runs tests that find guests, host and Redis by their variables.
fn tested(command: &mut Command, server: &std::path::Path) -> Result<()> {
    let guests = std::env::join_paths([host::target("test-guests"), host::target("plugins")])?;
    command
        .env("WASMCRON_GUESTS", guests)
        .env("WASMCRON_REDIS_SERVER", server);
    let program = build::folder().join("wasmcron");
    if program.is_file() {
        command.env("WASMCRON_BIN", program);
    }
    host::run(command, LIMIT)
}
