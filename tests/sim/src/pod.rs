//! One pod of a simulated fleet over all its starts: what a supervisor, an operator and a fault do to
//! its process.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use wasmcron_core::ids::{Digest, PodAddress};
use wasmcron_core::job::Job;
use wasmcron_host::config::settings::Settings;
use wasmcron_host::services::{Connect, Loops, Parts, Pod};
use wasmcron_store::Store;

use crate::check::Witness;
use crate::clock::{Clock, Wall};
use crate::gate::{Gate, Gated};
use crate::guests::ModelPlugins;
use crate::machine::SimMachine;
use crate::mutants::{Mutant, Seat};
use crate::net::{Link, Network};

/// Attempts that one simulated pod executes at once.
const CAPACITY: u32 = 4;
/// How soon a supervisor starts a process again that ended by itself.
const START_AGAIN: Duration = Duration::from_secs(1);

/// What all pods of a world share.
#[derive(Clone)]
pub struct Ground {
    /// True time.
    pub clock: Clock,
    /// The way to the store.
    pub net: Arc<Network>,
    /// Who watches.
    pub witness: Arc<Witness>,
    /// The seed of the world.
    pub seed: u64,
    /// Whether the CPU time of pods is measured.
    pub metered: bool,
    /// What is broken on purpose, should it be in the pods.
    pub mutant: Option<Mutant>,
}

/// One pod.
pub struct Host {
    address: PodAddress,
    ground: Ground,
    wall: Wall,
    up: watch::Sender<bool>,
    killed: Notify,
    replaced: Notify,
    inner: Mutex<Inner>,
}

struct Inner {
    dice: fastrand::Rng,
    jobs: Vec<Arc<Job>>,
    plugin: Digest,
    process: Option<Process>,
}

/// One start of it.
#[derive(Clone)]
struct Process {
    gate: Arc<Gate>,
    orders: mpsc::Sender<&'static str>,
    running: Arc<Mutex<Option<Running>>>,
}

/// What can be reached of a process once it serves.
struct Running {
    pod: Arc<Pod>,
    plugins: Arc<ModelPlugins>,
}

