//! What commands share: the global options, the settings, and a bounded way to the store.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use wasmcron_core::ids::{JobName, PodAddress, RunId};
use wasmcron_core::time::Timestamp;
use wasmcron_core::view::{JobView, Pod};
use wasmcron_store::Store;

use super::dev;
use super::out::{Answer, Failure, Out};
use super::text;
use crate::config::fault::ConfigError;
use crate::config::known;
use crate::config::load::{self, Loaded, Origin, Sources};
use crate::config::settings::Settings;
use crate::config::store_url::StoreUrl;
use crate::store;

/// Options of every command.
#[derive(Debug, clap::Args)]
pub struct Globals {
    /// Configuration file [default: ./wasmcron.toml if there is one]
    #[arg(
        long,
        global = true,
        env = "WASMCRON_CONFIG",
        value_name = "FILE",
        hide_env_values = true
    )]
    pub config: Option<PathBuf>,
    /// Print one JSON value instead of text; times are RFC 3339 in UTC, durations milliseconds
    #[arg(long, global = true)]
    pub json: bool,
    /// Store to use instead of the configured one: sqlite://FILE, redis://HOST:PORT or rediss://HOST:PORT
    #[arg(long, global = true, value_name = "URL")]
    pub store: Option<String>,
    /// Talk to the pod of `wasmcron dev DIR`
    #[arg(long, global = true, value_name = "DIR", conflicts_with = "store")]
    pub dev: Option<PathBuf>,
}

impl Globals {
    /// Where the answer goes.
    pub fn out(&self) -> Out {
        Out { json: self.json }
    }

    /// The settings with their origins.
    pub fn load(&self) -> Result<Loaded, ConfigError> {
        let mut loaded = self.load_from(self.dev.as_deref().unwrap_or(Path::new("")))?;
        if let Some(dir) = &self.dev {
            loaded.settings.store = dev::store_of(dir);
            let origin = Origin::Option { option: "--dev" };
            loaded.origins.insert("store".into(), origin);
        }
        Ok(loaded)
    }

    /// The settings with their origins; the file is looked for in this folder unless it is named.
    pub fn load_from(&self, folder: &Path) -> Result<Loaded, ConfigError> {
        let env = |name: &str| std::env::var_os(name);
        load::load(&Sources {
            file: self.config.as_deref(),
            folder,
            store: self.store.as_deref(),
            env: &env,
        })
    }

    /// The settings of a command that talks to pods. Where nobody named a store and there is none at the
    /// default place, that is the one of a `wasmcron dev` in the same folder, if there is one.
    fn load_for_store(&self) -> Result<Settings, Failure> {
        let mut loaded = self.load()?;
        let unnamed = loaded.origins.get("store") == Some(&Origin::Default);
        let StoreUrl::Sqlite(file) = &loaded.settings.store else {
            return Ok(loaded.settings);
        };
        if file.exists() {
            return Ok(loaded.settings);
        }
        let dev = dev::store_of(file.parent().unwrap_or(Path::new("")));
        if unnamed && matches!(&dev, StoreUrl::Sqlite(file) if file.exists()) {
            loaded.settings.store = dev;
            return Ok(loaded.settings);
        }
        Err(Failure::failed(format!(
            "store {}: there is no such file; the first pod makes it (`wasmcron serve`, or `wasmcron dev` for its own); --store, --dev and the key `store` name another",
            loaded.settings.store
        )))
    }
}

/// A connected command.
pub struct Context {
    /// The settings.
    pub settings: Settings,
    /// The store.
    pub store: Arc<dyn Store>,
    /// Where the answer goes.
    pub out: Out,
}

/// How long a command waits at least for its turn to write into a file that pods write into all the time.
const FILE_PATIENCE: Duration = Duration::from_secs(5);

/// Runs a command against the store. Every wait is bounded: a store that cannot be reached costs a
/// few seconds and is named without its password.
pub fn with_store(globals: &Globals, command: impl AsyncFnOnce(Context) -> Answer) -> Answer {
    let mut settings = globals.load_for_store()?;
    if matches!(settings.store, StoreUrl::Sqlite(_)) {
        // A pod that gets no turn tries again by itself; a person would have to.
        let patience = settings.store_timeout.get().max(FILE_PATIENCE);
        settings.store_timeout = patience.into();
    }
    let url = settings.store.to_string();
    let named = |failure| match failure {
        Failure::Store(error) => Failure::failed(format!("store {url}: {error}")),
        other => other,
    };
    let runtime = runtime()?;
    let answer = runtime.block_on(async {
        let store = store::connect(&settings).await?;
        command(Context {
            settings,
            store,
            out: globals.out(),
        })
        .await
    });
    // A name look-up that hangs must not keep the process.
    runtime.shutdown_background();
    answer.map_err(named)
}

