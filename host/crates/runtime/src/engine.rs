//! The engine.
use crate::*;
use bytes::Bytes;
use std::sync::Arc;
/// One engine with its threads: guests execute here and nowhere else.
#[derive(Debug)]
pub struct Runtime {}
impl Runtime {
    /// Starts the engine, the guest threads and the ticker.
    ///
    /// # Errors
    ///
    /// One sentence: a setting that cannot work, or a cache folder that is not private.
    pub fn new(_config: RuntimeConfig) -> anyhow::Result<Arc<Self>> {
        todo!()
    }
    /// Loads a component: checks it, compiles it (one at a time, on a thread of its own), asks it who it is.
    pub async fn load(&self, _name: &str, _bytes: Bytes) -> Result<Arc<Plugin>, LoadError> {
        todo!()
    }
    /// Makes one attempt. Dropping the future ends the attempt at once, without a last save.
    pub async fn execute(
        &self,
        _plugin: &Arc<Plugin>,
        _attempt: AttemptSpec,
        _host: Arc<dyn AttemptHost>,
    ) -> AttemptReport {
        todo!()
    }
    /// Translates a checkpoint of an older format.
    pub async fn migrate_checkpoint(
        &self,
        _plugin: &Arc<Plugin>,
        _from_schema: u32,
        _data: Bytes,
        _limits: &Limits,
    ) -> Result<Bytes, MigrateError> {
        todo!()
    }
}
/// Why a checkpoint was not translated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MigrateError {
    /// The plugin exports no `migrate`.
    #[error("the plugin cannot read checkpoints of other formats (it exports no `migrate`)")]
    Unsupported,
    /// The plugin says no.
    #[error("the plugin refused the checkpoint: {0}")]
    Refused(String),
    /// The plugin broke, or used up a limit, while it translated.
    #[error("the plugin failed while it translated the checkpoint: {0}")]
    Failed(String),
}
