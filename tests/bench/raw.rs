//! What the store's scripts do at most: the same requests as the product sends, made before, over
//! bare connections, with nothing between them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use async_trait::async_trait;
use wasmcron_core::ids::{JobName, PodRef};
use wasmcron_store::Store;
use wasmcron_store::leadership::TermRef;
use wasmcron_store::queue::Claimed;
use wasmcron_store::redis::keys::{DEFAULT_NAMESPACE, Keys};
use wasmcron_store::redis::{RedisOptions, RedisStore};
use wasmcron_store::runs::AttemptRef;
use wasmcron_store::schedule::Decision;
use wasmcron_tests::conformance::{Damage, Harness, Running, Settings, World};
use wasmcron_tests::redis_server::RedisServer;

use crate::wire::{Recorder, Reply, Wire, command, replaced};

/// Whose requests are recorded, as job and pod names begin; of the same length as [`REPLAYED`].
const RECORDED: &str = "rec";
/// Whose requests are sent.
const REPLAYED: &str = "raw";
/// How long a worker that found nothing waits.
const PAUSE: Duration = Duration::from_micros(500);
/// When something that should take seconds is given up.
const PATIENCE: Duration = Duration::from_secs(120);

/// A store on a private server, as any pod has it.
pub async fn store(port: u16) -> Result<Arc<dyn Store>> {
    let options = RedisOptions::new(format!("redis://127.0.0.1:{port}/"));
    let store = RedisStore::connect(options).await?;
    Ok(Arc::new(store))
}

/// Makes a [`World`] of a server.
struct Server(u16);

#[async_trait]
impl Harness for Server {
    #[allow(
        clippy::expect_used,
        reason = "the server was there a moment ago, and nothing can be measured without it"
    )]
    async fn store(&self, _: Settings) -> Arc<dyn Store> {
        store(self.0).await.expect("the private server")
    }

    async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    async fn damage(&self, _: Damage) {}
}

/// The requests of one run's life, with the texts in them that differ from run to run.
struct Life {
    take: Vec<u8>,
    claim: Vec<u8>,
    finish: Vec<u8>,
    run: String,
    job: String,
    delivery: String,
    fence: String,
}

/// A server with jobs, a leader that has been elected, and the product's requests as bytes.
pub struct Raw {
    port: u16,
    /// Short ways to the store.
    pub world: World,
    /// Who leads.
    pub term: TermRef,
    through: Arc<dyn Store>,
    recorder: Recorder,
    from: PodRef,
    to: PodRef,
    jobs: usize,
    life: Option<Life>,
}

impl Raw {
    /// Opens so many jobs.
    pub async fn new(server: &RedisServer, jobs: usize) -> Result<Raw> {
        let world = World::new(Arc::new(Server(server.port()))).await;
        let leader = world.pod("leader").await;
        let term = world.lead(&leader).await;
        let from = world.pod(&format!("{RECORDED}pod")).await;
        let to = world.pod(&format!("{REPLAYED}pod")).await;
        let recorder = Recorder::start(server.port()).await?;
        let through = store(recorder.port()).await?;
        let raw = Raw {
            port: server.port(),
            world,
            term,
            through,
            recorder,
            from,
            to,
            jobs,
            life: None,
        };
        raw.open(RECORDED).await;
        raw.open(REPLAYED).await;
        Ok(raw)
    }

    /// Opens as many jobs again under other names.
    pub async fn open(&self, prefix: &str) {
        for n in 0..self.jobs {
            self.world.job(&self.term, &name(prefix, n)).await;
        }
    }

    /// The decisions to fire all jobs of a prefix at a nominal time, so many a call.
    pub fn decisions(
        &self,
        prefix: &str,
        pod: &PodRef,
        seconds: u64,
        each: usize,
    ) -> Result<Vec<Vec<Decision>>> {
        let jobs: Vec<JobName> = (0..self.jobs)
            .map(|n| name(prefix, n).parse().context("a job's name"))
            .collect::<Result<_>>()?;
        let fire = |job: &JobName| self.world.firing(job, seconds, pod);
        Ok(jobs
            .chunks(each)
            .map(|jobs| jobs.iter().map(fire).collect())
            .collect())
    }

