//! The host's settings, as `wasmcron.toml` spells them.
//!
//! Every key has a default, durations carry their unit (`"6s"`), sizes too (`"256MiB"`), and a key
//! that is not known is refused. `config/wasmcron.toml` in the repository shows all of them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::store_url::StoreUrl;
use super::units::{Size, Span};

/// All settings of a pod.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Where pods meet. `sqlite://FILE`: a file of this machine, relative to the folder of this file.
    /// `redis://` or `rediss://`: a server for pods on several machines, with user, password and database
    /// where needed; `redis+sentinel://` and `redis+cluster://` with several hosts.
    pub store: StoreUrl,
    /// A file with the certificates in PEM of the authorities that vouch for a `rediss://` server, instead of
    /// the system's; relative to the folder of this file.
    pub store_ca: Option<PathBuf>,
    /// How long one answer of the store is waited for; the leases must outlast it.
    pub store_timeout: Span<1_000>,
    /// First part of every key in Redis. Pods of one fleet share it. A file is one fleet's anyway.
    pub namespace: String,
    /// This pod.
    pub pod: PodSettings,
    /// Where plugins are.
    pub plugins: PluginSettings,
    /// Where job files are.
    pub jobs: JobSettings,
    /// The HTTP port.
    pub http: HttpSettings,
    /// Leadership.
    pub leader: LeaderSettings,
    /// Heartbeats.
    pub subscribers: SubscriberSettings,
    /// The lease that lets one attempt of a job execute.
    pub lock: LockSettings,
    /// What the leader does about runs that stand still.
    pub recovery: RecoverySettings,
    /// The most that a job file may allow itself.
    pub limits: LimitSettings,
    /// What is kept of ended runs.
    pub retention: RetentionSettings,
    /// The guests' runtime.
    pub runtime: RuntimeSettings,
    /// How the pod logs.
    pub log: LogSettings,
    /// Where the values of secrets come from, by name.
    pub secrets: BTreeMap<String, SecretSource>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            store: StoreUrl::default(),
            store_ca: None,
            store_timeout: Span::default(),
            namespace: "distributed_scheduler".into(),
            pod: PodSettings::default(),
            plugins: PluginSettings::default(),
            jobs: JobSettings::default(),
            http: HttpSettings::default(),
            leader: LeaderSettings::default(),
            subscribers: SubscriberSettings::default(),
            lock: LockSettings::default(),
            recovery: RecoverySettings::default(),
            limits: LimitSettings::default(),
            retention: RetentionSettings::default(),
            runtime: RuntimeSettings::default(),
            log: LogSettings::default(),
            secrets: BTreeMap::new(),
        }
    }
}

/// This pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PodSettings {
    /// Its address, unique among live pods. Default: the host's name and process id.
    pub address: Option<String>,
    /// Labels that jobs may ask for.
    pub labels: BTreeMap<String, String>,
    /// Attempts it executes at once. Default: twice the number of cores.
    pub capacity: Option<u32>,
    /// How long a stopping pod waits for its attempts.
    pub drain_timeout: Span<30_000>,
    /// How long an exclusive run waits for the pod's other attempts before it is handed back.
    pub exclusive_wait: Span<30_000>,
}

/// Where plugins are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PluginSettings {
    /// A directory of `NAME.wasm` files.
    pub directory: PathBuf,
    /// How often it is read again although nothing was noticed.
    pub poll: Span<30_000>,
    /// Where compiled plugins are kept; private to this user. Default: below the user's cache directory.
    pub cache: Option<PathBuf>,
}

impl Default for PluginSettings {
    fn default() -> Self {
        PluginSettings {
            directory: "plugins".into(),
            poll: Span::default(),
            cache: None,
        }
    }
}

/// Where job files are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct JobSettings {
    /// A directory of `*.toml` files, one job each.
    pub directory: PathBuf,
    /// How often it is read again although nothing was noticed.
    pub poll: Span<30_000>,
    /// Whether a plugin that no job file names is a job of its own name, by hand only. `dev` asks for it.
    #[serde(skip)]
    pub bare_plugins: bool,
}

impl Default for JobSettings {
    fn default() -> Self {
        JobSettings {
            directory: "jobs".into(),
            poll: Span::default(),
            bare_plugins: false,
        }
    }
}

/// The HTTP port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HttpSettings {
    /// Address and port; port 0 takes a free one, which is printed at start.
    pub listen: SocketAddr,
}

