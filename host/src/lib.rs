//! A distributed cron whose jobs are sandboxed WebAssembly components: the pod, and the command line
//! around it.
//!
//! [`services`] runs a pod on whatever [`Machine`](services::Machine), store and
//! [`Plugins`](services::Plugins) it is given, so that a simulation runs the same code as the binary.

mod api;
mod cli;
pub mod config;
pub mod services;
mod store;
mod telemetry;

pub use cli::main;
