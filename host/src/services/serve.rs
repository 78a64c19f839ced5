//! Starts a pod's loops, and ends them in the right order.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, broadcast, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use wasmcron_core::ids::{PodAddress, PodRef, SessionId};
use wasmcron_runtime::{
    DirWatchConfig, PluginRegistry, PoolConfig, RegistryConfig, Runtime, RuntimeConfig, StopReason,
    Why,
};
use wasmcron_store::Store;
use wasmcron_store::control::Wake;
use wasmcron_store::pods::Standing;

use super::attempts::Attempts;
use super::clock::{StoreClock, boot};
use super::jobs::JobBook;
use super::lead::{self, LeadSetter};
use super::metrics::Metrics;
use super::outage::Outage;
use super::pod::{Fatal, Pod, WAKES_MAX};
use super::{elector, janitor, lease, recoverer, reloader, scheduler, subscriber};
use crate::api;
use crate::config::settings::Settings;
use crate::store::{connect, promise};

/// How long the first answer of the store is waited for.
const STORE_WAIT: Duration = Duration::from_secs(30);
/// Signals that come within this time are one.
const SECOND_SIGNAL: Duration = Duration::from_millis(500);
/// How long a leaving pod waits for answers to what it took.
const SETTLE_WAIT: Duration = Duration::from_secs(3);
/// How long a guest that was interrupted at the end of a drain has until its end is written.
const LAST_WORDS: Duration = Duration::from_secs(3);

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
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let starting = async {
        let (pod, setter, fatal) = assemble(settings).await?;
        let listener = api::bind(&pod).await?;
        let http = listener.address();
        let (loops, lease_thread) = start_loops(&pod, setter, listener).await?;
        started(http);
        anyhow::Ok((pod, fatal, loops, lease_thread))
    };
    let (pod, mut fatal, mut loops, lease_thread) = tokio::select! {
        begun = starting => begun?,
        // What was begun ends with the process; the pod took no task yet.
        _ = terminate.recv() => return Ok(()),
        _ = interrupt.recv() => return Ok(()),
    };
    let ended = tokio::select! {
        // A loop that ends itself says why first.
        biased;
        why = fatal.recv() => Err(why),
        _ = terminate.recv() => Ok("SIGTERM"),
        _ = interrupt.recv() => Ok("SIGINT"),
        ended = loops.join_next() => {
            let text = ended.map_or_else(String::new, |ended| format!("{ended:?}"));
            Err(Some(Fatal::LoopEnded("service", text)))
        }
    };
    let result = match ended {
        Ok(signal) => {
            let again = async {
                let first = tokio::time::Instant::now();
                // `timeout` and terminals signal a process and its group: that is one wish, not two.
                while first.elapsed() < SECOND_SIGNAL {
                    tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
                }
            };
            drain(&pod, signal, again).await;
            Ok(())
        }
        Err(why) => {
            let why = why.unwrap_or(Fatal::LoopEnded("service", "without a reason".into()));
            interrupt_all(&pod, Why::LockLost);
            Err(why.into())
        }
    };
    pod.stopped.cancel();
    let _ = tokio::time::timeout(LAST_WORDS, async {
        while loops.join_next().await.is_some() {}
    })
    .await;
    let _ = tokio::task::spawn_blocking(move || lease_thread.join()).await;
    result
}

