//! Real pods as processes, on a private Redis or a file, in a folder of their own.

mod dev;
pub mod jobs;
mod midway;
mod pod;
mod wait;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use wasmcron_core::ids::{JobName, RunId};
use wasmcron_core::run::{RunRecord, RunState};
use wasmcron_core::task::{Reason, Task};
use wasmcron_core::time::Timestamp;
use wasmcron_store::Store;
use wasmcron_store::embedded::{EmbeddedOptions, EmbeddedStore};
use wasmcron_store::inspect::ExecutionEvent;
use wasmcron_store::redis::{RedisOptions, RedisStore};
use wasmcron_store::schedule::{Submission, Submitted};
use wasmcron_store::sqlite::{SqliteEngine, SqliteOptions};
use wasmcron_tests::fleet::Site;
use wasmcron_tests::proxy::Proxy;
use wasmcron_tests::redis_server::RedisServer;
use wasmcron_tests::{guests, host_binary};

pub use dev::DevProcess;
pub use midway::{JOB, Midway};
pub use pod::PodProcess;
pub use wait::{PATIENCE, until};
pub use wasmcron_tests::fleet::{Signal, Timing};

/// Pods that share a store, a plugin directory and a job directory.
pub struct Fleet {
    /// None: the store is a file in the folder, or somebody else's server.
    redis: Option<RedisServer>,
    url: String,
    site: Site,
    timing: Timing,
    store: Arc<dyn Store>,
    /// The ports through which some pods reach the server, by address.
    ways: BTreeMap<String, u16>,
}

impl Fleet {
    /// A Redis and empty directories; pods are started one by one.
    pub async fn new(timing: Timing) -> Fleet {
        Fleet::with_store(timing, &[]).await
    }

    /// The same over a server with further arguments.
    pub async fn with_store(timing: Timing, arguments: &[&str]) -> Fleet {
        let redis = RedisServer::start_with(arguments).await;
        let url = redis.url().to_owned();
        Fleet::over(timing, Some(redis), url).await
    }

    /// The same over a store that is reached by this URL; the server under it may be somebody else's.
    pub async fn over(timing: Timing, redis: Option<RedisServer>, url: String) -> Fleet {
        // Machines that run tests are slower than those that run pods.
        let options = RedisOptions {
            connect_timeout: Duration::from_secs(5),
            response_timeout: Duration::from_secs(5),
            ..RedisOptions::new(&url)
        };
        let store = RedisStore::connect(options).await.expect("the store");
        Fleet::of(redis, url, site(timing), timing, Arc::new(store))
    }

    /// The same on a file, which pods make and share.
    pub async fn on_file(timing: Timing) -> Fleet {
        let site = site(timing);
        let file = site.path().join("wasmcron.db");
        let url = format!("sqlite://{}", file.display());
        let store = open_file(&file).await;
        Fleet::of(None, url, site, timing, store)
    }

    fn of(
        redis: Option<RedisServer>,
        url: String,
        site: Site,
        timing: Timing,
        store: Arc<dyn Store>,
    ) -> Fleet {
        Fleet {
            redis,
            url,
            site,
            timing,
            store,
            ways: BTreeMap::new(),
        }
    }

    /// Puts a proxy between the server and the pods of this address that are started from now on.
    pub async fn way_of(&mut self, address: &str) -> Proxy {
        let port = self.store_mut().port();
        let proxy = Proxy::start(port).await.expect("a proxy");
        self.ways.insert(address.to_owned(), proxy.port());
        proxy
    }

    /// Where everything of this fleet lies.
    pub fn folder(&self) -> &Path {
        self.site.path()
    }

    /// The store, as any pod sees it.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The port of the server under the store.
    pub fn store_port(&self) -> u16 {
        self.redis.as_ref().expect("a server of its own").port()
    }

    /// The server under the store.
    pub fn store_mut(&mut self) -> &mut RedisServer {
        self.redis.as_mut().expect("a server of its own")
    }

    /// The plugin directory.
    pub fn plugins(&self) -> PathBuf {
        self.site.path().join("plugins")
    }

    /// Puts a built plugin into service under a name, as a deployment would: write beside, rename over.
    pub fn install(&self, plugin: &str, name: &str) {
        self.write_plugin(name, &guests::bytes(plugin).expect("a built guest"));
    }

    /// Puts bytes into service under a plugin's name.
    pub fn write_plugin(&self, name: &str, bytes: &[u8]) {
        self.site.write_plugin(name, bytes).expect("a plugin");
    }