/// A runtime for one command.
pub fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    let built = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    built.map_err(|error| Failure::failed(format!("cannot start the async runtime: {error}")))
}

/// Who acts, for the record: `ann@desk`.
pub fn operator() -> String {
    let word = |text: String| {
        text.chars()
            .filter(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))
            .take(64)
            .collect::<String>()
    };
    let user = ["USER", "LOGNAME"]
        .iter()
        .find_map(|name| std::env::var(name).ok())
        .map(word)
        .filter(|user| !user.is_empty());
    let host = std::env::var("HOSTNAME")
        .or_else(|_| std::fs::read_to_string("/proc/sys/kernel/hostname"))
        .map(word)
        .unwrap_or_default();
    let user = user.unwrap_or_else(|| "somebody".into());
    if host.is_empty() {
        user
    } else {
        format!("{user}@{host}")
    }
}

/// Files that live pods refused: which pod, of which job, and what is wrong.
pub fn refusals(
    pods: &[Pod],
    now: Timestamp,
    window: Duration,
) -> impl Iterator<Item = (&PodAddress, &JobName, &str)> {
    let live = pods.iter().filter(move |pod| pod.is_active(now, window));
    live.flat_map(|pod| {
        let refused = pod.report.iter().flat_map(|report| &report.refused);
        refused.map(|(job, reason)| (&pod.address, job, reason.as_str()))
    })
}

/// Jobs that one command reads at most.
const JOBS_MAX: usize = 100_000;

impl Context {
    /// Every job of the view, by name, with entries that did not decode.
    pub async fn jobs(&self) -> Result<(Vec<JobView>, Vec<String>), Failure> {
        let (mut jobs, mut corrupt, mut cursor) = (Vec::new(), Vec::new(), None);
        loop {
            let page = self.store.view(cursor).await?;
            jobs.extend(page.jobs);
            corrupt.extend(page.corrupt);
            cursor = page.next;
            if cursor.is_none() || jobs.len() >= JOBS_MAX {
                break;
            }
        }
        jobs.sort_by(|a, b| a.job.cmp(&b.job));
        jobs.dedup_by(|a, b| a.job == b.job);
        Ok((jobs, corrupt))
    }

    /// One job, or a failure that says what is known of the name.
    pub async fn job(&self, name: &JobName) -> Result<JobView, Failure> {
        match self.store.job(name).await? {
            Some(job) => Ok(job),
            None => Err(self.unknown_job(name).await),
        }
    }

    /// Why the store has no such job.
    pub async fn unknown_job(&self, name: &JobName) -> Failure {
        let (pods, jobs) = match (self.store.pods().await, self.jobs().await) {
            (Ok(pods), Ok((jobs, _))) => (pods, jobs),
            (Err(error), _) => return error.into(),
            (_, Err(failure)) => return failure,
        };
        let holders = pods
            .iter()
            .filter(|pod| {
                pod.report
                    .as_ref()
                    .is_some_and(|report| report.jobs.contains_key(name))
            })
            .count();
        let now = match self.store.now().await {
            Ok(now) => now,
            Err(error) => return error.into(),
        };
        let mut refused = refusals(&pods, now, self.settings.active_window());
        if let Some((pod, _, reason)) = refused.find(|(_, job, _)| *job == name) {
            return Failure::failed(format!(
                "no job {name} is in force: pod {pod} refused its file: {}",
                text::plain(reason)
            ));
        }
        if holders > 0 {
            return Failure::failed(format!(
                "job {name} is not in force yet: {holders} pod(s) have read its file and the leader has not taken it up"
            ));
        }
        let near = known::nearest(name.as_str(), jobs.iter().map(|job| job.job.as_str()));
        let near = near
            .map(|near| format!("; did you mean {near}?"))
            .unwrap_or_default();
        Failure::failed(format!(
            "no job {name}: no live pod has a job file of that name{near}"
        ))
    }

    /// A failure for a run that the store does not know.
    pub fn unknown_run(run: &RunId) -> Failure {
        Failure::failed(format!(
            "no run {run}: it never was, or its record is older than the retention; `run list {}` shows what is kept",
            run.job()
        ))
    }
}
