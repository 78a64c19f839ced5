//! The data of one attempt's store: everything a guest can reach, and nothing else.

use std::sync::Arc;
use std::time::Instant;

use wasmtime::component::ResourceTable;
use wasmtime::{Engine, Store, UpdateDeadline};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};
use wasmtime_wasi_http::{WasiHttpCtx, WasiHttpCtxView, WasiHttpView};

use crate::attempt_host::{AttemptHost, LogSource};
use crate::config::RuntimeConfig;
use crate::control::AttemptControl;
use crate::host::checkpoint::{CheckpointDesk, DeskFacts};
use crate::host::http::HttpGate;
use crate::host::log::LogDesk;
use crate::host::progress::ProgressDesk;
use crate::host::state::StateDesk;
use crate::host::stdio::Capture;
use crate::http_client::Client;
use crate::limiter::{MemoryLimiter, Retained};
use crate::spec::{Grants, Limits, SavedCheckpoint};
use crate::watchdog::Watchdog;

/// Most random bytes that one call may ask for: the host allocates them.
const RANDOM_MAX: u64 = 1 << 20;

/// What a store holds for its guest.
pub(crate) struct Sandbox {
    wasi: WasiCtx,
    http: WasiHttpCtx,
    gate: HttpGate,
    pub(crate) table: ResourceTable,
    pub(crate) limiter: MemoryLimiter,
    pub(crate) host: Arc<dyn AttemptHost>,
    pub(crate) control: AttemptControl,
    pub(crate) grants: Arc<Grants>,
    pub(crate) checkpoint: Arc<CheckpointDesk>,
    pub(crate) state: StateDesk,
    pub(crate) log: Arc<LogDesk>,
    pub(crate) progress: Arc<ProgressDesk>,
    pub(crate) stdout: Capture,
    pub(crate) stderr: Capture,
}

/// What a sandbox is made of.
pub(crate) struct SandboxSpec<'a> {
    pub(crate) config: &'a RuntimeConfig,
    pub(crate) client: Arc<Client>,
    pub(crate) host: Arc<dyn AttemptHost>,
    pub(crate) control: AttemptControl,
    pub(crate) grants: Arc<Grants>,
    pub(crate) limits: &'a Limits,
    pub(crate) checkpoint: Option<SavedCheckpoint>,
    /// Schema number for what the guest saves.
    pub(crate) schema: u32,
    pub(crate) attempt: u32,
}

impl Sandbox {
    pub(crate) fn new(spec: SandboxSpec<'_>) -> Self {
        let limits = spec.limits;
        let retained = Retained::default();
        let log = LogDesk::new(spec.host.clone(), limits);
        let stdout = Capture::new(LogSource::Stdout, log.clone());
        let stderr = Capture::new(LogSource::Stderr, log.clone());
        let mut wasi = WasiCtx::builder();
        wasi.stdout(stdout.clone())
            .stderr(stderr.clone())
            .envs(&spec.grants.env)
            .allow_tcp(false)
            .allow_udp(false)
            .allow_ip_name_lookup(false)
            .max_random_size(RANDOM_MAX);
        let mut table = ResourceTable::new();
        table.set_max_capacity(limits.resources as usize);
        Self {
            wasi: wasi.build(),
            http: WasiHttpCtx::new(),
            gate: HttpGate::new(
                spec.client,
                spec.grants.clone(),
                spec.control.clone(),
                log.clone(),
                limits,
            ),
            table,
            limiter: MemoryLimiter::new(limits.memory, retained.clone()),
            checkpoint: CheckpointDesk::new(
                spec.host.clone(),
                spec.control.clone(),
                log.clone(),
                retained.clone(),
                spec.checkpoint,
                DeskFacts {
                    limit: limits.checkpoint,
                    interval: spec.config.offer_interval,
                    schema: spec.schema,
                    attempt: spec.attempt,
                },
            ),
            state: StateDesk::new(limits.state, retained),
            progress: ProgressDesk::new(spec.host.clone(), spec.config.progress_interval),
            host: spec.host,
            control: spec.control,
            grants: spec.grants,
            log,
            stdout,
            stderr,
        }
    }

    /// A store for this sandbox in which every limit is in force.
    pub(crate) fn into_store(
        self,
        engine: &Engine,
        limits: &Limits,
        started: Instant,
    ) -> (Store<Self>, Watchdog) {
        let watchdog = Watchdog::new(self.control.clone(), limits, started);
        let mut store = Store::new(engine, self);
        store.limiter(|sandbox| &mut sandbox.limiter);
        store.set_hostcall_fuel(usize::try_from(limits.largest_payload()).unwrap_or(usize::MAX));
        store.set_max_component_handles(limits.resources as usize * 4);
        store.set_epoch_deadline(1);
        let dog = watchdog.clone();
        store.epoch_deadline_callback(move |_| match dog.check() {
            Some(halt) => Err(halt.into()),
            None => Ok(UpdateDeadline::Yield(1)),
        });
        (store, watchdog)
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // Were the attempt's future dropped, a save in the background would outlive it.
        self.checkpoint.abandon();
    }
}

impl WasiView for Sandbox {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView {
            ctx: &mut self.wasi,
            table: &mut self.table,
        }
    }
}

impl WasiHttpView for Sandbox {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        WasiHttpCtxView {
            hooks: &mut self.gate,
            table: &mut self.table,
            ctx: &mut self.http,
        }
    }
}