impl Default for HttpSettings {
    fn default() -> Self {
        HttpSettings {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        }
    }
}

/// Leadership.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LeaderSettings {
    /// The lease.
    pub ttl: Span<6_000>,
    /// How often it is renewed.
    pub renewal: Span<2_000>,
}

impl LeaderSettings {
    /// A leader stops publishing this long before its lease ends by the store's clock.
    #[must_use]
    pub fn margin(&self) -> Duration {
        Duration::from_millis(500).min(self.ttl.get() / 4)
    }
}

/// Heartbeats.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SubscriberSettings {
    /// How often a pod says that it lives.
    pub heartbeat: Span<2_000>,
    /// A pod whose heartbeat is older gets no tasks.
    pub window: Span<8_000>,
}

/// The lease that lets one attempt of a job execute.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LockSettings {
    /// The lease.
    pub ttl: Span<10_000>,
    /// How often it is extended.
    pub renewal: Span<3_000>,
    /// A guest is interrupted this long before its lease ends.
    pub margin: Span<1_500>,
}

/// What the leader does about runs that stand still.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RecoverySettings {
    /// The longest time between two looks.
    pub scan: Span<1_000>,
    /// How long a task may wait in a live pod's queue.
    pub scheduled_too_long: Span<300_000>,
    /// How long a restarted pod has to find the tasks of its dead self.
    pub session_grace: Span<2_000>,
    /// How often a run may lose its pod within the window before its job is quarantined.
    pub max_recoveries: u32,
    /// That window.
    pub window: Span<3_600_000>,
    /// A job that is not resumable is run again only if its successes are at most this long on average.
    pub auto_rerun_max_average: Span<600_000>,
}

impl Default for RecoverySettings {
    fn default() -> Self {
        RecoverySettings {
            scan: Span::default(),
            scheduled_too_long: Span::default(),
            session_grace: Span::default(),
            max_recoveries: 3,
            window: Span::default(),
            auto_rerun_max_average: Span::default(),
        }
    }
}

/// The most that a job file may allow itself; a job without limits of its own gets smaller ones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LimitSettings {
    /// Memory of one attempt.
    pub memory: Size,
    /// What a run may log.
    pub log: Size,
    /// Log lines a second of one attempt.
    pub log_lines_per_second: u32,
    /// One checkpoint; at most 16 MiB.
    pub checkpoint: Size,
    /// The state of one job.
    pub state: Size,
    /// One HTTP body.
    pub http_body: Size,
    /// Time-out of one attempt.
    pub timeout: Span<86_400_000>,
}

impl Default for LimitSettings {
    fn default() -> Self {
        LimitSettings {
            memory: Size::mib(1024),
            log: Size::mib(16),
            log_lines_per_second: 10_000,
            checkpoint: Size::mib(16),
            state: Size::mib(16),
            http_body: Size::mib(256),
            timeout: Span::default(),
        }
    }
}

/// What is kept of ended runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RetentionSettings {
    /// How long a record, its log and a failed run's checkpoint are kept.
    pub age: Span<2_592_000_000>,
    /// How many runs of a job are kept.
    pub runs: u32,
}

impl Default for RetentionSettings {
    fn default() -> Self {
        RetentionSettings {
            age: Span::default(),
            runs: 1_000,
        }
    }
}

/// The guests' runtime.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RuntimeSettings {
    /// Threads that run guests. Default: the number of cores.
    pub threads: Option<usize>,
    /// How often an offered checkpoint is saved.
    pub checkpoint_interval: Span<5_000>,
    /// How long before its time-out a guest is asked to stop.
    pub stop_notice: Span<10_000>,
    /// How long a cancelled guest has to clean up.
    pub cancel_grace: Span<5_000>,
}

/// How the pod logs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LogSettings {
    /// `human` or `json`.
    pub format: LogFormat,
    /// A filter such as `info` or `wasmcron=debug,info`. Default: `info`.
    pub level: Option<String>,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Human,
    /// One JSON object a line.
    Json,
}

/// Where the value of a secret comes from; it is read when a guest asks for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum SecretSource {
    /// An environment variable of the pod.
    Env(String),
    /// A file; one line feed at its end is dropped.
    File(PathBuf),
}

impl Settings {
    /// The window that the store keeps a pod's report for, and by which pods judge each other.
    #[must_use]
    pub fn active_window(&self) -> Duration {
        self.subscribers.window.get()
    }
}
