//! The plugins of a pod as its loops see them, and the sandboxed ones behind that.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::watch;
use wasmcron_core::ids::{Digest, PluginName};
use wasmcron_runtime::{
    AttemptHost, AttemptReport, AttemptSpec, Limits, MigrateError, Plugin, PluginRegistry, Runtime,
};

/// Which plugins a pod can run.
#[async_trait]
pub trait Plugins: Send + Sync {
    /// The version that serves `name` now. Whoever holds it stays on it, whatever serves later.
    fn active(&self, name: &str) -> Option<Arc<dyn Program>>;

    /// A version by digest: one that serves, or an earlier one that somebody still holds.
    fn by_digest(&self, digest: &Digest) -> Option<Arc<dyn Program>>;

    /// What serves, by name.
    fn serving(&self) -> BTreeMap<PluginName, Digest>;

    /// A number that grows whenever another answer may have changed. The sender lives as long as
    /// this does.
    fn changes(&self) -> watch::Receiver<u64>;

    /// How many versions were refused since the start.
    fn refusals(&self) -> u64;

    /// Waits until what was there at the start serves or is refused.
    async fn wait_loaded(&self);
}

/// One version of a plugin.
#[async_trait]
pub trait Program: Send + Sync {
    /// What tells it from all other versions.
    fn digest(&self) -> &Digest;

    /// The format of its checkpoints.
    fn checkpoint_schema(&self) -> u32;

    /// Whether it can read checkpoints of other formats.
    fn supports_migration(&self) -> bool;

    /// Checks a job's parameters.
    ///
    /// # Errors
    /// One sentence for each fault.
    fn check_parameters(&self, parameters: &serde_json::Value) -> Result<(), Vec<String>>;

    /// Makes one attempt and reports how it ended, whatever happens. What it saves, logs and asks goes
    /// to `host`; it heeds the requests and the lease deadline of the attempt's control.
    async fn execute(&self, attempt: AttemptSpec, host: Arc<dyn AttemptHost>) -> AttemptReport;

    /// Translates a checkpoint of `from_schema` into its own format.
    ///
    /// # Errors
    /// It cannot, will not, or broke.
    async fn migrate_checkpoint(
        &self,
        from_schema: u32,
        data: Bytes,
        limits: &Limits,
    ) -> Result<Bytes, MigrateError>;
}

/// The plugins of a folder, executed in sandboxes.
pub struct SandboxedPlugins {
    registry: Arc<PluginRegistry>,
    runtime: Arc<Runtime>,
}

/// One version, and where it executes.
struct Sandboxed {
    plugin: Arc<Plugin>,
    runtime: Arc<Runtime>,
}

impl SandboxedPlugins {
    /// The plugins of `registry`, which execute on `runtime`.
    #[must_use]
    pub fn new(registry: Arc<PluginRegistry>, runtime: Arc<Runtime>) -> Self {
        SandboxedPlugins { registry, runtime }
    }

    fn program(&self, plugin: Arc<Plugin>) -> Arc<dyn Program> {
        let runtime = self.runtime.clone();
        Arc::new(Sandboxed { plugin, runtime })
    }
}

#[async_trait]
impl Plugins for SandboxedPlugins {
    fn active(&self, name: &str) -> Option<Arc<dyn Program>> {
        self.registry
            .active(name)
            .map(|plugin| self.program(plugin))
    }

    fn by_digest(&self, digest: &Digest) -> Option<Arc<dyn Program>> {
        self.registry
            .by_digest(digest)
            .map(|plugin| self.program(plugin))
    }

    fn serving(&self) -> BTreeMap<PluginName, Digest> {
        let statuses = self.registry.statuses().into_iter();
        statuses
            .filter_map(|status| Some((status.name.parse().ok()?, status.active?)))
            .collect()
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.registry.changes()
    }

    fn refusals(&self) -> u64 {
        self.registry.refusals()
    }

    async fn wait_loaded(&self) {
        self.registry.wait_loaded().await;
    }
}

#[async_trait]
impl Program for Sandboxed {
    fn digest(&self) -> &Digest {
        self.plugin.digest()
    }

    fn checkpoint_schema(&self) -> u32 {
        self.plugin.metadata().checkpoint_schema
    }

    fn supports_migration(&self) -> bool {
        self.plugin.supports_migration()
    }

    fn check_parameters(&self, parameters: &serde_json::Value) -> Result<(), Vec<String>> {
        self.plugin.check_parameters(parameters)
    }

    async fn execute(&self, attempt: AttemptSpec, host: Arc<dyn AttemptHost>) -> AttemptReport {
        self.runtime.execute(&self.plugin, attempt, host).await
    }

    async fn migrate_checkpoint(
        &self,
        from_schema: u32,
        data: Bytes,
        limits: &Limits,
    ) -> Result<Bytes, MigrateError> {
        self.runtime
            .migrate_checkpoint(&self.plugin, from_schema, data, limits)
            .await
    }
}
