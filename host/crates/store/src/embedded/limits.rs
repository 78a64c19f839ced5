//! What is refused before a transaction begins.

use serde::Serialize;
use wasmcron_core::task::{Reason, TASK_MAX_BYTES, Task};

use crate::error::{Result, StoreError};

/// How much a byte of text may grow in JSON: a control character becomes six.
const ESCAPED: usize = 6;
/// More than everything of a task takes whose length does not grow with it.
const FRAME: usize = 1_024;

/// Refuses more than so many.
pub(super) fn within(what: &'static str, found: usize, limit: usize) -> Result<()> {
    if found <= limit {
        Ok(())
    } else {
        Err(StoreError::TooLarge { what, found, limit })
    }
}

/// What of a task the other backend counts as its size.
#[derive(Serialize)]
struct Counted<'a> {
    run: &'a str,
    nominal: i64,
    reason: Reason,
    params: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    of: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<&'a str>,
}

/// Refuses a task over the limit. A small one is not even written out.
pub(super) fn task_within(task: &Task) -> Result<()> {
    let avoid: usize = task.avoid.iter().map(|pod| pod.as_str().len() + 1).sum();
    let texts = task.params.len()
        + task.trace.as_ref().map_or(0, String::len)
        + task.of.as_ref().map_or(0, |of| of.as_str().len());
    if texts * ESCAPED + avoid + FRAME <= TASK_MAX_BYTES {
        return Ok(());
    }
    let counted = Counted {
        run: task.run.as_str(),
        nominal: task.nominal.as_millis(),
        reason: task.reason,
        params: &task.params,
        digest: task.digest.as_ref().map(|digest| digest.as_str()),
        of: task.of.as_ref().map(|of| of.as_str()),
        trace: task.trace.as_deref(),
    };
    let json = serde_json::to_string(&counted).map_err(|error| StoreError::Corrupt {
        key: "the task".into(),
        what: "a task",
        message: error.to_string(),
    })?;
    let reason = serde_json::to_string(&task.reason).unwrap_or_default();
    let numbers = format!(
        "{}|{}|{}|{}|",
        task.nominal.as_millis(),
        task.attempt,
        task.failures,
        task.idle_yields
    );
    // The reason without its quotes, a bar behind it and one behind the pods, of which the first has
    // no separator before it.
    let found = numbers.len() + reason.len() - 2 + 2 + avoid.saturating_sub(1) + json.len();
    within("the task", found, TASK_MAX_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wasmcron_core::time::Timestamp;

    fn task(params: usize) -> Task {
        let run = "sync@2026-11-29T01:00:00Z".parse().expect("a run");
        let mut task = Task::first(run, Timestamp::MAX, Reason::CatchUp, "x".repeat(params));
        task.avoid = vec!["a".parse().expect("a pod"), "bb".parse().expect("a pod")];
        task
    }

    #[test]
    fn the_limit_is_exact() {
        let refused = |params| match task_within(&task(params)) {
            Err(StoreError::TooLarge { found, limit, .. }) => Some(found - limit),
            _ => None,
        };
        let over = refused(TASK_MAX_BYTES).expect("too large");
        assert_eq!(refused(TASK_MAX_BYTES - over), None);
        assert_eq!(refused(TASK_MAX_BYTES - over + 1), Some(1));
    }

    #[test]
    fn a_task_is_as_large_as_in_redis() {
        let task = task(TASK_MAX_BYTES);
        let sizes =
            [crate::redis::task_size(&task), task_within(&task)].map(|refused| match refused {
                Err(StoreError::TooLarge { found, .. }) => found,
                other => panic!("{other:?}"),
            });
        assert_eq!(sizes[0], sizes[1]);
    }
}
