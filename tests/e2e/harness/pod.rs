//! One pod as a process, for tests that fail where it does not do as it should.

use std::path::Path;

use wasmcron_tests::fleet::{self, Signal};

use super::wait::{PATIENCE, until};

/// A running `wasmcron serve`; killed when dropped.
pub struct PodProcess {
    process: fleet::PodProcess,
    http: String,
}

impl PodProcess {
    pub async fn start(address: &str, config: &Path) -> PodProcess {
        let mut process = fleet::PodProcess::spawn(address, config).expect("start a pod");
        let serves = process.serves(PATIENCE).await.expect("its status");
        assert!(
            serves,
            "pod {address} does not serve: {:?}\n{}",
            process.exited(),
            process.words()
        );
        let http = process.http().expect("the line that it starts with");
        PodProcess { process, http }
    }

    /// Its address in the fleet.
    pub fn address(&self) -> &str {
        self.process.address()
    }

    /// Everything it logged, for the text of a failing assertion.
    pub fn log_text(&self) -> String {
        self.process.words()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal).expect("a live process");
    }

    /// SIGKILL, and the end of it.
    pub async fn kill(self) {
        self.signal(Signal::Kill);
        self.ended().await;
    }

    /// Waits for its end; answers its exit code.
    pub async fn ended(mut self) -> Option<i32> {
        let status = self.process.ended(PATIENCE).await.expect("its end");
        status.code()
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

    /// Waits until something is counted, and holds the count to this number. What the store shows is there
    /// before the pod that wrote it has counted it.
    pub async fn counts(&self, series: &str, number: f64) {
        until(&format!("a count of {series}"), PATIENCE, async || {
            (self.metric(series).await >= number).then_some(())
        })
        .await;
        assert_eq!(self.metric(series).await, number, "{series}");
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
