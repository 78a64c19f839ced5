//! The processes of the demo, and a folder for them.

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::program::Program;
use super::{HELLO, SYNC};
use crate::build::Programs;
use crate::host;

/// How long a stopping pod may take: its drain and some slack.
const END_LIMIT: Duration = Duration::from_secs(40);
/// How far ahead the sync is scheduled: time for the pods to read its file and agree on it.
const LEAD: u64 = 5;

/// Everything that runs.
pub struct Stage {
    wasmcron: PathBuf,
    folder: tempfile::TempDir,
    store: String,
    source: String,
    target: String,
    pods: BTreeMap<String, Program>,
    /// Dropped last: pods first, then what they talk to.
    servers: Vec<Program>,
}

impl Stage {
    /// Starts store, source and target, and prepares the folders of the pods. Without a Redis server the
    /// store is a file.
    pub fn new(
        programs: &Programs,
        redis: Option<&Path>,
        seed: u64,
        rows: u64,
        latency_ms: u64,
    ) -> Result<Stage> {
        let folder = tempfile::Builder::new()
            .prefix("wasmcron-demo-")
            .tempdir()?;
        let (server, store) = match redis {
            Some(redis) => {
                let (server, url) = start_redis(redis, folder.path())?;
                (Some(server), url)
            }
            None => {
                let file = folder.path().join("wasmcron.db");
                (None, format!("sqlite://{}", file.display()))
            }
        };
        let mut command = Command::new(&programs.source);
        command.args(["--seed", &seed.to_string(), "--rows", &rows.to_string()]);
        command.args(["--latency-ms", &latency_ms.to_string()]);
        let (source, source_url) = Program::server("the source", &mut command)?;
        let (target, target_url) =
            Program::server("the target", &mut Command::new(&programs.target))?;
        for name in ["plugins", "jobs"] {
            fs::create_dir(folder.path().join(name))?;
        }
        let stage = Stage {
            wasmcron: programs.wasmcron.clone(),
            folder,
            store,
            source: source_url,
            target: target_url,
            pods: BTreeMap::new(),
            servers: [Some(source), Some(target), server]
                .into_iter()
                .flatten()
                .collect(),
        };
        for plugin in [SYNC, HELLO] {
            fs::copy(built(plugin), stage.plugin(plugin))
                .with_context(|| format!("the built plugin {plugin}"))?;
        }
        let hello = format!("name = \"{HELLO}\"\nevery = \"1s\"\ntimeout = \"10s\"\n");
        fs::write(stage.folder.path().join("jobs").join("hello.toml"), hello)?;
        Ok(stage)
    }

    /// The store, for people.
    pub fn store(&self) -> String {
        match self.store.strip_prefix("sqlite://") {
            Some(file) => format!("one SQLite file, {file}; no server runs"),
            None => format!("one Redis, {}", self.store),
        }
    }

