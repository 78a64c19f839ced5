//! `wasmcron:job/state`.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::attempt_host::WriteRefused;
use crate::bindings::wasmcron::job::state::{self, StateError, When};
use crate::limiter::Retained;
use crate::report::StateWrite;
use crate::sandbox::Sandbox;

/// Longest key, in bytes.
const KEY_MAX: usize = 128;

/// The writes that wait for the success of the run.
#[derive(Debug)]
pub(crate) struct StateDesk {
    pending: BTreeMap<String, Option<Bytes>>,
    bytes: usize,
    limit: u32,
    retained: Retained,
}

impl StateDesk {
    pub(crate) fn new(limit: u32, retained: Retained) -> Self {
        Self {
            pending: BTreeMap::new(),
            bytes: 0,
            limit,
            retained,
        }
    }

    /// The pending write of a key: `Some(None)` if it is to be removed.
    fn pending(&self, key: &str) -> Option<Option<Bytes>> {
        self.pending.get(key).cloned()
    }

    /// Notes a write for later.
    fn defer(&mut self, key: String, value: Option<Bytes>) -> Result<(), StateError> {
        let size =
            |key: &str, value: &Option<Bytes>| key.len() + value.as_ref().map_or(0, Bytes::len);
        let old = self.pending.get(&key).map_or(0, |value| size(&key, value));
        let new = size(&key, &value);
        let bytes = self.bytes - old + new;
        if bytes > self.limit as usize {
            return Err(StateError::TooLarge(self.limit));
        }
        self.retained.replace(old, new);
        self.bytes = bytes;
        self.pending.insert(key, value);
        Ok(())
    }

    /// Drops the pending write of a key: a later immediate one counts instead.
    fn settle(&mut self, key: &str) {
        if let Some(value) = self.pending.remove(key) {
            let old = key.len() + value.map_or(0, |value| value.len());
            self.bytes -= old;
            self.retained.replace(old, 0);
        }
    }

    /// All pending writes, in key order.
    pub(crate) fn take(&mut self) -> Vec<StateWrite> {
        self.retained.replace(self.bytes, 0);
        self.bytes = 0;
        std::mem::take(&mut self.pending)
            .into_iter()
            .map(|(key, value)| StateWrite { key, value })
            .collect()
    }
}

impl From<WriteRefused> for StateError {
    fn from(refused: WriteRefused) -> Self {
        match refused {
            WriteRefused::Fenced => Self::Fenced,
            WriteRefused::TooLarge(limit) => Self::TooLarge(limit),
            WriteRefused::Unavailable(why) => Self::Unavailable(why),
        }
    }
}

/// A key of a wrong length is a fault of the program, for which the contract has no error case.
fn check_key(key: &str) -> wasmtime::Result<()> {
    if key.is_empty() || key.len() > KEY_MAX {
        wasmtime::bail!(
            "a state key has {} bytes; 1 to {KEY_MAX} are accepted",
            key.len()
        );
    }
    Ok(())
}

impl Sandbox {
    async fn write_state(
        &mut self,
        key: String,
        value: Option<Bytes>,
        when: When,
    ) -> Result<(), StateError> {
        if self.control.lease_expired() {
            return Err(StateError::Fenced);
        }
        match when {
            When::OnSuccess => self.state.defer(key, value),
            When::Now => {
                if value
                    .as_ref()
                    .is_some_and(|v| v.len() + key.len() > self.state.limit as usize)
                {
                    return Err(StateError::TooLarge(self.state.limit));
                }
                match value {
                    Some(value) => self.host.state_set(&key, value).await?,
                    None => self.host.state_delete(&key).await?,
                }
                self.state.settle(&key);
                Ok(())
            }
        }
    }
}

impl state::Host for Sandbox {
    async fn get(&mut self, key: String) -> wasmtime::Result<Result<Option<Vec<u8>>, StateError>> {
        check_key(&key)?;
        if let Some(value) = self.state.pending(&key) {
            return Ok(Ok(value.map(|value| value.to_vec())));
        }
        Ok(match self.host.state_get(&key).await {
            Ok(value) => Ok(value.map(|value| value.to_vec())),
            Err(refused) => Err(refused.into()),
        })
    }

    async fn set(
        &mut self,
        key: String,
        value: Vec<u8>,
        when: When,
    ) -> wasmtime::Result<Result<(), StateError>> {
        check_key(&key)?;
        Ok(self.write_state(key, Some(value.into()), when).await)
    }

    async fn delete(
        &mut self,
        key: String,
        when: When,
    ) -> wasmtime::Result<Result<(), StateError>> {
        check_key(&key)?;
        Ok(self.write_state(key, None, when).await)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pending_writes_are_seen_bounded_and_taken_in_order() {
        let retained = Retained::default();
        let mut desk = StateDesk::new(10, retained.clone());
        assert!(
            desk.defer("b".into(), Some(Bytes::from_static(b"1234")))
                .is_ok()
        );
        assert!(desk.defer("a".into(), None).is_ok());
        assert_eq!(desk.pending("a"), Some(None));
        assert_eq!(desk.pending("c"), None);
        assert!(matches!(
            desk.defer("c".into(), Some(Bytes::from_static(b"12345"))),
            Err(StateError::TooLarge(10))
        ));
        // Replacing counts the difference only.
        assert!(
            desk.defer("b".into(), Some(Bytes::from_static(b"12345678")))
                .is_ok()
        );
        assert_eq!(retained.bytes(), 10);
        desk.settle("b");
        assert!(
            desk.defer("c".into(), Some(Bytes::from_static(b"1")))
                .is_ok()
        );
        let keys: Vec<String> = desk.take().into_iter().map(|write| write.key).collect();
        assert_eq!(keys, ["a", "c"]);
        assert_eq!(retained.bytes(), 0);
    }
}
