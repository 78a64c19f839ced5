//! One pod as a process.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::{Child, Command};
use wasmcron_tests::host_binary;

use super::wait::{PATIENCE, until};

/// What a test may send to a process.
#[derive(Clone, Copy, Debug)]
pub enum Signal {
    /// SIGKILL.
    Kill,
    /// SIGTERM.
    Terminate,
    /// SIGINT, as Ctrl-C sends it.
    Interrupt,
    /// SIGSTOP.
    Stop,
    /// SIGCONT.
    Continue,
}

impl Signal {
    /// Sends it to a process that lives.
    pub(super) fn send(self, child: &Child) {
        let name = match self {
            Signal::Kill => "-KILL",
            Signal::Terminate => "-TERM",
            Signal::Interrupt => "-INT",
            Signal::Stop => "-STOP",
            Signal::Continue => "-CONT",
        };
        let id = child.id().expect("a live process").to_string();
        let status = std::process::Command::new("kill")
            .args([name, &id])
            .status()
            .expect("kill");
        assert!(status.success(), "kill {name} {id}");
    }
}

/// A running `wasmcron serve`; killed when dropped.
pub struct PodProcess {
    address: String,
    child: Child,
    log: PathBuf,
    http: String,
}

impl PodProcess {
    pub async fn start(address: &str, config: &Path) -> PodProcess {
        let log = config.with_extension("log");
        let output = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&log)
            .expect("a log file");
        let from = output.metadata().expect("its size").len();
        let child = Command::from(host_binary::command())
            .args(["serve", "--config"])
            .arg(config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(output)
            .kill_on_drop(true)
            .spawn()
            .expect("start a pod");
        let mut pod = PodProcess {
            address: address.to_owned(),
            child,
            log,
            http: String::new(),
        };
        pod.http = until(&format!("pod {address} to start"), PATIENCE, async || {
            let exited = pod.child.try_wait().expect("its status");
            assert!(
                exited.is_none(),
                "pod {address} ended: {exited:?}\n{}",
                pod.log_text()
            );
            pod.started_at(usize::try_from(from).expect("a size"))
        })
        .await;
        pod
    }

    /// Where its HTTP port listens, from the line that it prints at start.
    fn started_at(&self, from: usize) -> Option<String> {
        let text = self.log_text();
        let lines = text.get(from..)?.lines();
        let events = lines.filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let started = events
            .into_iter()
            .find(|event| event["message"] == "pod.started")?;
        started["http"].as_str().map(str::to_owned)
    }

    /// Its address in the fleet.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Everything it logged, for the text of a failing assertion.
    pub fn log_text(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        signal.send(&self.child);
    }

    /// SIGKILL, and the end of it.
    pub async fn kill(mut self) {
        self.signal(Signal::Kill);
        self.child.wait().await.expect("its end");
    }

    /// Waits for its end; answers its exit code.
    pub async fn ended(mut self) -> Option<i32> {
        let ended = tokio::time::timeout(PATIENCE, self.child.wait()).await;
        ended.expect("the pod to end").expect("its status").code()
    }

    /// Its metrics, as Prometheus reads them.
    pub async fn metrics(&self) -> String {
        self.get("/metrics").await.1
    }

    /// One series of its metrics; 0 if it was never touched.
    pub async fn metric(&self, series: &str) -> f64 {
        let text = self.metrics().await;
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.map_or(0.0, |value| value.parse().expect("a number"))
    }

    /// Status and body of a path of its HTTP port.
    pub async fn get(&self, path: &str) -> (u16, String) {
        let url = format!("http://{}{path}", self.http);
        let fetched = tokio::task::spawn_blocking(move || {
            let agent: ureq::Agent = ureq::Agent::config_builder()
                .http_status_as_error(false)
                .build()
                .into();
            let mut answer = agent.get(&url).call().expect("an answer");
            (
                answer.status().as_u16(),
                answer.body_mut().read_to_string().expect("a body"),
            )
        });
        fetched.await.expect("the request")
    }
}