    /// Writes the file of a job whole; `text` is what follows its name.
    pub fn write_job(&self, name: &str, text: &str) {
        self.site.write_job(name, text).expect("a job file");
    }

    /// Starts a pod of this address and waits until it serves.
    pub async fn pod(&self, address: &str) -> PodProcess {
        self.pod_with(address, "").await
    }

    /// Starts a pod with further settings in TOML: top-level keys first, then tables.
    pub async fn pod_with(&self, address: &str, settings: &str) -> PodProcess {
        PodProcess::start(address, &self.config(address, settings)).await
    }

    /// The same; the pod reaches the store by a URL of its own.
    pub async fn pod_at(&self, address: &str, url: &str, settings: &str) -> PodProcess {
        let config = self.config_at(address, url, settings);
        PodProcess::start(address, &config).await
    }

    /// Writes a pod's settings, with further ones as in [`Self::pod_with`]; answers their file.
    pub fn config(&self, address: &str, settings: &str) -> PathBuf {
        let url = match self.ways.get(address) {
            Some(port) => format!("redis://127.0.0.1:{port}/"),
            None => self.url.clone(),
        };
        self.config_at(address, &url, settings)
    }

    fn config_at(&self, address: &str, url: &str, settings: &str) -> PathBuf {
        let config = self.site.path().join(format!("{address}.toml"));
        std::fs::write(&config, self.settings(address, url, settings)).expect("the settings");
        config
    }

    fn settings(&self, address: &str, url: &str, more: &str) -> String {
        let folder = self.site.path().display();
        let timing = self.timing.settings();
        format!(
            "store = \"{url}\"\npod.address = \"{address}\"\nlog.format = \"json\"\nlog.level = \"debug\"\n\
             plugins.directory = \"{folder}/plugins\"\nplugins.poll = \"2s\"\nplugins.cache = \"{}\"\n\
             jobs.directory = \"{folder}/jobs\"\njobs.poll = \"2s\"\n{timing}{more}\n",
            cache().display()
        )
    }

    /// Runs the product's command line against this fleet; answers what it printed and its exit code.
    pub async fn cli(&self, arguments: &[&str]) -> (String, String, i32) {
        let mut all = vec!["--store", self.url.as_str()];
        all.extend(arguments);
        cli_in(self.site.path(), &all).await
    }

    /// Waits until a job's run of a nominal time, or any run of it, is as asked; answers its record.
    pub async fn run_where(
        &self,
        job: &str,
        what: &str,
        asked: impl Fn(&RunRecord) -> bool,
    ) -> RunRecord {
        let name: JobName = job.parse().expect("a job name");
        until(
            &format!("a run of {job} that {what}"),
            PATIENCE,
            async || {
                let runs = self.store.runs(&name, 100).await.expect("runs");
                runs.into_iter().find(|run| asked(run))
            },
        )
        .await
    }

    /// Waits until a job has succeeded for a time after now; answers that run's record.
    pub async fn ticks_again(&self, job: &str) -> RunRecord {
        let now = self.now().await;
        self.run_where(job, "is later", |run| {
            run.nominal > now && run.state == RunState::Succeeded
        })
        .await
    }

    /// Waits until these jobs' definitions are in force, so that they can be triggered.
    pub async fn opened(&self, jobs: &[&str]) {
        for job in jobs {
            let name: JobName = job.parse().expect("a job name");
            until(&format!("job {job} to be in force"), PATIENCE, async || {
                self.store.job(&name).await.expect("the job").map(drop)
            })
            .await;
        }
    }

    /// Waits until a run ended; answers its record.
    pub async fn ended(&self, run: &RunId) -> RunRecord {
        until(&format!("the end of {run}"), PATIENCE, async || {
            let record = self.store.run(run).await.expect("the record");
            record.filter(|record| record.state.is_ended())
        })
        .await
    }

    /// Asks for a run by hand, through the command line, and answers its id.
    pub async fn trigger(&self, job: &str, params: &str) -> RunId {
        let (out, err, code) = self
            .cli(&["--json", "job", "trigger", job, "--params", params])
            .await;
        assert_eq!(code, 0, "trigger {job}: {err}");
        let answer: serde_json::Value = serde_json::from_str(&out).expect("JSON");
        answer["run"]
            .as_str()
            .expect("a run id")
            .parse()
            .expect("a run id")
    }

