//! The pod's own log: for people or as JSON, on standard error.

use std::io::IsTerminal as _;

use anyhow::{Context as _, Result};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::config::settings::{LogFormat, LogSettings};

/// Starts logging as the settings say, to standard error.
///
/// # Errors
/// When `log.level` is no filter, or logging was started before.
pub fn start(settings: &LogSettings) -> Result<()> {
    let colours = std::io::stderr().is_terminal();
    start_on(settings, colours, std::io::stderr)
}

/// Starts logging as the settings say, to a writer.
///
/// # Errors
/// When `log.level` is no filter, or logging was started before.
pub fn start_on(
    settings: &LogSettings,
    colours: bool,
    writer: impl for<'a> MakeWriter<'a> + Send + Sync + 'static,
) -> Result<()> {
    let level = settings.level.as_deref().unwrap_or("info");
    let filter = EnvFilter::try_new(level).with_context(|| {
        format!(
            "log.level: {level:?} is not a filter; info, debug or wasmcron=debug,info are accepted"
        )
    })?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(writer)
        // Whoever read our log may be gone; saying so on the same stream would end the pod.
        .log_internal_errors(false);
    let started = match settings.format {
        LogFormat::Human => builder.with_target(false).with_ansi(colours).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    started.map_err(|error| anyhow::anyhow!("cannot start logging: {error}"))
}
