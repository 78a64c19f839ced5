//! What `--json` prints: documented here, stable, and never a struct of the inside.
//!
//! Times are RFC 3339 in UTC, durations whole milliseconds (`…_ms`), ids text. Fields without a value
//! are null. Fields may be added; none changes its meaning.

mod job;
mod pod;
mod run;

pub use job::{
    DefinitionView, Firing, GapView, HoldView, JobDetail, JobLine, RefusalView, SuccessesView,
};
pub use pod::{PodList, PodView};
pub use run::{AttemptView, CheckpointView, LogLineView, RunDetail, RunLine};

use serde_json::Value;
use wasmcron_core::time::Timestamp;

fn time(at: Timestamp) -> String {
    at.to_string()
}

/// JSON text as JSON, or as text if it is none.
fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}
