//! What every backend keeps of a run for as long as it keeps the run.

use serde::{Deserialize, Serialize};
use wasmcron_core::ids::{Digest, RunId, RunKey};
use wasmcron_core::task::{Reason, Task};
use wasmcron_core::time::Timestamp;

/// What never changes about a run. Its JSON stands in the registers and in the run's record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Base {
    /// The run.
    pub run: RunId,
    /// The time it stands for.
    pub nominal: Timestamp,
    /// Why it exists; why its next attempt happens stands elsewhere.
    pub reason: Reason,
    /// Parameters as JSON text.
    pub params: String,
    /// The only plugin version that may run it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// The ended run that it was made of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<RunId>,
    /// Trace context of the firing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
}

impl Base {
    /// What a task says of its run.
    pub(crate) fn of(task: &Task) -> Base {
        Base {
            run: task.run.clone(),
            nominal: task.nominal,
            reason: task.reason,
            params: task.params.clone(),
            digest: task.digest.clone(),
            of: task.of.clone(),
            trace: task.trace.clone(),
        }
    }

    /// What is known of a run whose record lost its task.
    pub(crate) fn unknown(run: &RunId) -> Base {
        let nominal = match run.key() {
            RunKey::Nominal(at) => at,
            RunKey::Manual(id) => {
                Timestamp::from_millis(i64::try_from(id.timestamp_ms()).unwrap_or(0))
            }
        };
        Base {
            run: run.clone(),
            nominal,
            reason: Reason::Scheduled,
            params: "{}".to_owned(),
            digest: None,
            of: None,
            trace: None,
        }
    }
}
