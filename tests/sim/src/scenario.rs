//! A world by hand: jobs and pods of one's own, and what happens to them at exact moments.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use wasmcron_core::ids::{PodAddress, RunId};
use wasmcron_core::job::Job;
use wasmcron_core::run::{RunRecord, RunState};
use wasmcron_core::task::{Reason, Task};
use wasmcron_core::time::Timestamp;
use wasmcron_core::view::Leader;
use wasmcron_store::Store;
use wasmcron_store::schedule::{Submission, Submitted};

use crate::check::Witness;
use crate::clock::on_paused_time;
use crate::gate::Gate;
use crate::jobs;
use crate::mutants::Mutant;
use crate::net::Fate;
use crate::pod::Host;
use crate::world::{Setup, World};

pub use crate::jobs::{Behaviour, model};
pub use crate::net::{Cut, Held, Weather};

/// How long a scenario waits for what must come, in simulated time.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often it looks.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// What is lost of a request.
#[derive(Clone, Copy, Debug)]
pub enum Lost {
    /// Nothing: said of one before others.
    Nothing,
    /// All of it.
    Request,
    /// Its answer: it is executed.
    Answer,
}

impl Lost {
    fn fate(self) -> Fate {
        let soon = Duration::from_millis(1);
        let (there, back) = match self {
            Lost::Nothing => return Fate::Plain { trip: soon },
            Lost::Request => (None, None),
            Lost::Answer => (Some(soon), None),
        };
        Fate::Rough { there, back }
    }
}

/// A world that a scenario acts in.
pub struct Script {
    /// The world.
    pub world: World,
}

/// How a scenario went.
struct Played {
    /// What broke, for people.
    faults: Vec<String>,
    history: String,
    /// Two equal histories share it.
    digest: (u64, u64),
}

/// Plays a scenario with so many pods and these jobs; fails if it fails, or if an invariant breaks.
///
/// # Errors
/// What went wrong, for people.
pub fn play<F: Future<Output = Result<()>>>(
    pods: usize,
    jobs: Vec<Job>,
    scene: impl FnOnce(Arc<Script>) -> F,
) -> Result<()> {
    played_well(&once(pods, jobs, None, scene)?)
}

/// Plays a scenario that rests on a rule: it must pass, twice with one history, and with the rule left
/// out it must go wrong in each of these words.
///
/// # Errors
/// What went wrong, or that nothing did.
pub fn needs<F: Future<Output = Result<()>>>(
    rule: Mutant,
    wrong: &[&str],
    pods: usize,
    jobs: &[Job],
    scene: impl Fn(Arc<Script>) -> F,
) -> Result<()> {
    let first = once(pods, jobs.to_vec(), None, &scene)?;
    played_well(&first)?;
    let second = once(pods, jobs.to_vec(), None, &scene)?;
    ensure!(first.digest == second.digest, "it has two histories");
    let without = once(pods, jobs.to_vec(), Some(rule), &scene)?;
    let rule = rule.name();
    ensure!(!without.faults.is_empty(), "it passes without {rule}");
    for word in wrong {
        let found = without.faults.iter().any(|fault| fault.contains(word));
        let (faults, history) = (without.faults.join("\n"), &without.history);
        ensure!(
            found,
            "without {rule} it fails without {word:?}:\n{faults}\n{history}"
        );
    }
    Ok(())
}

fn played_well(played: &Played) -> Result<()> {
    let (faults, history) = (played.faults.join("\n"), &played.history);
    ensure!(played.faults.is_empty(), "{faults}\n{history}");
    Ok(())
}

fn once<F: Future<Output = Result<()>>>(
    pods: usize,
    jobs: Vec<Job>,
    mutant: Option<Mutant>,
    scene: impl FnOnce(Arc<Script>) -> F,
) -> Result<Played> {
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
        let witness = &script.world.witness;
        let broken = script.world.finish().await?;
        let mut faults: Vec<String> = broken.iter().map(ToString::to_string).collect();
        faults.extend(scene.err().map(|error| format!("{error:#}")));
        Ok(Played {
            faults,
            history: witness.history().join("\n"),
            digest: witness.digest(),
        })
    })
}

/// A pod that stands still.
pub struct Frozen {
    gate: Arc<Gate>,
    host: Arc<Host>,
    witness: Arc<Witness>,
}

impl Frozen {
    /// SIGCONT.
    pub fn thaw(self) {
        self.gate.reopen();
        self.witness.trouble(Some(self.host.address()), false);
    }
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

    /// Says what becomes of the next request of this verb, a pod's or (none) anybody's; said again, of
    /// the one after it.
    pub fn lose(&self, pod: impl Into<Option<usize>>, verb: &'static str, lost: Lost) {
        let address = pod.into().map(|pod| self.pod(pod).address());
        self.world.net.plan(address, verb, lost.fate());
    }

