//! The plugin runtime: one wasmtime engine, a fresh sandbox for each attempt, the host side of the
//! WIT contract, and the registry that follows the plugin folder.
//!
//! It knows neither store nor scheduler: whoever executes an attempt hands over an [`AttemptHost`].
//! A guest gets nothing that its [`Grants`] do not name, and uses up no more than its [`Limits`].

mod attempt_host;
mod bindings;
mod cache;
mod config;
mod control;
mod dir_watch;
mod engine;
mod execute;
mod grants;
mod host;
mod http_body;
mod http_client;
mod limiter;
mod load;
mod null_host;
mod params;
mod plugin;
mod registry;
mod reload;
mod report;
mod sandbox;
mod spec;
mod text;
mod ticker;
mod verdict;
mod watchdog;
mod world;

pub use attempt_host::{AttemptHost, LogLevel, LogLine, LogSource, Progress, WriteRefused};
pub use config::{PoolConfig, RuntimeConfig};
pub use control::{AttemptControl, StopReason, Why, boot_millis};
pub use dir_watch::{DirWatch, DirWatchConfig, Tick};
pub use engine::Runtime;
pub use execute::MigrateError;
pub use grants::{HttpGrant, Origin};
pub use plugin::{CodeOrigin, LoadError, LoadStage, Metadata, Plugin, Want};
pub use registry::{PluginRegistry, PluginState, PluginStatus, RegistryConfig};
pub use report::{AttemptEnd, AttemptReport, Blame, StateWrite, Trap};
pub use spec::{AttemptSpec, Call, CallReason, Grants, Limits, SavedCheckpoint};
