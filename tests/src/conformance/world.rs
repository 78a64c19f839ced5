//! A store with pods, a leader and jobs in it: what most cases begin with.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use wasmcron_core::ids::{Digest, JobName, PodAddress, PodRef, RunId, SessionId, Token};
use wasmcron_core::job::{Definition, Misfire, Overlap, Retry, StoredDefinition};
use wasmcron_core::run::{Outcome, RunState};
use wasmcron_core::schedule::{Schedule, Trigger};
use wasmcron_core::task::{Reason, Task};
use wasmcron_core::time::Timestamp;
use wasmcron_core::view::{Gap, PodLoad, PodReport};
use wasmcron_store::Store;
use wasmcron_store::leadership::{Campaign, TermRef};
use wasmcron_store::pods::Standing;
use wasmcron_store::queue::{Attempt, Claim, Claimed, Taken};
use wasmcron_store::runs::{AttemptRef, Finish, Next, Retention, SaveCheckpoint, Saved};
use wasmcron_store::schedule::{Decision, Opened, PublishAnswer, Published};

use super::{Damage, Harness, Settings};

/// A time that no case sees the end of.
pub const LONG: Duration = Duration::from_secs(600);
/// How often a condition is looked at.
const GLANCE: Duration = Duration::from_millis(5);
/// When a condition that ought to come true is given up.
const PATIENCE: Duration = Duration::from_secs(15);

/// An empty store, and short ways to fill it.
pub struct World {
    harness: Arc<dyn Harness>,
    /// The store.
    pub store: Arc<dyn Store>,
    numbers: AtomicU64,
    base: Timestamp,
}

/// An attempt that executes.
#[derive(Clone, Debug)]
pub struct Running {
    /// Where.
    pub pod: PodRef,
    /// Its names.
    pub at: AttemptRef,
    /// What its pod was told.
    pub attempt: Attempt,
    /// The claim it came from.
    pub claim: Claim,
}

impl World {
    /// A world over a backend without data.
    pub async fn new(harness: Arc<dyn Harness>) -> World {
        let store = harness.store(Settings::default()).await;
        let now = store.now().await.expect("the store's clock");
        let hour_ago = now - Duration::from_secs(3_600);
        World {
            harness,
            store,
            numbers: AtomicU64::new(1),
            base: Timestamp::from_millis(hour_ago.as_millis() / 1_000 * 1_000),
        }
    }

    /// Another store over the same data.
    pub async fn store_with(&self, settings: Settings) -> Arc<dyn Store> {
        self.harness.store(settings).await
    }

    /// Lets time pass.
    pub async fn pass(&self, time: Duration) {
        self.harness.pass(time).await;
    }

    /// Lets time pass until a condition holds, and answers what it found.
    ///
    /// # Panics
    /// When it does not come true.
    pub async fn until<T>(&self, what: &str, mut condition: impl AsyncFnMut() -> Option<T>) -> T {
        let began = self.now().await;
        loop {
            if let Some(found) = condition().await {
                return found;
            }
            let waited = self.now().await.since(began);
            assert!(waited < PATIENCE, "waited {waited:?} for {what}");
            self.pass(GLANCE).await;
        }
    }

    /// Does damage that no verb does.
    pub async fn damage(&self, damage: Damage) {
        self.harness.damage(damage).await;
    }

    /// The store's clock.
    pub async fn now(&self) -> Timestamp {
        self.store.now().await.expect("the store's clock")
    }

    /// A number that this world did not give out before.
    pub fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// The nominal time `seconds` after the one every job is opened at, an hour ago.
    #[must_use]
    pub fn at(&self, seconds: u64) -> Timestamp {
        self.base + Duration::from_secs(seconds)
    }

    /// A job's name.
    #[must_use]
    pub fn name(&self, job: &str) -> JobName {
        job.parse().expect("a job name")
    }

    /// The run of a nominal time.
    #[must_use]
    pub fn run(&self, job: &JobName, seconds: u64) -> RunId {
        RunId::nominal(job, self.at(seconds))
    }
}

/// Pods.
impl World {
    /// A new session of an address, of which the store knows nothing yet.
    #[must_use]
    pub fn session(&self, address: &str) -> PodRef {
        PodRef {
            address: PodAddress::new(address).expect("an address"),
            session: SessionId::new(&format!("01JDX{:021}", self.number())).expect("a ULID"),
        }
    }

    /// A pod that registered and lives; a second one of an address supersedes the first.
    pub async fn pod(&self, address: &str) -> PodRef {
        let me = self.session(address);
        let now = self.now().await;
        let standing = self.store.register(&me, now, &report(now)).await;
        assert!(
            matches!(standing, Ok(Standing::Current { .. })),
            "register: {standing:?}"
        );
        self.beat(&me).await;
        me
    }

    /// A heartbeat.
    pub async fn beat(&self, pod: &PodRef) {
        let load = PodLoad::default();
        let standing = self.store.heartbeat(pod, &load, LONG).await;
        assert!(
            matches!(standing, Ok(Standing::Current { .. })),
            "heartbeat: {standing:?}"
        );
    }

