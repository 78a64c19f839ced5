//! Job files that several tests use.

/// A job that does nothing, on this schedule (a line of TOML).
pub fn hello(schedule: &str) -> String {
    format!("plugin = \"hello\"\n{schedule}\n")
}

/// A job of numbered steps with an effect each, by hand only unless `more` says otherwise.
pub fn stepper(target: &str, steps: u32, step_ms: u32, more: &str) -> String {
    format!(
        "plugin = \"stepper\"\nresumable = true\n{more}\n[params]\ntarget = \"{target}\"\nsteps = {steps}\n\
         step_ms = {step_ms}\n[allow]\nhttp = [\"{target}\"]\n"
    )
}

/// The steps that reached the target, as (attempt, step), in order.
pub fn steps(target: &wasmcron_tests::servers::target::Target) -> Vec<(u64, u64)> {
    let number = |effect: &serde_json::Value, key: &str| effect[key].as_u64().expect("a number");
    target
        .effects()
        .iter()
        .map(|effect| (number(effect, "attempt"), number(effect, "step")))
        .collect()
}
