//! How soon a plugin serves whose file was put in place.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use wasmcron_core::ids::Digest;
use wasmcron_runtime::{PluginRegistry, RegistryConfig, Runtime, RuntimeConfig};
use wasmcron_tests::guests;

use crate::report::Figure;
use crate::stats::{median, millis};

/// A plugin of the size that people write.
const PLUGIN: &str = "daily-report";
/// Versions that are put in place one after the other.
const VERSIONS: usize = 5;
/// When a version that does not come to serve is given up.
const PATIENCE: Duration = Duration::from_secs(60);

/// Each version for the first time, then each again.
pub async fn measure() -> Result<Vec<Figure>> {
    let folder = tempfile::tempdir()?;
    let plugins = folder.path().join("plugins");
    let runtime = Runtime::new(RuntimeConfig {
        cache_dir: Some(folder.path().join("cache")),
        ..RuntimeConfig::default()
    })?;
    let registry = PluginRegistry::start(runtime, plugins.clone(), RegistryConfig::default())?;
    registry.wait_loaded().await;
    let bytes = guests::bytes(PLUGIN)?;
    let versions: Vec<Vec<u8>> = (0..=VERSIONS)
        .map(|n| guests::retagged(&bytes, &n.to_string()))
        .collect();
    let (mut cold, mut warm) = (Vec::new(), Vec::new());
    for (n, version) in versions.iter().enumerate() {
        let time = serving(&registry, &plugins, version).await?;
        // The first one also pays for what happens once.
        if n > 0 {
            cold.push(millis(time));
        }
    }
    for version in versions.iter().take(VERSIONS) {
        warm.push(millis(serving(&registry, &plugins, version).await?));
    }
    let size = bytes.len() / 1_000;
    Ok(vec![
        Figure::new("file to serving, cold", "ms", median(cold))
            .at_most(300.0)
            .note(format!("{size} kB, compiled")),
        Figure::new("file to serving, compiled before", "ms", median(warm)).at_most(50.0),
    ])
}

/// Renames a version into place and waits until it serves.
async fn serving(registry: &Arc<PluginRegistry>, folder: &Path, bytes: &[u8]) -> Result<Duration> {
    let digest = Digest::of(bytes);
    let path = folder.join(format!("{PLUGIN}.wasm"));
    let beside = path.with_extension("part");
    std::fs::write(&beside, bytes)?;
    let mut changes = registry.changes();
    let began = Instant::now();
    std::fs::rename(&beside, &path)?;
    let served = async {
        while registry
            .active(PLUGIN)
            .is_none_or(|plugin| *plugin.digest() != digest)
        {
            changes.changed().await?;
        }
        Ok::<_, anyhow::Error>(began.elapsed())
    };
    tokio::time::timeout(PATIENCE, served)
        .await
        .context("a version does not come to serve")?
}