    /// Makes a pod lead.
    pub async fn lead(&self, pod: &PodRef) -> TermRef {
        match self.store.campaign(pod, LONG).await {
            Ok(Campaign::Won(term)) => TermRef {
                pod: pod.clone(),
                term,
            },
            other => panic!("campaign: {other:?}"),
        }
    }

    /// Lets the lease of a leader run out.
    pub async fn depose(&self, term: &TermRef) {
        let renewed = self.store.renew(term, Duration::from_millis(1)).await;
        renewed.expect("renew");
        self.until("the end of the lease", async || {
            let leader = self.store.leader().await.expect("leader");
            leader.is_none().then_some(())
        })
        .await;
    }
}

/// What a pod of the cases says of itself.
#[must_use]
pub fn report(started: Timestamp) -> PodReport {
    PodReport {
        version: "1.2.3".into(),
        started,
        capacity: 4,
        labels: [("zone".into(), "eu".into())].into(),
        plugins: [("p".parse().expect("a name"), Digest::of(b"p"))].into(),
        jobs: std::collections::BTreeMap::new(),
        refused: std::collections::BTreeMap::new(),
    }
}

/// A definition that fires every second.
#[must_use]
pub fn definition() -> Definition {
    let period = Duration::from_secs(1);
    Definition {
        plugin: "p".parse().expect("a name"),
        enabled: true,
        schedule: Schedule {
            trigger: Trigger::Every { period },
            starts: None,
            ends: None,
            jitter: Duration::ZERO,
        },
        resumable: true,
        auto_rerun: false,
        exclusive: false,
        timeout: LONG,
        run_timeout: None,
        overlap: Overlap::Skip,
        misfire: Misfire::default(),
        retry: Retry::default(),
        pods: std::collections::BTreeMap::new(),
        digest: None,
        params: r#"{"text":"a|b","list":[]}"#.into(),
    }
}

/// A definition as it is stored.
#[must_use]
pub fn stored(definition: Definition, since: Timestamp) -> StoredDefinition {
    let hash = definition.hash();
    StoredDefinition {
        definition,
        hash,
        since,
    }
}

/// Jobs and firings.
impl World {
    /// Opens a job whose cursor stands at [`World::at`]`(0)`.
    pub async fn job(&self, term: &TermRef, name: &str) -> JobName {
        let job = self.name(name);
        let stored = stored(definition(), self.at(0));
        let opened = self.store.open(term, &job, None, &stored).await;
        let opened = opened.expect("open");
        let cursor = self.at(0);
        assert_eq!(opened, Opened::Opened { cursor }, "open {name}");
        job
    }

    /// The task of a cron firing.
    #[must_use]
    pub fn task(&self, job: &JobName, seconds: u64) -> Task {
        let (run, params) = (self.run(job, seconds), definition().params);
        let mut task = Task::first(run, self.at(seconds), Reason::Scheduled, params);
        task.trace = Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into());
        task
    }

    /// A decision to fire.
    #[must_use]
    pub fn firing(&self, job: &JobName, seconds: u64, to: &PodRef) -> Decision {
        Decision::Fire {
            task: self.task(job, seconds),
            to: to.address.clone(),
            after: Timestamp::EPOCH,
        }
    }

    /// A decision not to fire.
    #[must_use]
    pub fn gap(&self, job: &JobName, from: u64, to: u64, why: &str) -> Decision {
        Decision::Gap {
            job: job.clone(),
            gap: Gap {
                from: self.at(from),
                to: self.at(to),
                count: to - from + 1,
                why: why.into(),
            },
            after: Timestamp::EPOCH,
        }
    }

    /// Publishes decisions and answers what became of each.
    pub async fn publish(&self, term: &TermRef, decisions: &[Decision]) -> Vec<Published> {
        match self.store.publish(term, decisions).await {
            Ok(PublishAnswer::Answers(answers)) => answers,
            other => panic!("publish: {other:?}"),
        }
    }

    /// Fires a nominal time of a job to a pod.
    pub async fn fire(&self, term: &TermRef, job: &JobName, seconds: u64, to: &PodRef) -> RunId {
        let answers = self.publish(term, &[self.firing(job, seconds, to)]).await;
        assert_eq!(answers, [Published::Published], "fire {job} at {seconds}");
        self.run(job, seconds)
    }

    /// The cursor of a job.
    pub async fn cursor(&self, job: &JobName) -> Timestamp {
        let view = self.store.job(job).await.expect("job");
        view.expect("a job that is known").cursor
    }
}

/// Taking and executing.
impl World {
    /// Everything in a pod's queue, without waiting.
    pub async fn take(&self, pod: &PodRef) -> Vec<Taken> {
        let mut consumer = self.store.consumer(pod);
        consumer.take(Duration::ZERO, 100).await.expect("take")
    }

    /// The only entry in a pod's queue.
    pub async fn take_one(&self, pod: &PodRef) -> Taken {
        let mut taken = self.take(pod).await;
        assert_eq!(taken.len(), 1, "in the queue of {}: {taken:?}", pod.address);
        taken.remove(0)
    }

