//! The texts that the scripts and this crate exchange. `lua/parts/entries.lua` reads and writes the
//! same ones; fields are parted by bars, and what may hold a bar is JSON with its bars escaped.

use redis::Value;
use serde::{Deserialize, Serialize};
use wasmcron_core::ids::PodAddress;
use wasmcron_core::run::Checkpoint;
use wasmcron_core::task::{TASK_MAX_BYTES, Task};
use wasmcron_core::time::Timestamp;
use wasmcron_core::view::{DelayedEntry, LockHolder, RunningEntry, ScheduledEntry};

use super::errors::broken;
use super::keys::Keys;
use crate::base::Base;
use crate::error::{Result, StoreError};
use crate::queue::Taken;

/// Why a text does not decode.
pub(super) type Decoded<T> = std::result::Result<T, String>;

/// A value as JSON without bars. A bar can only stand inside a JSON string, where it has an escape.
pub(super) fn bar_free<T: Serialize + ?Sized>(value: &T) -> String {
    serde_json::to_string(value)
        .unwrap_or_default()
        .replace('|', "\\u007c")
}

/// A text that was written with [`bar_free`]; one that was not is taken as it is.
pub(super) fn text_of(json: &str) -> String {
    serde_json::from_str(json).unwrap_or_else(|_| json.to_owned())
}

fn word<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value)
        .unwrap_or_default()
        .trim_matches('"')
        .to_owned()
}

/// A word of an enum, such as a reason or an end state.
pub(super) fn from_word<T: for<'de> Deserialize<'de>>(word: &str) -> Decoded<T> {
    serde_json::from_value(serde_json::Value::from(word)).map_err(|error| error.to_string())
}

/// Writes a task; refuses one over the limit.
pub(super) fn task_text(task: &Task) -> Result<String> {
    let json = serde_json::to_string(&Base::of(task))
        .map_err(|error| broken("task", error.to_string()))?;
    let avoid: Vec<&str> = task.avoid.iter().map(PodAddress::as_str).collect();
    let text = format!(
        "{}|{}|{}|{}|{}|{}|{json}",
        task.nominal.as_millis(),
        task.attempt,
        task.failures,
        task.idle_yields,
        word(&task.reason),
        avoid.join("@"),
    );
    if text.len() > TASK_MAX_BYTES {
        return Err(StoreError::TooLarge {
            what: "the task",
            found: text.len(),
            limit: TASK_MAX_BYTES,
        });
    }
    Ok(text)
}

/// Splits `N` fields off a text.
fn fields<const N: usize>(text: &str) -> Decoded<[&str; N]> {
    let parts: Vec<&str> = text.splitn(N, '|').collect();
    let found = parts.len();
    parts
        .try_into()
        .map_err(|_| format!("{found} fields instead of {N}"))
}

fn number<T: std::str::FromStr>(text: &str, what: &str) -> Decoded<T> {
    text.parse().map_err(|_| format!("{what} is {text:?}"))
}

fn time(text: &str, what: &str) -> Decoded<Timestamp> {
    number(text, what).map(Timestamp::from_millis)
}

fn id<T: std::str::FromStr<Err: ToString>>(text: &str) -> Decoded<T> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

/// Reads a task. `queue` is the one it was last pushed to.
pub(super) fn task_of(run: &str, text: &str, queue: Option<String>) -> Decoded<Task> {
    let [nominal, attempt, failures, idle, reason, avoid, json] = fields::<7>(text)?;
    let base: Base = serde_json::from_str(json).map_err(|error| error.to_string())?;
    if base.run.as_str() != run {
        return Err(format!("it holds the task of {}", base.run));
    }
    let avoid = avoid
        .split('@')
        .filter(|part| !part.is_empty())
        .map(id)
        .collect::<Decoded<_>>()?;
    Ok(Task {
        job: base.run.job(),
        run: base.run,
        nominal: time(nominal, "the nominal time")?,
        reason: from_word(reason)?,
        attempt: number(attempt, "the attempt")?,
        failures: number(failures, "the failures")?,
        idle_yields: number(idle, "the idle yields")?,
        params: base.params,
        digest: base.digest,
        avoid,
        of: base.of,
        subscriber_queue: queue,
        trace: base.trace,
    })
}

