//! The hand that does what the plan says.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use wasmcron_core::ids::{Digest, PodAddress, RunId};
use wasmcron_core::job::Job;
use wasmcron_core::task::{Reason, Task};
use wasmcron_core::time::Timestamp;
use wasmcron_store::runs::Retention;
use wasmcron_store::schedule::Submission;
use wasmcron_store::{Result, Store};
use wasmcron_tests::memory_store::MemoryEngine;

use crate::check::Witness;
use crate::clock::{Clock, Wall};
use crate::fragile::Fragile;
use crate::jobs;
use crate::net::{Cut, Link, Network, Weather};
use crate::plan::{Fault, What};
use crate::pod::Host;
use crate::world::World;

/// Failovers up to this long break no connection.
const UNSEEN_MAX: Duration = Duration::from_millis(1_500);
/// For so long before its SIGTERM a pod hears nothing of the store.
const LAST_UNANSWERED: Duration = Duration::from_millis(500);
/// How often an operator repeats a request that had no answer.
const OPERATOR_TRIES: u32 = 40;
/// How long the operator waits before that.
const OPERATOR_WAIT: Duration = Duration::from_millis(500);

/// Does faults and requests at their times.
#[derive(Clone)]
pub struct Hand {
    clock: Clock,
    net: Arc<Network>,
    engine: Arc<MemoryEngine>,
    store_wall: Wall,
    fragile: Arc<Fragile>,
    witness: Arc<Witness>,
    hosts: Vec<Arc<Host>>,
    jobs: Vec<Arc<Job>>,
    /// People's own way to the store.
    operator: Arc<dyn Store>,
    dice: Arc<Mutex<fastrand::Rng>>,
}

impl Hand {
    /// Over a world.
    #[must_use]
    pub fn new(world: &World, dice: fastrand::Rng) -> Hand {
        let hand = Link::new(world.net.clone(), operator());
        Hand {
            clock: world.clock.clone(),
            net: world.net.clone(),
            engine: world.engine.clone(),
            store_wall: world.store_wall.clone(),
            fragile: world.fragile.clone(),
            witness: world.witness.clone(),
            hosts: world.hosts.clone(),
            jobs: world.jobs.clone(),
            operator: Arc::new(hand),
            dice: Arc::new(Mutex::new(dice)),
        }
    }

    /// Does a fault when its time comes.
    pub fn expect(&self, fault: Fault) {
        let hand = self.clone();
        tokio::spawn(async move {
            if let What::Failover { lost_ms, clock_ms } = fault.what {
                return hand.fail_over(&fault, lost_ms, clock_ms).await;
            }
            tokio::time::sleep_until(hand.clock.at(fault.at)).await;
            hand.witness.event("fault", "", || fault.to_string());
            hand.apply(&fault).await;
        });
    }

    async fn apply(&self, fault: &Fault) {
        let lasts = fault.lasts;
        match &fault.what {
            What::Kill { pod } => {
                self.trouble(*pod, true);
                self.hosts[*pod].kill();
                tokio::time::sleep(lasts).await;
                self.hosts[*pod].start();
                self.trouble(*pod, false);
            }
            What::Terminate { pod } => {
                // No trouble: a pod that leaves in good order leaves nothing behind that it has begun, also
                // if its last requests had no answer.
                let address = self.hosts[*pod].address();
                self.net.cut(address, Some(Cut::Answers));
                tokio::time::sleep(LAST_UNANSWERED).await;
                self.hosts[*pod].terminate();
                self.net.cut(address, None);
                tokio::time::sleep(lasts).await;
                self.hosts[*pod].start();
            }
            What::Freeze { pod } => {
                self.trouble(*pod, true);
                let gate = self.hosts[*pod].freeze();
                tokio::time::sleep(lasts).await;
                if let Some(gate) = gate {
                    gate.reopen();
                }
                self.trouble(*pod, false);
            }
            What::Twin { pod } => {
                self.trouble(*pod, true);
                let gate = self.hosts[*pod].freeze();
                self.hosts[*pod].replace();
                tokio::time::sleep(lasts).await;
                if let Some(gate) = gate {
                    gate.reopen();
                }
                self.trouble(*pod, false);
            }
            What::Weather { pod, weather } => {
                self.weather(*pod, *weather);
                tokio::time::sleep(lasts).await;
                self.weather(*pod, Weather::default());
            }
            What::Cut { pod, cut } => {
                self.trouble(*pod, true);
                let address = self.hosts[*pod].address();
                self.net.cut(address, Some(*cut));
                tokio::time::sleep(lasts).await;
                self.net.cut(address, None);
                self.trouble(*pod, false);
            }
            What::StoreDown => {
                self.witness.trouble(None, true);
                self.net.set_down(true);
                tokio::time::sleep(lasts).await;
                self.net.set_down(false);
                self.witness.trouble(None, false);
            }
            What::ClockStep { pod, by_ms } => self.hosts[*pod].wall().step(*by_ms),
            What::Trigger { job } => self.trigger(*job).await,
            What::Cancel { job } => self.cancel(*job).await,
            What::Hold { job, late } => self.hold(*job, *late, lasts).await,
            What::Backfill { job, before_ms } => self.backfill(*job, *before_ms).await,
            What::HalfPublish { queued } => self.fragile.arm(*queued),
            What::Reschedule { job } => self.reschedule(*job, lasts).await,
            What::NewPlugin => self.new_plugin(lasts).await,
            What::Failover { .. } => {}
        }
    }

    fn weather(&self, pod: Option<usize>, weather: Weather) {
        match pod {
            Some(pod) => self.net.set_weather_of(self.hosts[pod].address(), weather),
            None => self.net.set_weather(weather),
        }
    }

