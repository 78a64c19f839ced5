//! `wasmcron:job/secrets`. Values are handed through and written nowhere.

use crate::bindings::wasmcron::job::secrets::{self, SecretError};
use crate::sandbox::Sandbox;
use crate::text;

impl secrets::Host for Sandbox {
    async fn get(&mut self, name: String) -> wasmtime::Result<Result<String, SecretError>> {
        if !self.grants.secrets.contains(&name) {
            return Ok(Err(SecretError::NotGranted));
        }
        Ok(self
            .host
            .secret(&name)
            .await
            .map_err(|why| SecretError::Unavailable(text::message(&why))))
    }
}
