//! Model guests: what a plugin does as far as the platform can see it, without a sandbox.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::watch;
use wasmcron_core::ids::{Digest, Fence, JobName, PluginName, RunId};
use wasmcron_host::services::{Plugins, Program};
use wasmcron_runtime::{
    AttemptControl, AttemptEnd, AttemptHost, AttemptReport, AttemptSpec, Limits, MigrateError,
    StopReason, Trap, WriteRefused,
};

use crate::check::Witness;
use crate::jobs::{Behaviour, PLUGIN};
use crate::machine::SimMachine;

/// The plugins of one simulated pod: one name, in the version that it was last given.
pub struct ModelPlugins {
    machine: Arc<SimMachine>,
    witness: Arc<Witness>,
    versions: Mutex<Vec<Digest>>,
    version: watch::Sender<u64>,
}

/// One version of the model plugin on one pod.
struct Model {
    digest: Digest,
    machine: Arc<SimMachine>,
    witness: Arc<Witness>,
}

impl ModelPlugins {
    /// In this version.
    #[must_use]
    pub fn new(machine: Arc<SimMachine>, witness: Arc<Witness>, digest: Digest) -> ModelPlugins {
        ModelPlugins {
            machine,
            witness,
            versions: Mutex::new(vec![digest]),
            version: watch::Sender::new(0),
        }
    }

    /// A new version arrives; the old one stays for whoever names it.
    pub fn update(&self, digest: Digest) {
        self.versions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(digest);
        self.version.send_modify(|version| *version += 1);
    }

    fn program(&self, digest: Digest) -> Arc<dyn Program> {
        Arc::new(Model {
            digest,
            machine: self.machine.clone(),
            witness: self.witness.clone(),
        })
    }

    fn newest(&self) -> Option<Digest> {
        let versions = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
        versions.last().cloned()
    }
}

#[async_trait]
impl Plugins for ModelPlugins {
    fn active(&self, name: &str) -> Option<Arc<dyn Program>> {
        let digest = self.newest().filter(|_| name == PLUGIN)?;
        Some(self.program(digest))
    }

    fn by_digest(&self, digest: &Digest) -> Option<Arc<dyn Program>> {
        let versions = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
        let known = versions.contains(digest);
        drop(versions);
        known.then(|| self.program(digest.clone()))
    }

    fn serving(&self) -> BTreeMap<PluginName, Digest> {
        let name = PLUGIN.parse().ok();
        name.zip(self.newest()).into_iter().collect()
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    fn refusals(&self) -> u64 {
        0
    }

    async fn wait_loaded(&self) {}
}

#[async_trait]
impl Program for Model {
    fn digest(&self) -> &Digest {
        &self.digest
    }

    fn checkpoint_schema(&self) -> u32 {
        1
    }

    fn supports_migration(&self) -> bool {
        false
    }

    fn check_parameters(&self, _: &serde_json::Value) -> Result<(), Vec<String>> {
        Ok(())
    }

    async fn execute(&self, spec: AttemptSpec, host: Arc<dyn AttemptHost>) -> AttemptReport {
        let began = self.machine.clock().elapsed();
        let mut saved = 0;
        let end = match Attempt::new(self, &spec) {
            Ok(mut attempt) => attempt.run(&spec, host.as_ref(), &mut saved).await,
            Err(message) => AttemptEnd::Fatal { message },
        };
        AttemptReport {
            end,
            wall: self.machine.clock().elapsed() - began,
            start: Duration::ZERO,
            peak_memory: 0,
            log_dropped_lines: 0,
            log_dropped_bytes: 0,
            checkpoints_saved: saved,
            offer_lost: None,
            on_success_state: Vec::new(),
        }
    }

    async fn migrate_checkpoint(
        &self,
        _: u32,
        _: Bytes,
        _: &Limits,
    ) -> Result<Bytes, MigrateError> {
        Err(MigrateError::Unsupported)
    }
}

/// How this attempt will end if nothing stops it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Temper {
    Works,
    Fails,
    Traps,
    Hangs,
}

/// One attempt of a model guest.
struct Attempt<'a> {
    model: &'a Model,
    run: RunId,
    job: JobName,
    fence: Fence,
    behaviour: Behaviour,
    temper: Temper,
    /// The step at which its temper shows.
    turns_at: u32,
    step: u32,
    ends_at: Duration,
}