    /// Says what becomes of all such requests, until [`Self::mend`].
    pub fn lose_all(&self, pod: impl Into<Option<usize>>, verb: &'static str, lost: Lost) {
        let address = pod.into().map(|pod| self.pod(pod).address());
        self.world.net.plan_all(address, verb, lost.fate());
    }

    /// Holds the next such request on its way until it is released.
    #[must_use]
    pub fn hold(&self, pod: impl Into<Option<usize>>, verb: &'static str) -> Held {
        let address = pod.into().map(|pod| self.pod(pod).address());
        self.world.net.hold(address, verb)
    }

    /// From now on nothing is lost.
    pub fn mend(&self) {
        self.world.net.mend();
    }

    /// Waits until a held request is on its way.
    ///
    /// # Errors
    /// When it is never sent.
    pub async fn sent(&self, held: &Held) -> Result<()> {
        let sent = tokio::time::timeout(PATIENCE, held.sent()).await;
        sent.context("a request was never sent")
    }

    fn trouble(&self, pod: usize, begins: bool) {
        let address = self.pod(pod).address();
        self.world.witness.trouble(Some(address), begins);
    }

    /// SIGKILL; the pod stays down until [`Self::start`].
    pub fn kill(&self, pod: usize) {
        self.trouble(pod, true);
        self.pod(pod).kill();
    }

    /// SIGTERM; the pod stays down until [`Self::start`].
    pub fn terminate(&self, pod: usize) {
        self.trouble(pod, true);
        self.pod(pod).terminate();
    }

    /// Starts a pod again, at its address.
    pub fn start(&self, pod: usize) {
        self.pod(pod).start();
        self.trouble(pod, false);
    }

    /// SIGSTOP.
    ///
    /// # Errors
    /// When the pod does not run.
    pub fn freeze(&self, pod: usize) -> Result<Frozen> {
        let host = self.pod(pod).clone();
        let gate = host.freeze().context("a pod that is down was to freeze")?;
        self.trouble(pod, true);
        let witness = self.world.witness.clone();
        Ok(Frozen {
            gate,
            host,
            witness,
        })
    }

    /// SIGSTOP, and a second process at the pod's address.
    ///
    /// # Errors
    /// As [`Self::freeze`].
    pub fn twin(&self, pod: usize) -> Result<Frozen> {
        let frozen = self.freeze(pod)?;
        self.pod(pod).replace();
        Ok(frozen)
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

    /// The lease in force.
    ///
    /// # Errors
    /// As [`Self::until`].
    pub async fn lease(&self) -> Result<Leader> {
        self.until("a leader", async || Ok(self.store().leader().await?))
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

    /// Waits until a run executes; answers on which pod, by number.
    ///
    /// # Errors
    /// As [`Self::until`].
    pub async fn executing(&self, run: &RunId) -> Result<usize> {
        let what = format!("an attempt of {run}");
        let entry = self.until(&what, async || {
            let page = self.store().running(None).await?;
            let mut entries = page.entries.into_iter();
            Ok(entries.find(|entry| entry.task.run == *run))
        });
        self.number(&entry.await?.pod)
    }

    /// Waits until a run is in a queue; answers of which pod, by number.
    ///
    /// # Errors
    /// As [`Self::until`].
    pub async fn queued(&self, run: &RunId) -> Result<usize> {
        let what = format!("{run} in a queue");
        let entry = self.until(&what, async || {
            let page = self.store().scheduled(None).await?;
            let mut entries = page.entries.into_iter();
            Ok(entries.find(|entry| entry.task.run == *run))
        });
        self.number(&entry.await?.pod)
    }

    fn number(&self, pod: &PodAddress) -> Result<usize> {
        let is = |host: &Arc<Host>| host.address() == pod;
        let number = self.world.hosts.iter().position(is);
        number.context("an unknown pod")
    }

    /// What the store's clock shows.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.world.store_wall.now()
    }

    /// Waits until the store's clock shows this time.
    pub async fn until_time(&self, at: Timestamp) {
        let wait = at.since(self.now());
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

    /// The run of a job's next firing, by what is stored.
    ///
    /// # Errors
    /// As [`Self::until`].
    pub async fn firing(&self, job: &str) -> Result<RunId> {
        Ok(RunId::nominal(&job.parse()?, self.next(job).await?))
    }

    /// Somebody asks for the run of a nominal time.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn backfill(&self, job: &str, nominal: Timestamp) -> Result<Submitted> {
        let run = RunId::nominal(&job.parse()?, nominal);
        let of = self.world.jobs.iter().find(|known| known.name == run.job());
        let params = of.context("an unknown job")?.definition.params.clone();
        let submission = Submission {
            task: Task::first(run, nominal, Reason::Backfill, params),
            idempotency: None,
        };
        Ok(self.store().submit(&submission).await?)
    }
}

/// A job that fires every so often and whose guest behaves.
///
/// # Errors
/// When the name is none.
pub fn job(name: &str, every: Duration, behaviour: Behaviour) -> Result<Job> {
    jobs::plain(name, every, behaviour)
}