/// Reads an entry of `scheduled_tasks`.
pub(super) fn scheduled_of(keys: &Keys, run: &str, text: &str) -> Decoded<ScheduledEntry> {
    let [delivery, pod, session, at, task] = fields::<5>(text)?;
    let pod: PodAddress = id(pod)?;
    Ok(ScheduledEntry {
        task: task_of(run, task, Some(keys.tasks(&pod)))?,
        pod,
        session: id(session)?,
        delivery: number(delivery, "the delivery")?,
        published_at: time(at, "the time of publishing")?,
    })
}

/// Reads an entry of `running_tasks`.
pub(super) fn running_of(keys: &Keys, run: &str, text: &str) -> Decoded<RunningEntry> {
    let [
        fence,
        pod,
        session,
        claimed_at,
        ends_by,
        _token,
        cancel,
        progress,
        task,
    ] = fields::<9>(text)?;
    let pod: PodAddress = id(pod)?;
    Ok(RunningEntry {
        task: task_of(run, task, Some(keys.tasks(&pod)))?,
        pod,
        session: id(session)?,
        fence: number(fence, "the fence")?,
        claimed_at: time(claimed_at, "the time of the claim")?,
        ends_by: time(ends_by, "the end")?,
        cancel: (!cancel.is_empty()).then(|| text_of(cancel)),
        progress: serde_json::from_str(progress).ok(),
    })
}

/// Reads an entry of `delayed_tasks`.
pub(super) fn delayed_of(run: &str, text: &str) -> Decoded<DelayedEntry> {
    let [due, why, task] = fields::<3>(text)?;
    let due = if due.is_empty() {
        None
    } else {
        Some(time(due, "the due time")?)
    };
    Ok(DelayedEntry {
        task: task_of(run, task, None)?,
        due,
        why: text_of(why),
    })
}

/// Reads a queue entry.
pub(super) fn taken_of(text: &str) -> Decoded<Taken> {
    let [run, delivery] = fields::<2>(text)?;
    Ok(Taken {
        run: id(run)?,
        delivery: number(delivery, "the delivery")?,
    })
}

/// Reads a lock.
pub(super) fn lock_of(text: &str, left_ms: u64) -> Decoded<LockHolder> {
    let parts: Vec<&str> = text.split('|').collect();
    let [address, session, run, fence, ..] = parts.as_slice() else {
        return Err(format!("{text:?} is no lock"));
    };
    Ok(LockHolder {
        pod: wasmcron_core::ids::PodRef {
            address: id(address)?,
            session: id(session)?,
        },
        run: id(run)?,
        fence: number(fence, "the fence")?,
        expires_in: std::time::Duration::from_millis(left_ms),
    })
}

/// Reads a checkpoint from its sequence, its description and its bytes.
pub(super) fn checkpoint_of(seq: &str, what: &str, data: Vec<u8>) -> Decoded<Checkpoint> {
    let [schema, digest, attempt, fence, saved_at] = fields::<5>(what)?;
    Ok(Checkpoint {
        data,
        schema: number(schema, "the schema")?,
        digest: id(digest)?,
        attempt: number(attempt, "the attempt")?,
        fence: number(fence, "the fence")?,
        seq: number(seq, "the sequence")?,
        saved_at: time(saved_at, "the time of saving")?,
    })
}

/// The answer of a script: a list of texts.
pub(super) struct Answer {
    verb: &'static str,
    parts: Vec<Value>,
}

