//! A distributed cron whose jobs are sandboxed WebAssembly components.

mod api;
mod config;
mod services;
mod store;
mod telemetry;

fn main() {}