    /// A claim with a token of its own.
    #[must_use]
    pub fn claim_of(&self, pod: &PodRef, taken: &Taken) -> Claim {
        Claim {
            digest: None,
            me: pod.clone(),
            taken: taken.clone(),
            token: Token::new(&format!("token{}", self.number())).expect("a token"),
            lock_ttl: LONG,
            ends_in: LONG,
        }
    }

    /// Makes a claim that must succeed.
    pub async fn claimed(&self, claim: Claim) -> Running {
        match self.store.claim(&claim).await {
            Ok(Claimed::Claimed(attempt)) => Running {
                pod: claim.me.clone(),
                at: AttemptRef {
                    job: claim.taken.run.job(),
                    run: claim.taken.run.clone(),
                    fence: attempt.fence,
                },
                attempt: *attempt,
                claim,
            },
            other => panic!("claim {}: {other:?}", claim.taken.run),
        }
    }

    /// Takes the only entry of a pod's queue and claims it.
    pub async fn begin(&self, pod: &PodRef) -> Running {
        let taken = self.take_one(pod).await;
        self.claimed(self.claim_of(pod, &taken)).await
    }

    /// Fires, takes and claims.
    pub async fn running(
        &self,
        term: &TermRef,
        job: &JobName,
        seconds: u64,
        pod: &PodRef,
    ) -> Running {
        self.fire(term, job, seconds, pod).await;
        self.begin(pod).await
    }

    /// Lets the lock of an attempt run out, as when its pod died.
    pub async fn expire(&self, running: &Running) {
        let attempt = std::slice::from_ref(&running.at);
        let soon = Duration::from_millis(1);
        let extended = self.store.extend(&running.pod, attempt, soon).await;
        extended.expect("extend");
        self.until("the end of a lock", async || {
            let jobs = std::slice::from_ref(&running.at.job);
            let locks = self.store.locks(jobs).await.expect("locks");
            locks.iter().all(Option::is_none).then_some(())
        })
        .await;
    }

    /// Where a run is, and all else of its record.
    pub async fn record(&self, run: &RunId) -> wasmcron_core::run::RunRecord {
        let record = self.store.run(run).await.expect("run");
        record.unwrap_or_else(|| panic!("no record of {run}"))
    }

    /// The state of a run.
    pub async fn state(&self, run: &RunId) -> RunState {
        self.record(run).await.state
    }
}

impl Running {
    /// A checkpoint of this attempt.
    #[must_use]
    pub fn checkpoint(&self, seq: u64, data: &[u8]) -> SaveCheckpoint {
        SaveCheckpoint {
            attempt: self.at.clone(),
            number: self.attempt.task.attempt,
            seq,
            schema: 3,
            digest: Digest::of(b"p"),
            data: data.to_vec(),
            limit: 1 << 20,
        }
    }

    /// Saves a checkpoint that must be taken.
    pub async fn save(&self, world: &World, seq: u64, data: &[u8]) {
        let saved = world
            .store
            .save_checkpoint(&self.checkpoint(seq, data))
            .await;
        assert_eq!(saved.expect("save_checkpoint"), Saved::Saved(seq));
    }

    fn finish(&self, outcome: Outcome, next: Next) -> Finish {
        Finish {
            attempt: self.at.clone(),
            me: self.pod.clone(),
            outcome,
            next,
            digest: Some(Digest::of(b"p")),
            state: Vec::new(),
            state_limit: 1 << 20,
            retention: keep(),
        }
    }

    /// Its success.
    #[must_use]
    pub fn success(&self) -> Finish {
        let outcome = Outcome::Succeeded {
            summary: "all|done".into(),
        };
        let state = RunState::Succeeded;
        self.finish(outcome, Next::End { state, why: None })
    }

    /// Its failure, with no attempt left.
    #[must_use]
    pub fn failure(&self) -> Finish {
        let state = RunState::Failed;
        self.finish(failed(), Next::End { state, why: None })
    }

    /// Its failure, with another attempt to come.
    #[must_use]
    pub fn retry(&self, due_in: Duration) -> Finish {
        let next = Next::Again {
            reason: Reason::Retry,
            due_in,
            failures: self.attempt.task.failures + 1,
            idle_yields: 0,
            why: "it failed|once".into(),
        };
        self.finish(failed(), next)
    }

    /// It yields and continues now.
    #[must_use]
    pub fn yields(&self, idle_yields: u32) -> Finish {
        let next = Next::Again {
            reason: Reason::Resume,
            due_in: Duration::ZERO,
            failures: self.attempt.task.failures,
            idle_yields,
            why: "it yielded".into(),
        };
        self.finish(Outcome::Yielded, next)
    }
}

fn failed() -> Outcome {
    Outcome::Failed {
        message: "bad|luck".into(),
        retry: true,
        after_ms: None,
    }
}

/// What cases keep of ended runs.
#[must_use]
pub fn keep() -> Retention {
    Settings::default().retention
}
