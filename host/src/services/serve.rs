//! Runs a pod as a process: connects it to the real machine, store and plugins, and to signals.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::sync::mpsc;
use tokio::time::Instant;
use wasmcron_core::ids::PodAddress;
use wasmcron_runtime::{
    DirWatchConfig, PluginRegistry, PoolConfig, RegistryConfig, Runtime, RuntimeConfig,
};
use wasmcron_store::Store;

use super::drain::LAST_WORDS;
use super::lease::Connect;
use super::loops::Loops;
use super::machine::{Machine, RealMachine};
use super::plugins::{Plugins, SandboxedPlugins};
use super::pod::{Parts, Pod};
use super::reloader;
use super::signals::Signals;
use crate::api;
use crate::config::settings::Settings;
use crate::store::{connect, promise};

/// How long the first answer of the store is waited for.
const STORE_WAIT: Duration = Duration::from_secs(30);
/// A store's clock that is further than this from the machine's, in milliseconds, is warned of.
const CLOCK_OFFSET_MAX_MS: u64 = 1_000;
/// Signals that come within this time are one.
const SECOND_SIGNAL: Duration = Duration::from_millis(500);

/// Runs a pod until it is told to stop. Blocks; `started` hears of its HTTP address once it serves.
///
/// # Errors
/// When it cannot start (a directory, the port, the store), or must end itself.
pub fn serve(settings: Settings, started: impl FnOnce(SocketAddr)) -> Result<()> {
    let control = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("control")
        .enable_all()
        .build()
        .context("cannot create the control runtime")?;
    let result = control.block_on(run(settings, started));
    // A thread that hangs in a file system must not keep the process.
    control.shutdown_timeout(LAST_WORDS);
    result
}

async fn run(settings: Settings, started: impl FnOnce(SocketAddr)) -> Result<()> {
    let mut signals = Signals::listen()?;
    let machine: Arc<dyn Machine> = Arc::new(RealMachine);
    let (loops, http) = tokio::select! {
        biased;
        // What was begun ends with the process; the pod took no task yet.
        _ = signals.next() => return Ok(()),
        begun = start(settings, machine.clone()) => begun?,
    };
    started(http);
    let (give, orders) = mpsc::channel(1);
    machine.spawn(Box::pin(obey(signals, give)));
    Ok(loops.run(orders).await?)
}

/// Makes orders of signals.
async fn obey(mut signals: Signals, orders: mpsc::Sender<&'static str>) {
    let mut last: Option<Instant> = None;
    loop {
        let order = signals.next().await;
        // `timeout` and terminals signal a process and its group: that is one wish, not two.
        let again = last.is_some_and(|last| last.elapsed() < SECOND_SIGNAL);
        last = Some(Instant::now());
        if !again && orders.send(order).await.is_err() {
            return;
        }
    }
}

/// Connects, loads and registers, which may fail, and starts everything that serves.
/// Answers them with the address of the HTTP port.
async fn start(settings: Settings, machine: Arc<dyn Machine>) -> Result<(Loops, SocketAddr)> {
    let address = address(&settings)?;
    let store = first_contact(&settings, &*machine).await?;
    tracing::info!(store = %settings.store, promise = promise(&settings.store), "store.opened");
    // A server that forbids such questions serves all the same.
    for warning in store.warnings().await.unwrap_or_default() {
        tracing::warn!(store = %settings.store, warning, "store.warning");
    }
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let capacity = settings
        .pod
        .capacity
        .unwrap_or_else(|| u32::try_from(2 * cores).unwrap_or(4))
        .max(1);
    let plugins = start_plugins(&settings, capacity)?;
    let lease_settings = settings.clone();
    let (pod, ends) = Pod::create(Parts {
        machine,
        store,
        plugins,
        settings,
        address,
        capacity,
    })
    .await?;
    warn_of_clock(&pod);
    let listener = api::bind(&pod).await?;
    let http = listener.address();
    let serving = Box::pin(api::run(pod.clone(), listener));
    let serving = pod.machine.spawn(serving);
    let follow_jobs = reloader::start(&pod).await?;
    let lease_store: Connect = Box::new(move || {
        let settings = lease_settings.clone();
        Box::pin(async move { connect(&settings).await })
    });
    let mut loops = Loops::start(pod.clone(), ends, lease_store).await?;
    loops.watch("http", serving);
    loops.watch("reloader", pod.machine.spawn(Box::pin(follow_jobs)));
    tracing::info!(pod = %pod.me.address, session = %pod.me.session, capacity = pod.capacity, store = %pod.settings.store, %http, "pod.started");
    Ok((loops, http))
}

/// Cron times follow the store's clock: one that is far from this machine's is worth a word.
fn warn_of_clock(pod: &Pod) {
    let offset = pod.clock.wall_offset_millis();
    if offset.unsigned_abs() > CLOCK_OFFSET_MAX_MS {
        let warning =
            format!("the store's clock is {offset} ms from this machine's; cron times follow it");
        tracing::warn!(store = %pod.settings.store, warning, "store.warning");
    }
}

fn address(settings: &Settings) -> Result<PodAddress> {
    if let Some(address) = &settings.pod.address {
        return address.parse().context("pod.address");
    }
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host: String = host
        .trim()
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-'))
        .collect();
    let host = if host.is_empty() {
        "pod".to_owned()
    } else {
        host
    };
    format!("{host}:{}", std::process::id())
        .parse()
        .context("pod.address")
}

/// The store may start together with the pods: its first answer is waited for, for a while.
async fn first_contact(settings: &Settings, machine: &dyn Machine) -> Result<Arc<dyn Store>> {
    let began = machine.boot();
    let mut said = false;
    loop {
        let error = match connect(settings).await {
            Ok(store) => match store.now().await {
                Ok(_) => return Ok(store),
                Err(error) => error,
            },
            Err(error) => error,
        };
        if !error.is_transient() || machine.boot().saturating_sub(began) > STORE_WAIT {
            return Err(error).with_context(|| format!("store {}", settings.store));
        }
        if !std::mem::replace(&mut said, true) {
            tracing::warn!(store = %settings.store, %error, "waiting for the store");
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

fn runtime_config(settings: &Settings, capacity: u32) -> Result<RuntimeConfig> {
    let cache = match &settings.plugins.cache {
        Some(cache) => cache.clone(),
        None => crate::config::cache_directory()
            .context("plugins.cache: no cache directory is known; name one")?,
    };
    let mut config = RuntimeConfig {
        cache_dir: Some(cache),
        memory_max: settings.limits.memory.bytes(),
        pool: Some(PoolConfig::for_attempts(
            capacity,
            settings.limits.memory.bytes(),
        )),
        offer_interval: settings.runtime.checkpoint_interval.get(),
        ..RuntimeConfig::default()
    };
    if let Some(threads) = settings.runtime.threads {
        config.guest_threads = threads.max(1);
    }
    Ok(config)
}

fn start_plugins(settings: &Settings, capacity: u32) -> Result<Arc<dyn Plugins>> {
    let runtime = Runtime::new(runtime_config(settings, capacity)?)
        .context("cannot create the plugin runtime")?;
    let directory = settings.plugins.directory.clone();
    let watch = DirWatchConfig {
        poll: settings.plugins.poll.get(),
        ..DirWatchConfig::default()
    };
    let registry =
        PluginRegistry::start(runtime.clone(), directory.clone(), RegistryConfig { watch })
            .with_context(|| {
                format!(
                    "plugins.directory: cannot read the plugins in {}",
                    directory.display()
                )
            })?;
    Ok(Arc::new(SandboxedPlugins::new(registry, runtime)))
}