impl Answer {
    pub(super) fn new(verb: &'static str, value: Value) -> Result<Answer> {
        match value {
            Value::Array(parts) => Ok(Answer { verb, parts }),
            other => Err(broken(
                verb,
                format!("{other:?}").chars().take(80).collect::<String>(),
            )),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.parts.len()
    }

    /// The bytes at a place.
    pub(super) fn bytes(&self, at: usize) -> Result<&[u8]> {
        match self.parts.get(at) {
            Some(Value::BulkString(bytes)) => Ok(bytes),
            Some(Value::SimpleString(text)) => Ok(text.as_bytes()),
            _ => Err(broken(self.verb, format!("nothing at place {at}"))),
        }
    }

    /// The bytes at a place, taken out.
    pub(super) fn take(&mut self, at: usize) -> Result<Vec<u8>> {
        match self.parts.get_mut(at) {
            Some(Value::BulkString(bytes)) => Ok(std::mem::take(bytes)),
            _ => Err(broken(self.verb, format!("nothing at place {at}"))),
        }
    }

    /// The text at a place.
    pub(super) fn text(&self, at: usize) -> Result<&str> {
        std::str::from_utf8(self.bytes(at)?).map_err(|error| broken(self.verb, error.to_string()))
    }

    /// The first text: which answer it is.
    pub(super) fn word(&self) -> Result<&str> {
        self.text(0)
    }

    /// The number at a place.
    pub(super) fn number<T: std::str::FromStr>(&self, at: usize) -> Result<T> {
        let text = self.text(at)?;
        text.parse().map_err(|_| self.strange(text))
    }

    /// The time at a place.
    pub(super) fn time(&self, at: usize) -> Result<Timestamp> {
        self.number(at).map(Timestamp::from_millis)
    }

    /// The name or id at a place.
    pub(super) fn id<T: std::str::FromStr>(&self, at: usize) -> Result<T> {
        let text = self.text(at)?;
        text.parse().map_err(|_| self.strange(text))
    }

    /// The ids from a place on; what is no id is left out.
    pub(super) fn ids_from<T: std::str::FromStr>(&self, at: usize) -> Vec<T> {
        (at..self.len()).filter_map(|at| self.id(at).ok()).collect()
    }

    /// The error for an answer that the verb does not have.
    pub(super) fn strange(&self, text: &str) -> StoreError {
        broken(self.verb, text.chars().take(80).collect::<String>())
    }
}

/// A bulk string as text; nothing for everything else.
pub(super) fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::SimpleString(text) => Some(text.clone()),
        Value::Int(number) => Some(number.to_string()),
        _ => None,
    }
}

/// The bytes of a bulk string, for what may have to be found again by them; nothing for everything
/// else.
pub(super) fn raw(value: Value) -> Option<Vec<u8>> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        Value::SimpleString(text) => Some(text.into_bytes()),
        _ => None,
    }
}

/// A list of bulk strings as bytes.
pub(super) fn raws(value: Value) -> Vec<Vec<u8>> {
    match value {
        Value::Array(items) => items.into_iter().filter_map(raw).collect(),
        _ => Vec::new(),
    }
}

/// Bytes as text, strictly: what was replaced would not be what stands in the store.
pub(super) fn strict(bytes: &[u8]) -> Decoded<&str> {
    std::str::from_utf8(bytes).map_err(|error| error.to_string())
}

/// A list of texts, where each may be missing.
pub(super) fn texts(value: &Value) -> Vec<Option<String>> {
    match value {
        Value::Array(items) => items.iter().map(text).collect(),
        _ => Vec::new(),
    }
}

/// A list of (field, value), as of HGETALL.
pub(super) fn pairs(value: &Value) -> Vec<(String, String)> {
    let mut flat = texts(value).into_iter().flatten();
    std::iter::from_fn(|| Some((flat.next()?, flat.next()?))).collect()
}

/// The error for bytes in the store that do not decode.
pub(super) fn corrupt(key: String, what: &'static str) -> impl FnOnce(String) -> StoreError {
    move |message| StoreError::Corrupt { key, what, message }
}

#[cfg(test)]
mod tests {
    use wasmcron_core::ids::RunId;
    use wasmcron_core::task::Reason;

    use super::*;

    fn sample() -> Task {
        let run: RunId = "sync@2026-11-29T01:00:00Z".parse().expect("run");
        let mut task = Task::first(
            run,
            Timestamp::MAX,
            Reason::Retry,
            "{\"a\":\"x|y\",\"b\":[]}".into(),
        );
        task.attempt = 7;
        task.avoid = vec![id("pod-a").expect("pod"), id("[fd00::1]:80").expect("pod")];
        task.trace = Some("00-a|b".into());
        task
    }

    #[test]
    fn a_task_survives_bars_and_far_times() {
        let task = sample();
        let text = task_text(&task).expect("small");
        assert_eq!(task_of(task.run.as_str(), &text, None), Ok(task.clone()));
        assert!(task_of("other@2026-11-29T01:00:00Z", &text, None).is_err());
        assert!(task_of(task.run.as_str(), &text[..text.len() - 3], None).is_err());
    }

    #[test]
    fn a_task_over_the_limit_is_refused_before_it_is_sent() {
        let mut task = sample();
        task.params = "x".repeat(TASK_MAX_BYTES);
        assert!(matches!(task_text(&task), Err(StoreError::TooLarge { .. })));
    }

    #[test]
    fn words_for_people_lose_their_bars_only_in_transit() {
        let why = "a|b \"c\"";
        let text = bar_free(why);
        assert!(!text.contains('|'));
        assert_eq!(text_of(&text), why);
        assert_eq!(text_of("plain"), "plain");
    }
}