    /// Asks for a run by hand, straight through the store: as fast as a test may need it.
    pub async fn submit(&self, job: &str) -> RunId {
        let name: JobName = job.parse().expect("a job name");
        let view = self
            .store
            .job(&name)
            .await
            .expect("the job")
            .expect("the job");
        let now = self.now().await;
        // Any ULID will do, as long as no other test run of this store has it.
        let id = format!("{:026}", now.as_millis());
        let run: RunId = format!("{job}@{id}").parse().expect("a run id");
        let params = view.stored.definition.params;
        let task = Task::first(run, now, Reason::Manual, params);
        let submission = Submission {
            task,
            idempotency: None,
        };
        match self.store.submit(&submission).await.expect("submit") {
            Submitted::Accepted { run } => run,
            other => panic!("{other:?}"),
        }
    }

    /// All runs of a job that ended in this state.
    pub async fn count(&self, job: &str, state: RunState) -> usize {
        let name: JobName = job.parse().expect("a job name");
        let runs = self.store.runs(&name, 1000).await.expect("runs");
        runs.iter().filter(|run| run.state == state).count()
    }

    /// The execution log so far.
    pub async fn execution_log(&self) -> Vec<ExecutionEvent> {
        self.store
            .execution_log(None, 10_000)
            .await
            .expect("the execution log")
    }

    /// The store's clock.
    pub async fn now(&self) -> Timestamp {
        self.store.now().await.expect("the store's time")
    }

    /// Sends a command to the fleet's Redis itself, as an operator would.
    pub async fn redis_command<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        let client = redis::Client::open(self.url.as_str()).expect("a client");
        let mut connection = client
            .get_multiplexed_async_connection()
            .await
            .expect("a connection");
        let (name, arguments) = words.split_first().expect("a command");
        redis::cmd(name)
            .arg(arguments)
            .query_async(&mut connection)
            .await
            .expect("an answer")
    }

    /// Waits until a run has an attempt of this number; answers the run's record.
    pub async fn attempt(&self, run: &RunId, number: u32) -> RunRecord {
        until(
            &format!("attempt {number} of {run}"),
            PATIENCE,
            async || {
                let record = self.store.run(run).await.expect("the record");
                record.filter(|record| {
                    record
                        .attempts
                        .iter()
                        .any(|attempt| attempt.attempt == number)
                })
            },
        )
        .await
    }

    /// Events of one run in the execution log, in order.
    pub async fn events(&self, run: &RunId) -> Vec<String> {
        let log = self.execution_log().await;
        log.into_iter()
            .filter(|event| event.run == run.as_str())
            .map(|event| event.event)
            .collect()
    }

    /// The address of the pod that leads, once one does.
    pub async fn leader(&self) -> String {
        until("a leader", PATIENCE, async || {
            self.store.leader().await.expect("the leader")
        })
        .await
        .pod
        .address
        .to_string()
    }

    /// Waits until so many pods live by the store.
    pub async fn live(&self, count: usize) {
        let window = self.timing.window();
        until(&format!("{count} live pods"), PATIENCE, async || {
            let now = self.now().await;
            let pods = self.store.pods().await.expect("pods");
            let live = pods.iter().filter(|pod| pod.is_active(now, window)).count();
            (live == count).then_some(())
        })
        .await;
    }
}

/// A store file, as a pod opens it.
async fn open_file(file: &Path) -> Arc<dyn Store> {
    let engine = SqliteEngine::open(SqliteOptions::new(file))
        .await
        .expect("the store");
    Arc::new(EmbeddedStore::new(
        Arc::new(engine),
        EmbeddedOptions::default(),
    ))
}

/// Runs the product's command line in a folder; answers what it printed and its exit code.
pub async fn cli_in(folder: &Path, arguments: &[&str]) -> (String, String, i32) {
    let output = tokio::process::Command::from(host_binary::command())
        .args(arguments)
        .current_dir(folder)
        .env_remove("WASMCRON_STORE")
        .env_remove("WASMCRON_CONFIG")
        .output()
        .await
        .expect("the command line");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (
        text(output.stdout),
        text(output.stderr),
        output.status.code().unwrap_or(-1),
    )
}

fn site(timing: Timing) -> Site {
    Site::new("e2e", timing).expect("a temporary folder")
}

/// Compiled plugins are shared by all fleets of a test run, as by the pods of one machine.
fn cache() -> PathBuf {
    let folder = std::env::temp_dir().join(format!("wasmcron-tests-cache-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a cache folder");
    folder
}
