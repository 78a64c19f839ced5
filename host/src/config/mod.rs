//! Configuration: the host's settings and the job files.

pub mod check;
pub mod document;
pub mod fault;
mod job_convert;
pub mod job_file;
pub mod known;
pub mod load;
pub mod params;
pub mod schema;
pub mod settings;
pub mod store_url;
pub mod units;

use std::path::PathBuf;

/// Where compiled plugins are kept unless the settings say otherwise: below the user's cache directory.
#[must_use]
pub fn cache_directory() -> Option<PathBuf> {
    let absolute = |name: &str| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let user = absolute("XDG_CACHE_HOME").or_else(|| {
        let below = if cfg!(target_os = "macos") {
            "Library/Caches"
        } else {
            ".cache"
        };
        absolute("HOME").map(|home| home.join(below))
    })?;
    Some(user.join("wasmcron").join("plugins"))
}
