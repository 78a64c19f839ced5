//! JSON schemas of both kinds of files, for editors and for the check of keys.

use std::sync::LazyLock;

use serde_json::Value;

use super::job_file::JobToml;
use super::known::Shape;
use super::settings::Settings;

/// The schema of `wasmcron.toml`.
pub fn settings() -> Value {
    schemars::schema_for!(Settings).to_value()
}

/// The schema of a job file.
pub fn job() -> Value {
    schemars::schema_for!(JobToml).to_value()
}

/// A schema as the text that `config/schema/` holds.
pub fn text(schema: &Value) -> String {
    serde_json::to_string_pretty(schema).unwrap_or_default()
}

/// The keys of `wasmcron.toml`.
pub fn settings_shape() -> &'static Shape {
    static SHAPE: LazyLock<Shape> = LazyLock::new(|| Shape::of(&settings()));
    &SHAPE
}

/// The keys of a job file.
pub fn job_shape() -> &'static Shape {
    static SHAPE: LazyLock<Shape> = LazyLock::new(|| Shape::of(&job()));
    &SHAPE
}

#[cfg(test)]
#[path = "schema_tests.rs"]
mod tests;
