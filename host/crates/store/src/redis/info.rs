//! What the server says of itself: for a check at start.

use std::collections::HashMap;

use wasmcron_core::time::Timestamp;

use super::RedisStore;
use super::codec::{text, texts};
use super::errors::broken;
use crate::error::{Result, StoreError};

/// The oldest server that has every command the scripts use.
const OLDEST: (u32, u32) = (6, 2);

/// What the server says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerInfo {
    /// `Redis` or `Valkey`.
    pub name: &'static str,
    /// Its version as Redis counts them; Valkey calls itself 7.2.4 here.
    pub version: String,
    /// `master`, or `slave` for a replica.
    pub role: String,
    /// Whether it is a node of a cluster.
    pub clustered: bool,
    /// What it does when memory is full. Every policy but `noeviction` may remove locks.
    pub maxmemory_policy: String,
    /// The limit of its memory in bytes; 0 for none.
    pub maxmemory: u64,
    /// Whether it appends writes to a file.
    pub append_only: bool,
    /// Whether it saves snapshots; none if it does not tell.
    pub snapshots: Option<bool>,
    /// Replicas connected.
    pub replicas: u32,
    /// Its clock.
    pub clock: Timestamp,
}

impl ServerInfo {
    /// Whether the server is new enough.
    ///
    /// # Errors
    /// `Refused` for an older one.
    pub fn check(&self) -> Result<()> {
        let mut parts = self
            .version
            .split('.')
            .map(|part| part.parse::<u32>().unwrap_or(0));
        let version = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
        if version >= OLDEST {
            return Ok(());
        }
        Err(StoreError::Refused {
            verb: "connect",
            message: format!(
                "the server is {} {}; 6.2 or newer is accepted",
                self.name, self.version
            ),
        })
    }

    /// What endangers locks, registers and records, in one sentence each.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.maxmemory_policy != "noeviction" {
            warnings.push(format!(
                "maxmemory-policy is {}: a full memory may remove locks and registers; noeviction is accepted",
                self.maxmemory_policy
            ));
        }
        if !self.append_only && self.snapshots == Some(false) {
            warnings.push(
                "the server keeps nothing on disk: after its restart runs and schedules begin anew"
                    .to_owned(),
            );
        }
        if self.role == "slave" {
            warnings.push("the server is a replica: it takes no writes".to_owned());
        }
        warnings
    }
}

impl RedisStore {
    /// What the server says of itself.
    ///
    /// # Errors
    /// As any call.
    pub async fn server_info(&self) -> Result<ServerInfo> {
        const VERB: &str = "server_info";
        let mut pipe = redis::pipe();
        pipe.cmd("INFO").cmd("TIME");
        let answers = self.pipeline(VERB, &pipe).await?;
        let [said, clock] = answers.as_slice() else {
            return Err(broken(VERB, "not two answers"));
        };
        // Hosted servers often forbid CONFIG; then this stays unknown.
        let save = self
            .command(VERB, redis::cmd("CONFIG").arg("GET").arg("save"))
            .await
            .ok();
        let snapshots = save.and_then(|value| texts(&value).into_iter().nth(1).flatten());
        let said = text(said).unwrap_or_default();
        let said: HashMap<&str, &str> = said
            .lines()
            .filter_map(|line| line.trim_end().split_once(':'))
            .collect();
        let of = |key: &str| said.get(key).copied().unwrap_or("");
        Ok(ServerInfo {
            name: if said.contains_key("valkey_version") {
                "Valkey"
            } else {
                "Redis"
            },
            version: of("redis_version").to_owned(),
            role: of("role").to_owned(),
            clustered: of("cluster_enabled") == "1",
            maxmemory_policy: of("maxmemory_policy").to_owned(),
            maxmemory: of("maxmemory").parse().unwrap_or(0),
            append_only: of("aof_enabled") == "1",
            snapshots: snapshots.map(|points| !points.is_empty()),
            replicas: of("connected_slaves").parse().unwrap_or(0),
            clock: super::pods::clock_of(VERB, clock)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dangerous_settings_are_named() {
        let mut info = ServerInfo {
            name: "Redis",
            version: "7.0.15".to_owned(),
            role: "master".to_owned(),
            clustered: false,
            maxmemory_policy: "noeviction".to_owned(),
            maxmemory: 0,
            append_only: true,
            snapshots: Some(false),
            replicas: 0,
            clock: Timestamp::EPOCH,
        };
        assert_eq!(info.warnings(), Vec::<String>::new());
        info.append_only = false;
        info.maxmemory_policy = "allkeys-lru".to_owned();
        let warnings = info.warnings().join(" ");
        assert!(
            warnings.contains("allkeys-lru") && warnings.contains("disk"),
            "{warnings}"
        );
    }
}
