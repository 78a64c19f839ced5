//! Job files and targets that several tests use.

use chrono::Timelike as _;
use wasmcron_core::time::Timestamp;
use wasmcron_tests::servers::{self, target::Target};

/// A job that does nothing, on this schedule (a line of TOML).
pub fn hello(schedule: &str) -> String {
    format!("plugin = \"hello\"\n{schedule}\n")
}

/// A schedule that fires at this second of every day.
pub fn daily_at(at: Timestamp) -> String {
    let at = at.to_datetime();
    format!(
        "cron = \"{} {} {} * * *\"",
        at.second(),
        at.minute(),
        at.hour()
    )
}

/// A job of numbered steps with an effect each, by hand only unless `more` says otherwise.
pub fn stepper(target: &str, steps: u32, step_ms: u32, more: &str) -> String {
    format!(
        "plugin = \"stepper\"\nresumable = true\n{more}\n[params]\ntarget = \"{target}\"\nsteps = {steps}\n\
         step_ms = {step_ms}\n[allow]\nhttp = [\"{target}\"]\n"
    )
}

/// The steps that reached the target, as (attempt, step), in order.
pub fn steps(target: &Target) -> Vec<(u64, u64)> {
    let number = |effect: &serde_json::Value, key: &str| effect[key].as_u64().expect("a number");
    target
        .effects()
        .iter()
        .map(|effect| (number(effect, "attempt"), number(effect, "step")))
        .collect()
}

/// A target that listens.
pub async fn target() -> (Target, servers::Running) {
    let target = Target::default();
    let any = "127.0.0.1:0".parse().expect("an address");
    let server = servers::start(any, target.router())
        .await
        .expect("a server");
    (target, server)
}
