//! The store over one Redis (6.2 or newer) or Valkey primary.
//!
//! Every verb is one Lua script (`lua/`), so it happens whole or not at all as far as other clients
//! can see. A script that fails half-way is not rolled back: each checks types and sizes first and
//! then writes in an order in which a repeat mends what is missing.

mod changes;
mod cluster;
mod codec;
mod connect;
mod control;
mod delivery;
mod errors;
mod info;
mod inspect;
pub mod keys;
mod leadership;
mod place;
mod pods;
mod queue;
mod recovery;
mod reports;
mod runs;
mod schedules;
mod script;
mod views;

use std::fmt;
use std::sync::Arc;

use redis::Value;

use codec::Answer;
use connect::Connection;
use keys::Keys;
use reports::Reports;
use script::{Call, Scripts};

use crate::error::{Result, StoreError};

pub use connect::RedisOptions;
pub use info::ServerInfo;
pub use script::verbs;

/// The coordination store over Redis. Cheap to clone; clones share a connection and what was read of
/// pods' reports.
#[derive(Clone)]
pub struct RedisStore {
    connection: Connection,
    keys: Keys,
    scripts: Arc<Scripts>,
    reports: Arc<Reports>,
    options: Arc<RedisOptions>,
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl RedisStore {
    /// How this store spells its keys: for tools and messages.
    #[must_use]
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    async fn call(&self, call: Call) -> Result<Answer> {
        let verb = call.verb.name();
        Answer::new(
            verb,
            call.run(&self.scripts, &self.connection, &self.keys)
                .await?,
        )
    }

    async fn command(&self, verb: &'static str, cmd: &redis::Cmd) -> Result<Value> {
        match self.connection.send(cmd).await {
            Ok(value) => Ok(value),
            Err(error) => Err(self.explained(verb, &error, [cmd].into_iter()).await),
        }
    }

    async fn pipeline(&self, verb: &'static str, pipe: &redis::Pipeline) -> Result<Vec<Value>> {
        match self.connection.send_all(pipe).await {
            Ok(values) => Ok(values),
            Err(error) => Err(self.explained(verb, &error, pipe.cmd_iter()).await),
        }
    }

    /// An error of some commands, with the key that has the wrong type if that is what it says.
    async fn explained(
        &self,
        verb: &'static str,
        error: &redis::RedisError,
        commands: impl Iterator<Item = &redis::Cmd>,
    ) -> StoreError {
        // The key is the first argument of every command that has one.
        let key = |cmd: &redis::Cmd| match cmd.args_iter().nth(1)? {
            redis::Arg::Simple(bytes) => String::from_utf8(bytes.to_vec()).ok(),
            _ => None,
        };
        let keys: Vec<String> = commands.filter_map(key).collect();
        let mapped = errors::map(verb, error);
        errors::name_wrong_key(mapped, &self.connection, &self.keys, &keys).await
    }
}

/// Refuses a task over the limit, for whoever counts as this backend does.
#[cfg(test)]
pub(crate) fn task_size(task: &wasmcron_core::task::Task) -> Result<()> {
    codec::task_text(task).map(drop)
}