    /// The replica that takes over has what the store had a moment before.
    async fn fail_over(&self, fault: &Fault, lost_ms: u64, clock_ms: i64) {
        let lost = Duration::from_millis(lost_ms);
        let then = self.clock.at(fault.at.saturating_sub(lost));
        tokio::time::sleep_until(then).await;
        let (records, ledger) = (self.engine.snapshot(), self.witness.snapshot());
        tokio::time::sleep_until(self.clock.at(fault.at)).await;
        self.witness.event("fault", "", || fault.to_string());
        self.witness.trouble(None, true);
        // A short one happens behind a proxy: nobody's connection breaks.
        let is_seen = fault.lasts > UNSEEN_MAX;
        if is_seen {
            self.net.set_down(true);
        }
        self.engine.restore(&records);
        self.witness.restore(&ledger);
        self.store_wall.step(clock_ms);
        tokio::time::sleep(fault.lasts).await;
        self.net.set_down(false);
        self.witness.trouble(None, false);
    }

    async fn trigger(&self, job: usize) {
        let mut dice = self.dice.lock().await;
        let random = u128::from(dice.u64(..)) << 16;
        drop(dice);
        let job = &self.jobs[job];
        let now = self.clock.now();
        let millis = u64::try_from(now.as_millis()).unwrap_or(0);
        let run = RunId::manual(&job.name, ulid::Ulid::from_parts(millis, random));
        let params = job.definition.params.clone();
        let submission = Submission {
            task: Task::first(run, now, Reason::Manual, params),
            idempotency: None,
        };
        insist(|| self.operator.submit(&submission)).await;
    }

    async fn cancel(&self, job: usize) {
        let name = &self.jobs[job].name;
        let retention = Retention {
            age: Duration::from_secs(86_400 * 30),
            runs: 1_000,
        };
        let view = insist(|| self.operator.job(name)).await.flatten();
        if let Some(run) = view.and_then(|view| view.active) {
            insist(|| self.operator.cancel(&run, "somebody", retention)).await;
        }
    }

    fn trouble(&self, pod: usize, begins: bool) {
        self.witness
            .trouble(Some(self.hosts[pod].address()), begins);
    }

    /// When the job should fire next, by what is stored.
    async fn next(&self, job: usize, before: Duration) -> Option<Timestamp> {
        let view = insist(|| self.operator.job(&self.jobs[job].name))
            .await
            .flatten()?;
        let schedule = &view.stored.definition.schedule;
        schedule.next_after(view.cursor - before)
    }

    async fn backfill(&self, job: usize, before_ms: u64) {
        let before = Duration::from_millis(before_ms);
        let Some(nominal) = self.next(job, before).await else {
            return;
        };
        let job = &self.jobs[job];
        let run = RunId::nominal(&job.name, nominal);
        let params = job.definition.params.clone();
        let submission = Submission {
            task: Task::first(run, nominal, Reason::Backfill, params),
            idempotency: None,
        };
        insist(|| self.operator.submit(&submission)).await;
    }

    async fn hold(&self, job: usize, late: bool, lasts: Duration) {
        let name = &self.jobs[job].name;
        if late && let Some(next) = self.next(job, Duration::ZERO).await {
            let early = self.dice.lock().await.u64(0..=3);
            let wait = next.since(self.store_wall.now());
            tokio::time::sleep(wait.saturating_sub(Duration::from_millis(early))).await;
        }
        insist(|| self.operator.pause(name, "somebody", "a look at it")).await;
        tokio::time::sleep(lasts).await;
        insist(|| self.operator.resume(name, "somebody")).await;
    }

    async fn reschedule(&self, job: usize, within: Duration) {
        let mut dice = self.dice.lock().await;
        let changed = jobs::reschedule(&mut dice, &self.jobs[job]);
        let waits = self.waits(&mut dice, within);
        drop(dice);
        let Ok(changed) = changed else { return };
        for (host, wait) in self.hosts.iter().zip(waits) {
            let (host, changed) = (host.clone(), changed.clone());
            tokio::spawn(async move {
                tokio::time::sleep(wait).await;
                host.set_job(job, changed);
            });
        }
    }

    async fn new_plugin(&self, within: Duration) {
        let mut dice = self.dice.lock().await;
        let digest = Digest::of(&dice.u64(..).to_le_bytes());
        let waits = self.waits(&mut dice, within);
        drop(dice);
        for (host, wait) in self.hosts.iter().zip(waits) {
            let (host, digest) = (host.clone(), digest.clone());
            tokio::spawn(async move {
                tokio::time::sleep(wait).await;
                host.set_plugin(digest);
            });
        }
    }

    fn waits(&self, dice: &mut fastrand::Rng, within: Duration) -> Vec<Duration> {
        let most = u64::try_from(within.as_millis()).unwrap_or(0);
        let wait = |_: &Arc<Host>| Duration::from_millis(dice.u64(0..=most));
        self.hosts.iter().map(wait).collect()
    }
}

/// An address that no pod has.
fn operator() -> PodAddress {
    #[allow(clippy::expect_used, reason = "the text is a good address")]
    "operator".parse().expect("a good address")
}

/// Asks until there is an answer.
async fn insist<T, F: Future<Output = Result<T>>>(ask: impl Fn() -> F) -> Option<T> {
    for _ in 0..OPERATOR_TRIES {
        match ask().await {
            Ok(answer) => return Some(answer),
            Err(_) => tokio::time::sleep(OPERATOR_WAIT).await,
        }
    }
    None
}