    /// Starts a pod with the product's default timing and waits until it is ready.
    pub fn start_pod(&mut self, name: &str) -> Result<()> {
        let folder = self.folder.path();
        let config = folder.join(format!("{name}.toml"));
        let port = free_port()?;
        let text = format!(
            "store = \"{}\"\npod.address = \"{name}\"\nhttp.listen = \"127.0.0.1:{port}\"\n\
             plugins.directory = \"plugins\"\nplugins.cache = \"cache\"\njobs.directory = \"jobs\"\n",
            self.store
        );
        fs::write(&config, text)?;
        let mut command = Command::new(&self.wasmcron);
        command.arg("serve").arg("--config").arg(&config);
        let mut pod = Program::start(name, &mut command, &folder.join(format!("{name}.log")))?;
        let end = Instant::now() + super::PATIENCE;
        while ureq::get(format!("http://127.0.0.1:{port}/readyz"))
            .call()
            .is_err()
        {
            if !pod.is_running() || Instant::now() >= end {
                bail!("{name} did not become ready");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        self.pods.insert(name.to_owned(), pod);
        Ok(())
    }

    /// Writes the sync's job file, due once some seconds from now; answers when.
    pub fn schedule_sync(&self) -> Result<String> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        let at = now + LEAD;
        let (second, minute, hour) = (at % 60, at / 60 % 60, at / 3600 % 24);
        let (source, target) = (&self.source, &self.target);
        let text = format!(
            "name = \"{SYNC}\"\nplugin = \"{SYNC}\"\ncron = \"{second} {minute} {hour} * * *\"\n\
             timezone = \"UTC\"\nresumable = true\nauto_rerun = true\ntimeout = \"10m\"\n\
             [params]\nsource = \"{source}/rows\"\ntarget = \"{target}\"\npage_size = 200\n\
             [allow]\nhttp = [\"{source}\", \"{target}\"]\n"
        );
        fs::write(self.folder.path().join("jobs").join("sync.toml"), text)?;
        Ok(format!("{hour:02}:{minute:02}:{second:02}Z"))
    }

    /// SIGKILL.
    pub fn kill_pod(&mut self, name: &str) -> Result<()> {
        self.pods
            .remove(name)
            .with_context(|| format!("there is no pod {name}"))?
            .kill()
    }

    /// Puts other bytes with the same behaviour in a plugin's place; answers their digest.
    pub fn swap_plugin(&self, name: &str) -> Result<String> {
        let mut bytes = fs::read(built(name))?;
        // A custom section: the component says the same and has another digest.
        bytes.extend([0, 5, 4, b'd', b'e', b'm', b'o']);
        let beside = self.plugin(name).with_extension("part");
        fs::write(&beside, &bytes)?;
        fs::rename(&beside, self.plugin(name))?;
        let checked = self.json(&["plugin", "check", &self.plugin(name).display().to_string()])?;
        Ok(checked["digest"].as_str().context("no digest")?.to_owned())
    }

    /// What a command of the product prints as JSON.
    pub fn json(&self, arguments: &[&str]) -> Result<Value> {
        let mut command = Command::new(&self.wasmcron);
        command
            .current_dir(self.folder.path())
            .args(["--json", "--store", &self.store])
            .args(arguments);
        let text = host::output(&mut command)?;
        serde_json::from_str(&text).with_context(|| format!("{arguments:?} printed {text}"))
    }

    /// Rows in the target, by its own log.
    pub fn rows_written(&self) -> Result<u64> {
        let dump = self.target_dump(false)?;
        let entries = dump["log"]["entries"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let bulk = |entry: &&Value| {
            entry["path"]
                .as_str()
                .is_some_and(|path| path.ends_with("_bulk"))
        };
        let rows = |entry: &Value| {
            entry["rows"].as_u64().unwrap_or(0) - entry["rewritten"].as_u64().unwrap_or(0)
        };
        Ok(entries.iter().filter(bulk).map(rows).sum())
    }

    /// Everything the target has.
    pub fn target_dump(&self, documents: bool) -> Result<Value> {
        get(&format!("{}/admin/dump?documents={documents}", self.target))
    }

    /// Count and checksum of the source.
    pub fn source_version(&self) -> Result<Value> {
        get(&format!("{}/version", self.source))
    }

    /// A path of the target.
    pub fn target_get(&self, path: &str) -> Result<Value> {
        get(&format!("{}{path}", self.target))
    }

    /// The end of each pod's log, for a story that went wrong.
    pub fn last_words(&self) -> String {
        let mut words = String::new();
        for entry in fs::read_dir(self.folder.path())
            .into_iter()
            .flatten()
            .flatten()
        {
            let path = entry.path();
            if path.extension().is_some_and(|kind| kind == "log") {
                let text = fs::read_to_string(&path).unwrap_or_default();
                let lines: Vec<_> = text.lines().rev().take(15).collect();
                words.push_str(&format!("--- {}\n", path.display()));
                words.extend(lines.into_iter().rev().map(|line| format!("{line}\n")));
            }
        }
        words
    }

    /// Ends everything in order: pods by SIGTERM, then what they talked to.
    pub fn end(mut self, keep: bool) -> Result<()> {
        let pods = std::mem::take(&mut self.pods);
        for pod in pods.values() {
            pod.terminate()?;
        }
        for (name, pod) in pods {
            let status = pod.ended(END_LIMIT)?;
            if !status.success() {
                bail!("{name} ended with {status} after SIGTERM");
            }
        }
        self.servers.clear();
        if keep {
            println!("kept: {}", self.folder.keep().display());
        }
        Ok(())
    }

    fn plugin(&self, name: &str) -> PathBuf {
        self.folder
            .path()
            .join("plugins")
            .join(format!("{name}.wasm"))
    }
}

fn built(plugin: &str) -> PathBuf {
    host::target("plugins").join(format!("{plugin}.wasm"))
}

fn get(url: &str) -> Result<Value> {
    Ok(ureq::get(url)
        .call()?
        .body_mut()
        .with_config()
        .limit(64 << 20)
        .read_json()?)
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// A private server on loopback, without persistence.
fn start_redis(program: &Path, folder: &Path) -> Result<(Program, String)> {
    let port = free_port()?;
    let mut command = Command::new(program);
    command.args([
        "--port",
        &port.to_string(),
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--appendonly",
        "no",
    ]);
    command.arg("--dir").arg(folder);
    let mut server = Program::start("the Redis server", &mut command, &folder.join("redis.log"))?;
    let end = Instant::now() + Duration::from_secs(10);
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        if !server.is_running() || Instant::now() >= end {
            bail!("the Redis server did not start");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok((server, format!("redis://127.0.0.1:{port}")))
}
