//! `cargo xtask test`: format, lints, licences, and every test.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::setup::Install;
use crate::setup::toolchain::{TARGET, Toolchain};
use crate::setup::{redis, toolchain};
use crate::{build, demo, guests, host};

/// Time for one step on a slow machine.
const LIMIT: Duration = Duration::from_secs(3600);

/// The seeds of a test run: always the same, so that what fails once fails again; with those that found
/// something once.
const SIM_SEEDS: &str = "0..300,560,573,823,1171,2440,3866,7796,8202";
/// The demo's seed in a test run: a failure can be repeated.
const DEMO_SEED: u64 = 7;

/// Options of `test`.
#[derive(clap::Args)]
pub struct Args {
    /// Only these steps; all if none is named.
    #[arg(value_enum)]
    steps: Vec<Step>,
    /// A Redis or Valkey server to test with.
    #[arg(long, value_name = "PATH")]
    redis_server: Option<PathBuf>,
}

/// The parts of a test run, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Step {
    /// Format.
    Fmt,
    /// Lints of host, tests and guests.
    Clippy,
    /// Licences, where cargo-deny is installed.
    Deny,
    /// Tests of the crates, the SDK and the plugins.
    Unit,
    /// The store's promises over every backend.
    Conformance,
    /// Simulated fleets: fixed seeds, and stores broken on purpose.
    Sim,
    /// Hostile guests, and the plugins in the real sandbox.
    Guests,
    /// Real processes, a real Redis, real signals; a minute of chaos and one of load.
    E2e,
    /// The demo with a fixed seed, on each store.
    Demo,
}

/// All steps.
const ALL: [Step; 9] = [
    Step::Fmt,
    Step::Clippy,
    Step::Deny,
    Step::Unit,
    Step::Conformance,
    Step::Sim,
    Step::Guests,
    Step::E2e,
    Step::Demo,
];

/// Runs the steps; the first that fails ends the run.
pub fn run(args: &Args) -> Result<()> {
    let server = redis::choose(args.redis_server.as_deref())?;
    let toolchain = toolchain::ensure(Install::Missing)?;
    let asked = |step: &Step| args.steps.is_empty() || args.steps.contains(step);
    let mut took = Vec::new();
    for step in ALL.into_iter().filter(asked) {
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

fn run_step(step: Step, toolchain: &Toolchain, server: &Path) -> Result<()> {
    match step {
        Step::Fmt => host::run(cargo().args(["fmt", "--all", "--check"]), LIMIT),
        Step::Clippy => clippy(toolchain),
        Step::Deny => deny(),
        Step::Unit => unit(toolchain, server),
        Step::Conformance => suites(&["conformance"], toolchain, server),
        Step::Sim => sim(),
        Step::Guests => suites(&["guests", "plugins"], toolchain, server),
        Step::E2e => {
            build::programs()?;
            suites(&["e2e", "chaos"], toolchain, server)
        }
        Step::Demo => [demo::Store::Sqlite, demo::Store::Redis]
            .into_iter()
            .try_for_each(|store| {
                println!("\n-- on {store:?}");
                demo::run(&demo::Args::with_seed(DEMO_SEED, store, server))
            }),
    }
}

fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo.current_dir(host::root());
    cargo
}

fn clippy(toolchain: &Toolchain) -> Result<()> {
    let deny = ["--", "-D", "warnings"];
    let mut native = cargo();
    native
        .arg("clippy")
        .args(build::selection()?)
        .arg("--all-targets");
    host::run(native.args(deny), LIMIT)?;
    host::run(
        cargo()
            .args(["clippy", "-p", "xtask", "--all-targets"])
            .args(deny),
        LIMIT,
    )?;
    // Guests have code that exists for their target only. Debian's Rust comes without clippy.
    if matches!(toolchain, Toolchain::Rustup) {
        let mut foreign = cargo();
        foreign.args([
            "clippy",
            "--target",
            TARGET,
            "--profile",
            "guest",
            "--target-dir",
        ]);
        foreign.arg(host::target("guests"));
        foreign.args(guests::names()?.all.iter().flat_map(|guest| ["-p", guest]));
        host::run(foreign.args(deny), LIMIT)?;
    }
    Ok(())
}

fn deny() -> Result<()> {
    if host::find_program("cargo-deny").is_none() {
        println!("cargo-deny is not installed; licences are not checked");
        return Ok(());
    }
    let mut deny = cargo();
    host::run(
        deny.args(["deny", "--offline", "check", "licenses", "bans", "sources"]),
        LIMIT,
    )
}

fn unit(toolchain: &Toolchain, server: &Path) -> Result<()> {
    guests::build(toolchain, &[])?;
    let mut tests = cargo();
    tests
        .arg("test")
        .args(build::selection()?)
        .args(["--lib", "--bins"]);
    tests.args(
        build::tests_of_crates()?
            .iter()
            .flat_map(|name| ["--test", name]),
    );
    tested(&mut tests, server)?;
    let mut docs = cargo();
    docs.arg("test").args(build::selection()?).arg("--doc");
    tested(&mut docs, server)
}

/// The fixed seeds, with the program that was built for the tests.
fn sim() -> Result<()> {
    build::programs()?;
    let sim = || Command::new(build::folder().join("sim"));
    host::run(sim().args(["--seeds", SIM_SEEDS]), LIMIT)?;
    host::run(sim().arg("--mutants"), LIMIT)
}

/// Test binaries of the package `wasmcron-tests`.
fn suites(names: &[&str], toolchain: &Toolchain, server: &Path) -> Result<()> {
    guests::build(toolchain, &[])?;
    let mut tests = cargo();
    tests
        .arg("test")
        .args(build::selection()?)
        .args(names.iter().flat_map(|name| ["--test", name]));
    tested(&mut tests, server)
}

/// Runs tests that find guests, host and Redis by their variables.
fn tested(command: &mut Command, server: &Path) -> Result<()> {
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
