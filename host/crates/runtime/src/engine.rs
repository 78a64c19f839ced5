//! The runtime: one engine, the threads that guests run on, and the calls of the public API.

use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use bytes::Bytes;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use wasmtime::component::{HasSelf, Linker};
use wasmtime::{Config, Enabled, Engine, InstanceAllocationStrategy, PoolingAllocationConfig};

use crate::attempt_host::AttemptHost;
use crate::bindings::wasmcron::job;
use crate::cache::CompileCache;
use crate::config::{PoolConfig, RuntimeConfig};
use crate::execute::{self, MigrateError};
use crate::http_client::Client;
use crate::load;
use crate::plugin::{LoadError, LoadStage, Plugin};
use crate::report::AttemptReport;
use crate::sandbox::Sandbox;
use crate::spec::{AttemptSpec, Limits};
use crate::ticker::Ticker;

/// Host stack that a call may need on top of the guest's.
const HOST_STACK: usize = 1 << 20;
/// Plugins that are asked who they are at the same time.
pub(crate) const DESCRIBING_MAX: usize = 8;
/// What a place in the pool keeps of the pages its last guest used, so that the next one finds them
/// without a page fault. The rest goes back to the system.
const KEPT_OF_MEMORY: usize = 512 << 10;
const KEPT_OF_TABLE: usize = 32 << 10;
/// Largest table, in elements: an interpreter's functions all stand in one.
const TABLE_MAX: usize = 1 << 16;
/// Memories of one component on average; the largest number is that of its core instances.
const MEMORIES_EACH: u32 = 4;

/// One engine with its threads: guests execute here and nowhere else, so that a guest that
/// computes for hours delays no lease, no heartbeat and no request of the host.
pub struct Runtime {
    shared: Arc<Shared>,
    /// Taken when it is dropped: a runtime must not be dropped where async code runs.
    guests: Option<tokio::runtime::Runtime>,
}

/// What loading and executing need.
pub(crate) struct Shared {
    pub(crate) config: RuntimeConfig,
    pub(crate) engine: Engine,
    pub(crate) linker: Linker<Sandbox>,
    pub(crate) ticker: Ticker,
    pub(crate) cache: Option<CompileCache>,
    pub(crate) compiling: Arc<Semaphore>,
    pub(crate) describing: Semaphore,
    pub(crate) client: Arc<Client>,
}

impl Runtime {
    /// Starts the engine, the guest threads and the ticker.
    ///
    /// # Errors
    ///
    /// One sentence: a setting that cannot work, a cache folder that is not private, or threads that
    /// the system does not give.
    pub fn new(config: RuntimeConfig) -> anyhow::Result<Arc<Self>> {
        let engine = engine(&config)
            .map_err(anyhow::Error::from)
            .context("cannot start the engine")?;
        let linker = linker(&engine)
            .map_err(anyhow::Error::from)
            .context("cannot link the host interfaces")?;
        let cache = config
            .cache_dir
            .as_deref()
            .map(|dir| CompileCache::open(dir, &engine))
            .transpose()?;
        let ticker =
            Ticker::start(&engine, config.tick).context("cannot start the epoch ticker")?;
        // A guest holds its thread for a whole tick, so the runtime has to look at timers and sockets
        // more often than its default of every 61 turns.
        let guests = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(config.guest_threads.max(1))
            .thread_name("guest")
            .event_interval(4)
            .global_queue_interval(4)
            .max_blocking_threads(16)
            .enable_all()
            .build()
            .context("cannot start the guest threads")?;
        let client = Client::new(config.http_ca_file.clone());
        Ok(Arc::new(Self {
            shared: Arc::new(Shared {
                config,
                engine,
                linker,
                ticker,
                cache,
                compiling: Arc::new(Semaphore::new(1)),
                describing: Semaphore::new(DESCRIBING_MAX),
                client,
            }),
            guests: Some(guests),
        }))
    }

    /// Loads a component: checks it, compiles it (one at a time, on a thread of its own) and asks it
    /// who it is. `name` is what jobs refer to.
    ///
    /// # Errors
    ///
    /// The step that refused it and one sentence.
    pub async fn load(&self, name: &str, bytes: Bytes) -> Result<Arc<Plugin>, LoadError> {
        let work = load::load(self.shared.clone(), name.to_owned(), bytes);
        match self.spawn(work).await {
            Ok(result) => result,
            Err(why) => Err(LoadError::new(
                name,
                LoadStage::Pod,
                format!("cannot be loaded: {why}"),
            )),
        }
    }

    /// Makes one attempt and reports how it ended, whatever happens. Dropping the future ends the
    /// attempt at once, without a last save of an offered checkpoint.
    pub async fn execute(
        &self,
        plugin: &Arc<Plugin>,
        attempt: AttemptSpec,
        host: Arc<dyn AttemptHost>,
    ) -> AttemptReport {
        let started = Instant::now();
        let _ticking = self.shared.ticker.hold();
        let work = execute::attempt(self.shared.clone(), plugin.clone(), attempt, host, started);
        self.spawn(work)
            .await
            .unwrap_or_else(|why| execute::host_error(why, started))
    }