    /// The requests that publish all jobs at a nominal time, so many a call.
    pub async fn publishes(&self, seconds: u64, each: usize) -> Result<Vec<Vec<u8>>> {
        self.recorder.scripts()?;
        for decisions in self.decisions(RECORDED, &self.from, seconds, each)? {
            self.through.publish(&self.term, &decisions).await?;
        }
        let scripts = self.recorder.scripts()?;
        ensure!(
            scripts.len() == self.jobs.div_ceil(each),
            "one request a call"
        );
        Ok(scripts
            .iter()
            .map(|script| self.translated(script))
            .collect())
    }

    fn translated(&self, request: &[u8]) -> Vec<u8> {
        let (from, to) = (self.from.session.as_str(), self.to.session.as_str());
        let word = |prefix: &str, what: &str| format!("{prefix}{what}").into_bytes();
        replaced(
            request,
            &[
                (&word(RECORDED, "job"), &word(REPLAYED, "job")),
                (&word(RECORDED, "pod"), &word(REPLAYED, "pod")),
                (from.as_bytes(), to.as_bytes()),
            ],
        )
    }

    /// Records what one run's pod sends. Something must have been published before.
    pub async fn learn(&mut self) -> Result<()> {
        let mut consumer = self.through.consumer(&self.from);
        self.recorder.scripts()?;
        let taken = consumer.take(Duration::ZERO, 1).await?;
        let take = self.only_script()?;
        let taken = taken.into_iter().next().context("an entry to take")?;
        let claim = self.world.claim_of(&self.from, &taken);
        let Claimed::Claimed(attempt) = self.through.claim(&claim).await? else {
            bail!("the entry cannot be claimed");
        };
        let claimed = self.only_script()?;
        let running = Running {
            pod: self.from.clone(),
            at: AttemptRef {
                job: taken.run.job(),
                run: taken.run.clone(),
                fence: attempt.fence,
            },
            attempt: *attempt,
            claim,
        };
        self.through.finish(&running.success()).await?;
        let finish = self.only_script()?;
        let own =
            |text: &str| String::from_utf8_lossy(&self.translated(text.as_bytes())).into_owned();
        self.life = Some(Life {
            take: self.translated(&take),
            claim: self.translated(&claimed),
            finish: self.translated(&finish),
            run: own(taken.run.as_str()),
            job: own(running.at.job.as_str()),
            delivery: taken.delivery.to_string(),
            fence: running.at.fence.to_string(),
        });
        Ok(())
    }

    fn only_script(&self) -> Result<Vec<u8>> {
        let mut scripts = self.recorder.scripts()?;
        ensure!(scripts.len() == 1, "one script, not {}", scripts.len());
        Ok(scripts.remove(0))
    }

    /// Publishes serially over one connection, as a leader does; answers how long that took.
    pub async fn publish(&self, wire: &mut Wire, requests: &[Vec<u8>]) -> Result<Duration> {
        let began = Instant::now();
        for request in requests {
            let answers = wire.send(request).await?;
            let all = answers.many();
            ensure!(
                !all.is_empty() && all.iter().all(|answer| answer.text() == b"published"),
                "a publish was answered {answers:?}"
            );
        }
        Ok(began.elapsed())
    }