impl Host {
    /// A pod that is up from the beginning.
    #[must_use]
    pub fn new(
        address: PodAddress,
        ground: Ground,
        mut dice: fastrand::Rng,
        jobs: Vec<Arc<Job>>,
        plugin: Digest,
    ) -> Arc<Host> {
        let off = dice.i64(-200..=200);
        Arc::new(Host {
            address,
            wall: Wall::new(ground.clock.clone(), off),
            ground,
            up: watch::Sender::new(true),
            killed: Notify::new(),
            replaced: Notify::new(),
            inner: Mutex::new(Inner {
                dice,
                jobs,
                plugin,
                process: None,
            }),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn process(&self) -> Option<Process> {
        self.lock().process.clone()
    }

    /// Its address.
    #[must_use]
    pub fn address(&self) -> &PodAddress {
        &self.address
    }

    /// Its wall clock.
    #[must_use]
    pub fn wall(&self) -> &Wall {
        &self.wall
    }

    /// Its gate, while a process runs.
    #[must_use]
    pub fn gate(&self) -> Option<Arc<Gate>> {
        self.process().map(|process| process.gate)
    }

    /// SIGKILL; it stays down until [`Self::start`].
    pub fn kill(&self) {
        self.up.send_replace(false);
        if let Some(process) = self.process() {
            process.gate.kill();
        }
        self.killed.notify_one();
    }

    /// SIGTERM; it stays down until [`Self::start`].
    pub fn terminate(&self) {
        self.up.send_replace(false);
        if let Some(process) = self.process() {
            let _ = process.orders.try_send("SIGTERM");
        }
    }

    /// It may start again.
    pub fn start(&self) {
        self.up.send_replace(true);
    }

    /// SIGSTOP; the gate to reopen with.
    #[must_use]
    pub fn freeze(&self) -> Option<Arc<Gate>> {
        let gate = self.gate()?;
        gate.shut();
        Some(gate)
    }

    /// Another process starts in place of the one that runs, if one does, which is left alone.
    pub fn replace(&self) {
        if self.process().is_some() {
            self.replaced.notify_one();
        }
    }

    /// Its job files change.
    pub fn set_job(&self, index: usize, job: Arc<Job>) {
        let mut inner = self.lock();
        inner.jobs[index] = job;
        let (jobs, process) = (inner.jobs.clone(), inner.process.clone());
        drop(inner);
        with_running(process, |running| {
            running.pod.jobs.replace(jobs, running.pod.clock.now());
        });
    }

    /// A new version of the plugin arrives.
    pub fn set_plugin(&self, digest: Digest) {
        let mut inner = self.lock();
        inner.plugin = digest.clone();
        let process = inner.process.clone();
        drop(inner);
        with_running(process, |running| running.plugins.update(digest));
    }

    /// Whether it leads, as it believes itself.
    #[must_use]
    pub fn leads(&self) -> bool {
        let mut leads = false;
        with_running(self.process(), |running| {
            leads = running.pod.lead.term().is_some();
        });
        leads
    }

    /// How often its process was told that a write of an attempt is fenced.
    #[must_use]
    pub fn fenced(&self) -> u64 {
        let mut fenced = 0;
        with_running(self.process(), |running| {
            fenced = running.pod.metrics.fenced.get();
        });
        fenced
    }

    /// Looks of its leading loop so far, and the CPU time of all its tasks, if that is measured.
    #[must_use]
    pub fn effort(&self) -> (u64, Duration) {
        let process = self.process();
        let spent = process
            .as_ref()
            .and_then(|process| process.gate.meter().map(crate::gate::Meter::spent));
        let mut turns = 0;
        with_running(process, |running| turns = running.pod.metrics.turns.get());
        (turns, spent.unwrap_or_default())
    }

    /// Starts it again and again, as a supervisor does.
    pub async fn supervise(self: Arc<Self>) {
        let mut up = self.up.subscribe();
        loop {
            if up.wait_for(|up| *up).await.is_err() {
                return;
            }
            let gate = Gate::open(self.ground.metered);
            let (orders, obeyed) = mpsc::channel(4);
            let process = Process {
                gate: gate.clone(),
                orders,
                running: Arc::default(),
            };
            self.lock().process = Some(process.clone());
            let (done, ended) = oneshot::channel();
            let host = self.clone();
            let life = Box::pin(async move {
                let how = host.live(&process, obeyed).await;
                // The end of a process ends all its tasks.
                process.gate.kill();
                let _ = done.send(how.map_err(|error| format!("{error:#}")));
            });
            let (killed, replaced) = (self.killed.notified(), self.replaced.notified());
            tokio::spawn(Gated::new(gate.clone(), life));
            tokio::select! {
                biased;
                () = killed => self.event("killed", String::new()),
                () = replaced => {
                    self.event("replaced", String::new());
                    self.lock().process = None;
                    continue;
                }
                how = ended => self.event("ended", format!("{how:?}")),
            }
            // The end of a process ends all its tasks.
            gate.kill();
            self.lock().process = None;
            tokio::time::sleep(START_AGAIN).await;
        }
    }

    fn event(&self, kind: &'static str, text: String) {
        let of = self.address.as_str();
        self.ground.witness.event(kind, of, || text);
    }

    /// One start, from connecting to its end.
    async fn live(&self, process: &Process, orders: mpsc::Receiver<&'static str>) -> Result<()> {
        let ground = &self.ground;
        let (jobs, plugin, dice) = {
            let mut inner = self.lock();
            let dice = inner.dice.fork();
            (inner.jobs.clone(), inner.plugin.clone(), dice)
        };
        let machine = Arc::new(SimMachine::new(
            ground.clock.clone(),
            self.wall.clone(),
            ground.seed,
            dice,
            process.gate.clone(),
        ));
        let plugins = Arc::new(ModelPlugins::new(
            machine.clone(),
            ground.witness.clone(),
            plugin,
        ));
        let link = || -> Arc<dyn Store> {
            let link = Link::new(ground.net.clone(), self.address.clone());
            let way: Arc<dyn Store> = Arc::new(link.behind(process.gate.clone()));
            let Some(mutant) = ground.mutant else {
                return way;
            };
            mutant.seat(Seat {
                way,
                stays: self.up.subscribe(),
                wall: self.wall.clone(),
            })
        };
        let (pod, ends) = Pod::create(Parts {
            machine: machine.clone(),
            store: link(),
            plugins: plugins.clone(),
            settings: settings(),
            address: self.address.clone(),
            capacity: CAPACITY,
        })
        .await?;
        self.event("started", pod.me.session.to_string());
        pod.jobs.replace(jobs, pod.clock.now());
        let running = Running {
            pod: pod.clone(),
            plugins,
        };
        *process
            .running
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(running);
        let lease_store = link();
        let connect: Connect =
            Box::new(move || Box::pin(std::future::ready(Ok(lease_store.clone()))));
        let loops = Loops::start(pod, ends, connect).await?;
        loops.run(orders).await?;
        Ok(())
    }
}

fn with_running(process: Option<Process>, look: impl FnOnce(&Running)) {
    let Some(process) = process else { return };
    let running = process
        .running
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    if let Some(running) = &*running {
        look(running);
    }
}

/// The settings of every simulated pod: the defaults, and what a simulation cannot wait for.
fn settings() -> Settings {
    let mut settings = Settings::default();
    settings.pod.drain_timeout = wasmcron_host::config::units::Span::from(Duration::from_secs(10));
    settings
}