impl<'a> Attempt<'a> {
    fn new(model: &'a Model, spec: &AttemptSpec) -> Result<Attempt<'a>, String> {
        let text = |error: wasmcron_core::ids::IdError| error.to_string();
        let run: RunId = spec.call.run_id.parse().map_err(text)?;
        let behaviour: Behaviour =
            serde_json::from_str(&spec.call.parameters).map_err(|error| error.to_string())?;
        let step = match &spec.checkpoint {
            None => 0,
            Some(saved) => read_checkpoint(&run, &saved.data)?,
        };
        let mut dice = model.machine.dice_for(&run, spec.call.attempt);
        let throw = dice.u8(0..100);
        let (fails, traps) = (behaviour.fails, behaviour.fails + behaviour.traps);
        let temper = if throw < fails {
            Temper::Fails
        } else if throw < traps {
            Temper::Traps
        } else if throw < traps + behaviour.hangs {
            Temper::Hangs
        } else {
            Temper::Works
        };
        let drawn = dice.u32(0..=behaviour.steps);
        let (temper, turns_at) = if spec.call.attempt <= behaviour.fails_first {
            (Temper::Fails, step + 1)
        } else {
            (temper, drawn)
        };
        let now = model.machine.clock().elapsed();
        Ok(Attempt {
            job: run.job(),
            run,
            fence: Fence(spec.call.fence),
            turns_at,
            behaviour,
            temper,
            step,
            ends_at: now + spec.limits.time.unwrap_or(Duration::MAX),
            model,
        })
    }

    async fn run(
        &mut self,
        spec: &AttemptSpec,
        host: &dyn AttemptHost,
        saved: &mut u32,
    ) -> AttemptEnd {
        let control = &spec.control;
        let limit = spec.limits.time.unwrap_or(Duration::MAX);
        self.model
            .witness
            .begins(&self.run, self.fence, spec.call.attempt, self.step);
        while self.step < self.behaviour.steps {
            if self.temper != Temper::Works && self.step >= self.turns_at {
                return self.turn(control, limit).await;
            }
            let step = Duration::from_millis(self.behaviour.step_ms);
            if let Err(end) = self.wait(step, control, limit).await {
                return end;
            }
            self.model
                .witness
                .effect(&self.job, &self.run, self.fence, self.step);
            self.step += 1;
            let due = self.behaviour.save_every > 0
                && (self.step.is_multiple_of(self.behaviour.save_every));
            let asked = self
                .behaviour
                .heeds
                .then(|| control.stop_reason())
                .flatten();
            if due || (asked.is_some() && self.behaviour.save_every > 0) {
                match self.save(host, control, limit).await {
                    Ok(true) => *saved += 1,
                    Ok(false) => {}
                    Err(end) => return end,
                }
            }
            if let Some(end) = asked.and_then(|reason| self.heed(reason)) {
                return end;
            }
        }
        AttemptEnd::Done {
            summary: String::new(),
        }
    }

    /// What a request to stop makes of it.
    fn heed(&self, reason: StopReason) -> Option<AttemptEnd> {
        match reason {
            StopReason::Cancelled => Some(AttemptEnd::Cancelled),
            StopReason::Reload | StopReason::Draining | StopReason::TimeOutNear
                if self.behaviour.save_every > 0 =>
            {
                Some(AttemptEnd::Yielded)
            }
            _ => None,
        }
    }

    /// Its temper shows.
    async fn turn(&self, control: &AttemptControl, limit: Duration) -> AttemptEnd {
        match self.temper {
            Temper::Fails | Temper::Works => AttemptEnd::Retry {
                message: "the model fails".into(),
                after: None,
            },
            Temper::Traps => AttemptEnd::Trap(Trap {
                kind: "panic".into(),
                message: "the model traps".into(),
                backtrace: None,
            }),
            Temper::Hangs => match self.wait(Duration::MAX, control, limit).await {
                Ok(()) => AttemptEnd::HostError {
                    message: "for ever ended".into(),
                },
                Err(end) => end,
            },
        }
    }

    /// Saves where it is; false if the store did not take it.
    async fn save(
        &self,
        host: &dyn AttemptHost,
        control: &AttemptControl,
        limit: Duration,
    ) -> Result<bool, AttemptEnd> {
        let data = Bytes::from(format!("{}|{}", self.run, self.step));
        let saving = host.save_checkpoint(data);
        let said = tokio::select! {
            biased;
            ended = self.wait(Duration::MAX, control, limit) => return Err(ended.err().unwrap_or(AttemptEnd::LeaseLost)),
            said = saving => said,
        };
        match said {
            Ok(()) => Ok(true),
            Err(WriteRefused::Unavailable(_)) => Ok(false),
            Err(refused) => Err(AttemptEnd::Retry {
                message: refused.to_string(),
                after: None,
            }),
        }
    }

    /// Time passes, unless the attempt is ended; then how it ends.
    async fn wait(
        &self,
        time: Duration,
        control: &AttemptControl,
        limit: Duration,
    ) -> Result<(), AttemptEnd> {
        let clock = self.model.machine.clock();
        let until = clock.elapsed().saturating_add(time);
        loop {
            let changed = control.changed();
            let now = clock.elapsed();
            if let Some(why) = control.interrupted() {
                return Err(AttemptEnd::Interrupted { why });
            }
            let lease = self.model.machine.since_boot(control.lease());
            if now >= lease {
                return Err(AttemptEnd::LeaseLost);
            }
            if now >= self.ends_at {
                return Err(AttemptEnd::TimedOut { limit });
            }
            if now >= until {
                return Ok(());
            }
            let next = until.min(lease).min(self.ends_at);
            tokio::select! {
                biased;
                () = changed => {}
                () = tokio::time::sleep_until(clock.at(next)) => {}
            }
        }
    }
}

fn read_checkpoint(run: &RunId, data: &[u8]) -> Result<u32, String> {
    let text = std::str::from_utf8(data).map_err(|error| error.to_string())?;
    match text.rsplit_once('|') {
        Some((of, step)) if of == run.as_str() => step
            .parse()
            .map_err(|error| format!("step {step}: {error}")),
        _ => Err(format!("the checkpoint {text:?} is not one of {run}")),
    }
}