/// Connects, loads, registers: everything that may fail before the pod serves.
async fn assemble(settings: Settings) -> Result<(Arc<Pod>, LeadSetter, mpsc::Receiver<Fatal>)> {
    let address = address(&settings)?;
    let session = SessionId::new(&ulid::Ulid::generate().to_string())?;
    let me = PodRef { address, session };
    let store = first_contact(&settings).await?;
    tracing::info!(store = %settings.store, promise = promise(&settings.store), "store.opened");
    let clock = Arc::new(StoreClock::default());
    // A server that forbids such questions serves all the same.
    for warning in store.warnings().await.unwrap_or_default() {
        tracing::warn!(store = %settings.store, warning, "store.warning");
    }
    let sent = boot();
    let started = store
        .now()
        .await
        .context("the store does not tell its time")?;
    clock.measure(sent, started);
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let capacity = settings
        .pod
        .capacity
        .unwrap_or_else(|| u32::try_from(2 * cores).unwrap_or(4))
        .max(1);
    let runtime = Runtime::new(runtime_config(&settings, capacity)?)
        .context("cannot create the plugin runtime")?;
    let plugins = start_plugins(&settings, &runtime)?;
    let (setter, lead) = lead::channel(me.clone());
    let (fatal, fatals) = mpsc::channel(4);
    let pod = Arc::new(Pod {
        me,
        capacity,
        started,
        store,
        clock,
        metrics: Arc::new(Metrics::new()?),
        jobs: JobBook::default(),
        plugins,
        runtime,
        attempts: Attempts::default(),
        lead,
        wakes: broadcast::Sender::new(WAKES_MAX),
        beat_now: Notify::new(),
        extend_now: Notify::new(),
        last_take: AtomicI64::new(started.as_millis()),
        last_beat: AtomicU64::new(wasmcron_runtime::boot_millis()),
        leaving: CancellationToken::new(),
        stopped: CancellationToken::new(),
        fatal,
        settings,
    });
    Ok((pod, setter, fatals))
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
async fn first_contact(settings: &Settings) -> Result<Arc<dyn Store>> {
    let began = boot();
    let mut said = false;
    loop {
        let error = match connect(settings).await {
            Ok(store) => match store.now().await {
                Ok(_) => return Ok(store),
                Err(error) => error,
            },
            Err(error) => error,
        };
        if !error.is_transient() || boot().saturating_sub(began) > STORE_WAIT {
            return Err(error).with_context(|| format!("store: no answer from {}", settings.store));
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

fn start_plugins(settings: &Settings, runtime: &Arc<Runtime>) -> Result<Arc<PluginRegistry>> {
    let directory = settings.plugins.directory.clone();
    let watch = DirWatchConfig {
        poll: settings.plugins.poll.get(),
        ..DirWatchConfig::default()
    };
    PluginRegistry::start(runtime.clone(), directory.clone(), RegistryConfig { watch })
        .with_context(|| {
            format!(
                "plugins.directory: cannot read the plugins in {}",
                directory.display()
            )
        })
}

/// Registers the pod and starts what must run for as long as it does.
async fn start_loops(
    pod: &Arc<Pod>,
    setter: LeadSetter,
    listener: api::Listener,
) -> Result<(JoinSet<()>, std::thread::JoinHandle<()>)> {
    let mut loops = JoinSet::new();
    let at = listener.address();
    loops.spawn(api::run(pod.clone(), listener));
    let follow_jobs = reloader::start(pod).await?;
    match pod
        .store
        .register(&pod.me, pod.started, &pod.report())
        .await
        .context("cannot register the pod")?
    {
        Standing::Current { .. } | Standing::Unknown => {}
        Standing::Superseded => bail!(Fatal::Superseded(pod.me.address.to_string())),
    }
    let settings = pod.settings.clone();
    let lease_thread = lease::spawn(pod.clone(), move || async move { connect(&settings).await })?;
    loops.spawn(forward_wakes(pod.clone()));
    loops.spawn(follow_jobs);
    loops.spawn(reloader::report(pod.clone()));
    loops.spawn(elector::run(pod.clone(), setter));
    loops.spawn(scheduler::run(pod.clone()));
    loops.spawn(recoverer::run(pod.clone()));
    loops.spawn(janitor::run(pod.clone()));
    loops.spawn(subscriber::run(pod.clone()));
    tracing::info!(pod = %pod.me.address, session = %pod.me.session, capacity = pod.capacity, store = %pod.settings.store, http = %at, "pod.started");
    Ok((loops, lease_thread))
}

/// Hands the store's wake-ups to every loop.
async fn forward_wakes(pod: Arc<Pod>) {
    let mut wakes = pod.store.listen();
    loop {
        tokio::select! {
            () = pod.stopped.cancelled() => return,
            wake = wakes.recv() => match wake {
                Some(wake) => {
                    if matches!(wake, Wake::Cancel { .. } | Wake::Subscribed) {
                        pod.extend_now.notify_one();
                    }
                    // Nobody listens only while the pod ends.
                    let _ = pod.wakes.send(wake);
                }
                None => {
                    if !pod.rest(Duration::from_secs(1)).await {
                        return;
                    }
                    wakes = pod.store.listen();
                }
            },
        }
    }
}

/// Leaves the fleet: takes nothing more, lets guests yield, and gives up what does not end in time.
async fn drain(pod: &Arc<Pod>, signal: &str, again: impl Future<Output = ()>) {
    let limit = pod.settings.pod.drain_timeout.get();
    tracing::info!(signal, running = pod.attempts.running(), "pod.draining");
    pod.attempts.drain();
    pod.leaving.cancel();
    // An unanswered claim is settled before the queue is given up: what it claimed must not be lost.
    let _ = tokio::time::timeout(SETTLE_WAIT, pod.attempts.settled()).await;
    let outage = Outage::new("leave");
    if let Err(error) = pod.store.leave(&pod.me).await {
        outage.failed(&error, &pod.metrics);
    }
    for one in pod.attempts.executing() {
        one.control.stop(StopReason::Draining);
    }
    tokio::select! {
        () = pod.attempts.idle() => {}
        () = tokio::time::sleep(limit) => tracing::warn!("drain_timeout is over; the remaining attempts are given up"),
        () = again => tracing::warn!("a second signal; the remaining attempts are given up"),
    }
    interrupt_all(pod, Why::Shutdown);
    let _ = tokio::time::timeout(LAST_WORDS, pod.attempts.idle()).await;
    tracing::info!("pod.stopped");
}

fn interrupt_all(pod: &Pod, why: Why) {
    for one in pod.attempts.executing() {
        one.control.interrupt(why);
    }
}
