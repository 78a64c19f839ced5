//! `serve`: runs a pod.

use super::context::Globals;
use super::out::{Answer, Failure, note};
use crate::config::load;
use crate::{services, telemetry};

/// Loads the settings and hands over to the services until the pod is told to stop.
pub fn run(globals: &Globals) -> Answer {
    let loaded = globals.load()?;
    for remark in
        load::stray_variables(std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()))
    {
        note(format!("warning: {remark}"));
    }
    telemetry::start(&loaded.settings.log)
        .map_err(|error| Failure::failed(format!("{error:#}")))?;
    services::serve(loaded.settings, |_| ()).map_err(|error| Failure::failed(format!("{error:#}")))
}