    /// Publishes, takes, claims and finishes all of it over so many connections, without executing
    /// anything; answers how long that took.
    pub async fn whole_runs(
        self: &Arc<Self>,
        requests: Vec<Vec<u8>>,
        connections: usize,
    ) -> Result<Duration> {
        let mut publisher = Wire::connect(self.port).await?;
        let mut wires = Vec::new();
        for _ in 0..connections {
            wires.push(Wire::connect(self.port).await?);
        }
        let done = Arc::new(AtomicUsize::new(0));
        let began = Instant::now();
        let mut workers = tokio::task::JoinSet::new();
        for mut wire in wires {
            let (raw, done) = (self.clone(), done.clone());
            workers.spawn(async move {
                while done.load(Ordering::Relaxed) < raw.jobs {
                    ensure!(began.elapsed() < PATIENCE, "the raw runs do not end");
                    if raw.one_run(&mut wire).await? {
                        done.fetch_add(1, Ordering::Relaxed);
                    } else {
                        tokio::time::sleep(PAUSE).await;
                    }
                }
                Ok(())
            });
        }
        self.publish(&mut publisher, &requests).await?;
        while let Some(worker) = workers.join_next().await {
            worker??;
        }
        Ok(began.elapsed())
    }

    /// False if there was nothing to take.
    async fn one_run(&self, wire: &mut Wire) -> Result<bool> {
        let life = self.life.as_ref().context("nothing was learnt")?;
        let taken = wire.send(&life.take).await?;
        let Some(entry) = taken.many().first() else {
            return Ok(false);
        };
        let (run, job, fence) = self.claim(wire, entry).await?;
        let finish = replaced(
            &life.finish,
            &[
                (life.run.as_bytes(), &run),
                (life.job.as_bytes(), &job),
                (life.fence.as_bytes(), &fence),
            ],
        );
        let finished = wire.send(&finish).await?;
        ensure!(
            finished.many().first().map(Reply::text) == Some(b"finished"),
            "a finish was answered {finished:?}"
        );
        Ok(true)
    }

    /// Claims an entry; answers run, job and fence.
    async fn claim(&self, wire: &mut Wire, entry: &Reply) -> Result<(Vec<u8>, Vec<u8>, Vec<u8>)> {
        let life = self.life.as_ref().context("nothing was learnt")?;
        let entry = std::str::from_utf8(entry.text())?;
        let (run, delivery) = entry.split_once('|').context("an entry")?;
        let (job, _) = run.split_once('@').context("a run")?;
        let claim = replaced(
            &life.claim,
            &[
                (life.run.as_bytes(), run.as_bytes()),
                (life.job.as_bytes(), job.as_bytes()),
                (life.delivery.as_bytes(), delivery.as_bytes()),
            ],
        );
        let claimed = wire.send(&claim).await?;
        let said = claimed.many();
        ensure!(
            said.first().map(Reply::text) == Some(b"claimed"),
            "a claim of {entry} was answered {claimed:?}"
        );
        let fence = said.get(1).map(Reply::text).unwrap_or_default();
        Ok((run.into(), job.into(), fence.to_vec()))
    }

    /// Publishes one task after another to a pod that blocks for it, and claims it. Answers each run
    /// and when its claim was answered, in nanoseconds since 1970.
    pub async fn handovers(
        &self,
        requests: &[Vec<u8>],
        pause: impl Fn() -> Duration,
    ) -> Result<Vec<(String, u64)>> {
        let keys = Keys::new(DEFAULT_NAMESPACE)?;
        let (tasks, claiming) = (
            keys.tasks(&self.to.address),
            keys.claiming(&self.to.address),
        );
        let block = command(&["BLMOVE", &tasks, &claiming, "LEFT", "RIGHT", "10"]);
        let (mut leader, mut pod) = (
            Wire::connect(self.port).await?,
            Wire::connect(self.port).await?,
        );
        let mut runs = Vec::new();
        for request in requests {
            let one = async {
                let entry = pod.send(&block).await?;
                let (run, ..) = self.claim(&mut pod, &entry).await?;
                Ok::<_, anyhow::Error>((String::from_utf8(run)?, crate::now_nanos()))
            };
            let publish = async {
                tokio::time::sleep(pause()).await;
                self.publish(&mut leader, std::slice::from_ref(request))
                    .await
            };
            let (claimed, published) = tokio::join!(one, publish);
            published?;
            runs.push(claimed?);
        }
        Ok(runs)
    }
}

/// The name of a job; all of a prefix have the same length.
fn name(prefix: &str, n: usize) -> String {
    format!("{prefix}job-{n:06}")
}
