//! Pods as processes with default settings, on a private server.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use tokio::task::JoinHandle;
use wasmcron_store::Store;
use wasmcron_tests::fleet::{self, PodProcess, Timing};
use wasmcron_tests::redis_server::RedisServer;

use crate::raw;
use crate::wire::{Reply, Wire};

/// How long a pod may take until it has opened its jobs.
const PATIENCE: Duration = Duration::from_secs(120);
/// Of the times in `/proc/PID/stat`, in a second.
const TICKS: f64 = 100.0;

/// A server, and the folder that its pods read.
pub struct Site {
    /// The server.
    pub redis: RedisServer,
    /// The store on it.
    pub store: Arc<dyn Store>,
    folder: fleet::Site,
}

impl Site {
    /// With these plugins and no jobs.
    pub async fn new(plugins: &[&str]) -> Result<Site> {
        let redis = RedisServer::start().await;
        let store = raw::store(redis.port()).await?;
        let folder = fleet::Site::new("bench", Timing::Defaults)?;
        for plugin in plugins {
            folder.install(plugin)?;
        }
        Ok(Site {
            redis,
            store,
            folder,
        })
    }

    /// Writes a job file; `schedule` is a line of it, empty for a job that is run by hand.
    pub fn job(&self, name: &str, plugin: &str, schedule: &str) -> Result<()> {
        let text = format!("plugin = \"{plugin}\"\ntimeout = \"1m\"\n{schedule}\n");
        self.folder.write_job(name, &text)
    }

    /// Starts a pod with default settings and waits until it has opened so many jobs.
    pub async fn pod(&self, jobs: u64) -> Result<PodProcess> {
        let config = self.folder.path().join("wasmcron.toml");
        let url = self.redis.url();
        std::fs::write(
            &config,
            format!("store = \"{url}\"\npod.address = \"pod\"\nplugins.cache = \"cache\"\n"),
        )?;
        let mut pod = PodProcess::spawn("pod", &config)?;
        let end = Instant::now() + PATIENCE;
        loop {
            let leads = self.store.leader().await?.is_some();
            if leads && self.store.counts().await?.jobs >= jobs {
                return Ok(pod);
            }
            if Instant::now() >= end || pod.exited()?.is_some() {
                bail!("the pod did not open its jobs:\n{}", pod.last_words(50));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Resident memory of a process, in megabytes of a million bytes.
pub fn resident(id: u32) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib: f64 = line
        .and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok())
        .context("VmRSS")?;
    Ok(kib * 1024.0 / 1e6)
}

/// Processor time that a process used so far, in seconds.
pub fn processor_seconds(id: u32) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat"))?;
    // The name in parentheses may hold spaces.
    let (_, fields) = stat.rsplit_once(") ").context("a process's times")?;
    let times: Vec<f64> = fields
        .split(' ')
        .skip(11)
        .take(2)
        .filter_map(|text| text.parse().ok())
        .collect();
    Ok(times.iter().sum::<f64>() / TICKS)
}

/// When runs came into a queue, by the server's clock.
pub struct Monitor {
    pushed: Arc<Mutex<HashMap<String, u64>>>,
    task: JoinHandle<()>,
}

impl Monitor {
    /// Begins to listen.
    pub async fn start(port: u16) -> Result<Monitor> {
        let mut wire = Wire::connect(port).await?;
        wire.command(&["MONITOR"]).await?;
        let pushed = Arc::new(Mutex::new(HashMap::new()));
        let seen = pushed.clone();
        let task = tokio::spawn(async move {
            while let Ok(Reply::Text(line)) = wire.next().await {
                if let Some((run, at)) = push(&String::from_utf8_lossy(&line)) {
                    seen.lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .insert(run, at);
                }
            }
        });
        Ok(Monitor { pushed, task })
    }

    /// When a run came into a queue, in nanoseconds since 1970.
    pub fn pushed(&self, run: &str) -> Option<u64> {
        let pushed = self.pushed.lock().unwrap_or_else(PoisonError::into_inner);
        pushed.get(run).copied()
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Reads `1764444444.123456 [0 lua] "RPUSH" "key" "run|delivery"`.
fn push(line: &str) -> Option<(String, u64)> {
    let (at, rest) = line.split_once(' ')?;
    let mut words = rest.split('"').skip(1).step_by(2);
    if !words.next()?.eq_ignore_ascii_case("rpush") {
        return None;
    }
    let (run, _) = words.nth(1)?.split_once('|')?;
    let (seconds, micros) = at.split_once('.')?;
    let at = seconds.parse::<u64>().ok()? * 1_000_000 + micros.parse::<u64>().ok()?;
    Some((run.to_owned(), at * 1_000))
}
