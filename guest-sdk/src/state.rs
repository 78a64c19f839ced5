//! Bytes of the job that outlive its runs, such as the cursor of an incremental sync.

use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Failure, ResultExt, host};

/// When a write takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Together with the success of this run; not at all if it fails.
    OnSuccess,
    /// Before the call returns.
    Now,
}

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateError {
    /// Another attempt owns the run.
    Fenced,
    /// All keys and values of the job together exceed the limit.
    TooLarge {
        /// The limit in bytes.
        limit: u32,
    },
    /// The store did not answer in time; trying again is safe.
    Unavailable(String),
}

impl fmt::Display for StateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fenced => f.write_str("state refused: another attempt owns this run"),
            Self::TooLarge { limit } => {
                write!(
                    f,
                    "state refused: the job's state would exceed the limit of {limit} bytes"
                )
            }
            Self::Unavailable(reason) => write!(f, "state not reached: {reason}"),
        }
    }
}

impl std::error::Error for StateError {}

/// The value of a key; none if it was never set. Sees this attempt's own writes.
///
/// # Errors
///
/// If the store does not answer, or another attempt owns the run.
pub fn get(key: &str) -> Result<Option<Vec<u8>>, StateError> {
    host::with(|host| host.state_get(key))
}

/// Sets a key of 1 to 128 bytes.
///
/// # Errors
///
/// See [`StateError`].
pub fn set(key: &str, value: &[u8], when: When) -> Result<(), StateError> {
    host::with(|host| host.state_set(key, value, when))
}

/// Removes a key; removing one that is absent is fine.
///
/// # Errors
///
/// See [`StateError`].
pub fn delete(key: &str, when: When) -> Result<(), StateError> {
    host::with(|host| host.state_delete(key, when))
}

/// The value of a key that [`set_json`] wrote.
///
/// # Errors
///
/// As [`get`]; fatal if the bytes are not of this type.
pub fn get_json<T: DeserializeOwned>(key: &str) -> Result<Option<T>, Failure> {
    let Some(bytes) = get(key)? else {
        return Ok(None);
    };
    serde_json::from_slice(&bytes)
        .map(Some)
        .or_fatal(&format!("reading state `{key}`"))
}

/// Sets a key to a value as JSON.
///
/// # Errors
///
/// As [`set`]; fatal if the value cannot be written as JSON.
pub fn set_json<T: Serialize>(key: &str, value: &T, when: When) -> Result<(), Failure> {
    let bytes = serde_json::to_vec(value).or_fatal(&format!("writing state `{key}`"))?;
    Ok(set(key, &bytes, when)?)
}