    /// Asks the plugin to translate a checkpoint of `from_schema` into its own format, under
    /// `limits` and without grants.
    ///
    /// # Errors
    ///
    /// It cannot, will not, or broke.
    pub async fn migrate_checkpoint(
        &self,
        plugin: &Arc<Plugin>,
        from_schema: u32,
        data: Bytes,
        limits: &Limits,
    ) -> Result<Bytes, MigrateError> {
        let _ticking = self.shared.ticker.hold();
        let work = execute::migrate(
            self.shared.clone(),
            plugin.clone(),
            from_schema,
            data,
            limits.clone(),
        );
        self.spawn(work)
            .await
            .unwrap_or_else(|why| Err(MigrateError::Failed(why)))
    }

    /// Largest plugin file, in bytes.
    pub(crate) fn plugin_max(&self) -> u64 {
        self.shared.config.plugin_max
    }

    /// Runs a future on the guest threads; it ends when the caller's future is dropped.
    async fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, String> {
        let Some(guests) = &self.guests else {
            return Err("the runtime has shut down".to_owned());
        };
        let mut task = AbortOnDrop(guests.spawn(work));
        match (&mut task.0).await {
            Ok(value) => Ok(value),
            Err(error) if error.is_panic() => {
                let panic = error.into_panic();
                let text = panic
                    .downcast_ref::<&str>()
                    .map(|text| (*text).to_owned())
                    .or_else(|| panic.downcast_ref::<String>().cloned())
                    .unwrap_or_default();
                Err(format!(
                    "the host panicked: {}",
                    crate::text::message(&text)
                ))
            }
            Err(_) => Err("the runtime has shut down".to_owned()),
        }
    }
}

struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        if let Some(guests) = self.guests.take() {
            guests.shutdown_background();
        }
    }
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runtime")
            .field("config", &self.shared.config)
            .finish_non_exhaustive()
    }
}

/// With a pool if one is asked for. Where the address space that a pool reserves is not to be had,
/// sandboxes are allocated one by one: they start later and do the same.
fn engine(config: &RuntimeConfig) -> wasmtime::Result<Engine> {
    if let Some(pool) = &config.pool {
        let mut pooled = engine_config(config);
        pooled.allocation_strategy(InstanceAllocationStrategy::Pooling(pooling(pool)));
        match Engine::new(&pooled) {
            Ok(engine) => return Ok(engine),
            Err(error) => {
                tracing::warn!(error = format!("{error:#}"), "no pool of sandboxes");
            }
        }
    }
    Engine::new(&engine_config(config))
}

fn engine_config(config: &RuntimeConfig) -> Config {
    let mut engine = Config::new();
    engine
        .wasm_component_model(true)
        .wasm_component_model_async(true)
        .epoch_interruption(true)
        .max_wasm_stack(config.stack)
        .async_stack_size(config.stack + HOST_STACK)
        .native_unwind_info(false);
    engine
}

fn pooling(pool: &PoolConfig) -> PoolingAllocationConfig {
    let each = pool.core_instances_each;
    let all = pool.instances.saturating_mul(each);
    let mut config = PoolingAllocationConfig::default();
    config
        .total_component_instances(pool.instances)
        .max_core_instances_per_component(each)
        .total_core_instances(all)
        .max_memories_per_component(each)
        .total_memories(pool.instances.saturating_mul(MEMORIES_EACH.min(each)))
        .max_tables_per_component(each)
        .total_tables(all)
        .table_elements(TABLE_MAX)
        .total_stacks(pool.instances)
        .max_memory_size(pool.memory);
    // Without this call of newer kernels the first pages would be kept, not the used ones.
    if PoolingAllocationConfig::is_pagemap_scan_available() {
        config
            .pagemap_scan(Enabled::Yes)
            .linear_memory_keep_resident(KEPT_OF_MEMORY)
            .table_keep_resident(KEPT_OF_TABLE);
    }
    config
}

/// All of WASI 0.2 that the contract names, and our own interfaces.
fn linker(engine: &Engine) -> wasmtime::Result<Linker<Sandbox>> {
    let mut linker = Linker::new(engine);
    wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(&mut linker)?;
    job::checkpoint::add_to_linker::<_, HasSelf<Sandbox>>(&mut linker, |sandbox| sandbox)?;
    job::state::add_to_linker::<_, HasSelf<Sandbox>>(&mut linker, |sandbox| sandbox)?;
    job::control::add_to_linker::<_, HasSelf<Sandbox>>(&mut linker, |sandbox| sandbox)?;
    job::progress::add_to_linker::<_, HasSelf<Sandbox>>(&mut linker, |sandbox| sandbox)?;
    job::log::add_to_linker::<_, HasSelf<Sandbox>>(&mut linker, |sandbox| sandbox)?;
    job::secrets::add_to_linker::<_, HasSelf<Sandbox>>(&mut linker, |sandbox| sandbox)?;
    Ok(linker)
}
