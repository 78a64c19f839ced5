//! A world by hand: jobs and pods of one's own, and what happens to them at exact moments.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use wasmcron_core::ids::RunId;
use wasmcron_core::job::Job;
use wasmcron_core::run::{RunRecord, RunState};
use wasmcron_core::time::Timestamp;
use wasmcron_store::Store;

use crate::clock::on_paused_time;
use crate::jobs;
use crate::mutants::Mutant;
use crate::net::Fate;
use crate::pod::Host;
use crate::world::{Setup, World};

pub use crate::jobs::{Behaviour, model};
pub use crate::net::{Cut, Weather};

/// How long a scenario waits for what must come, in simulated time.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often it looks.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// What is lost of a request.
#[derive(Clone, Copy, Debug)]
pub enum Lost {
    /// All of it.
    Request,
    /// Its answer: it is executed.
    Answer,
    /// Its answer; and it is executed only so long after its sender gave up.
    Late(Duration),
}

/// A world that a scenario acts in.
pub struct Script {
    /// The world.
    pub world: World,
}

/// Plays a scenario with so many pods and these jobs; fails if it fails, or if an invariant breaks.
///
/// # Errors
/// What went wrong, for people.
pub fn play<F: Future<Output = Result<()>>>(
    pods: usize,
    jobs: Vec<Job>,
    mutant: Option<Mutant>,
    scene: impl FnOnce(Arc<Script>) -> F,
) -> Result<()> {
    on_paused_time(async {
        let setup = Setup {
            seed: 1,
            pods,
            jobs: jobs.len(),
            length: Duration::ZERO,
            faults: None,
            mutant,
            history: true,
        };
        let jobs = jobs.into_iter().map(Arc::new).collect();
        let world = World::with_jobs(&setup, jobs)?;
        for host in &world.hosts {
            tokio::spawn(host.clone().supervise());
        }
        let script = Arc::new(Script { world });
        let scene = scene(script.clone()).await;
        let broken = script.world.finish().await?;
        if let Some(first) = broken.first() {
            bail!("{first}\n{}", script.world.witness.history().join("\n"));
        }
        scene.with_context(|| script.world.witness.history().join("\n"))
    })
}

impl Script {
    /// The store, without a network before it.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.world.store
    }

    /// A pod by its number.
    #[must_use]
    pub fn pod(&self, index: usize) -> &Arc<Host> {
        &self.world.hosts[index]
    }

    /// Loses something of a pod's next request of this verb.
    pub fn lose(&self, pod: usize, verb: &'static str, lost: Lost) {
        let soon = Some(Duration::from_millis(1));
        let (there, back) = match lost {
            Lost::Request => (None, None),
            Lost::Answer => (soon, None),
            Lost::Late(by) => (Some(crate::net::RESPONSE_TIMEOUT + by), None),
        };
        let fate = Fate::Rough { there, back };
        self.world.net.plan(self.pod(pod).address(), verb, fate);
    }

    /// Waits.
    pub async fn wait(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    /// Looks again and again until there is what is looked for.
    ///
    /// # Errors
    /// When it does not come in time, or the store does not answer.
    pub async fn until<T>(
        &self,
        what: &str,
        look: impl AsyncFn() -> Result<Option<T>>,
    ) -> Result<T> {
        let give_up = self.world.clock.elapsed() + PATIENCE;
        while self.world.clock.elapsed() < give_up {
            if let Some(found) = look().await? {
                return Ok(found);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        bail!("{what} did not come within {} s", PATIENCE.as_secs())
    }

    /// Who leads, by number, once somebody does.
    ///
    /// # Errors
    /// As [`Self::until`].
    pub async fn leader(&self) -> Result<usize> {
        self.until("a leader", async || {
            let leader = self.store().leader().await?;
            let is = |host: &Arc<Host>| {
                leader
                    .as_ref()
                    .is_some_and(|one| one.pod.address == *host.address())
            };
            Ok(self.world.hosts.iter().position(is))
        })
        .await
    }

    /// The runs of a job, latest first.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn runs(&self, job: &str) -> Result<Vec<RunRecord>> {
        Ok(self.store().runs(&job.parse()?, 100).await?)
    }

    /// The first run of a job in this state.
    ///
    /// # Errors
    /// As [`Self::until`].
    pub async fn run_in(&self, job: &str, state: RunState) -> Result<RunRecord> {
        self.until(
            &format!("a run of {job} in state {}", state.as_str()),
            async || {
                let mut runs = self.runs(job).await?;
                runs.reverse();
                Ok(runs.into_iter().find(|run| run.state == state))
            },
        )
        .await
    }

    /// A run's record once it is over.
    ///
    /// # Errors
    /// As [`Self::until`].
    pub async fn end_of(&self, run: &RunId) -> Result<RunRecord> {
        self.until(&format!("the end of {run}"), async || {
            let record = self.store().run(run).await?;
            Ok(record.filter(|record| record.state.is_ended()))
        })
        .await
    }

    /// Where the pod with a run's executing attempt stands in the list.
    ///
    /// # Errors
    /// When no pod executes it.
    pub async fn executing(&self, run: &RunId) -> Result<usize> {
        let page = self.store().running(None).await?;
        let entry = page
            .entries
            .into_iter()
            .find(|entry| entry.task.run == *run);
        let entry = entry.with_context(|| format!("{run} does not execute"))?;
        let is = |host: &Arc<Host>| *host.address() == entry.pod;
        self.world
            .hosts
            .iter()
            .position(is)
            .context("an unknown pod")
    }

    /// Waits until the store's clock shows this time.
    pub async fn until_time(&self, at: Timestamp) {
        let wait = at.since(self.world.store_wall.now());
        tokio::time::sleep(wait).await;
    }

    /// When a job fires next, by what is stored.
    ///
    /// # Errors
    /// As [`Self::until`].
    pub async fn next(&self, job: &str) -> Result<Timestamp> {
        self.until(&format!("{job}'s definition"), async || {
            let view = self.store().job(&job.parse()?).await?;
            Ok(view.and_then(|view| view.stored.definition.schedule.next_after(view.cursor)))
        })
        .await
    }
}

/// A job that fires every so often and whose guest behaves.
///
/// # Errors
/// When the name is none.
pub fn job(name: &str, every: Duration, behaviour: Behaviour) -> Result<Job> {
    jobs::plain(name, every, behaviour)
}
