//! A fleet whose leader stands behind a tripwire, and what must be true of it in the end.

use std::collections::BTreeSet;

use wasmcron_core::ids::RunId;
use wasmcron_core::run::{RunRecord, RunState};
use wasmcron_store::redis::{self, RedisOptions};
use wasmcron_tests::servers::{self, target::Target};
use wasmcron_tests::tripwire::{Side, Tripwire};

use crate::harness::{Fleet, PATIENCE, PodProcess, Timing, jobs, until};

/// Jobs go to pods with this label, so that a test decides who executes.
pub const WORKERS: &str = "pods = { role = \"worker\" }";
/// Settings of a pod that executes.
pub const WORKER: &str = "pod.labels.role = \"worker\"\npod.exclusive_wait = \"200ms\"";
/// Settings of a pod that does not.
pub const IDLE: &str = "";
/// Steps of a run, and how long each rests, in milliseconds: longer than a lock's renewal in all.
pub const STEPS: u32 = 16;
pub const STEP_MS: u32 = 40;
/// The first pod behind the tripwire.
pub const LEADER: &str = "leader";

/// Who is on it.
pub struct Stage {
    pub fleet: Fleet,
    pub wire: Tripwire,
    pub target: Target,
    server: servers::Running,
    leader: Option<PodProcess>,
    others: Vec<PodProcess>,
}

impl Stage {
    /// A store, and no pod.
    pub async fn empty() -> Stage {
        let fleet = Fleet::new(Timing::Fast).await;
        fleet.install("stepper", "stepper");
        fleet.install("hostile", "hostile");
        let verbs = redis::verbs(&RedisOptions::new(""));
        let wire = Tripwire::start(fleet.store_port(), verbs).await;
        let (target, server) = jobs::target().await;
        Stage {
            fleet,
            wire: wire.expect("a port"),
            target,
            server,
            leader: None,
            others: Vec::new(),
        }
    }

    /// With a leader that executes or does not, and a follower that executes if it does not.
    pub async fn new(leader_executes: bool) -> Stage {
        let mut stage = Stage::empty().await;
        stage
            .lead(LEADER, if leader_executes { WORKER } else { IDLE })
            .await;
        until("the leader", PATIENCE, async || {
            (stage.fleet.leader().await == LEADER).then_some(())
        })
        .await;
        if !leader_executes {
            stage.join("follower", WORKER).await;
        }
        stage
    }

    /// Starts the pod behind the tripwire.
    pub async fn lead(&mut self, address: &str, settings: &str) {
        let url = format!("redis://127.0.0.1:{}/", self.wire.port());
        self.leader = Some(self.fleet.pod_at(address, &url, settings).await);
    }

    /// Starts another pod and waits until it lives.
    pub async fn join(&mut self, address: &str, settings: &str) {
        self.others
            .push(self.fleet.pod_with(address, settings).await);
        until(&format!("{address} to live"), PATIENCE, async || {
            let pods = self.fleet.store().pods().await.expect("pods");
            let here = pods
                .iter()
                .any(|pod| pod.address.as_str() == address && pod.heartbeat.is_some());
            here.then_some(())
        })
        .await;
    }

    /// The pod behind the tripwire.
    pub fn leader(&self) -> &PodProcess {
        self.leader.as_ref().expect("a leader")
    }

    /// Kills the pod behind the tripwire as it is.
    pub async fn kill_leader(&mut self) {
        self.leader.take().expect("a leader").kill().await;
    }

    /// Kills another pod.
    pub async fn kill_other(&mut self, address: &str) {
        let at = self.others.iter().position(|pod| pod.address() == address);
        self.others.swap_remove(at.expect("the pod")).kill().await;
    }

    /// Waits until the leader came to the arrow, and kills it there.
    pub async fn dies(&mut self) {
        let sprung = tokio::time::timeout(PATIENCE, self.wire.sprung()).await;
        assert!(sprung.is_ok(), "the leader never came there");
        self.kill_leader().await;
    }

    /// Writes the file of a job of numbered steps; `more` are further lines of it.
    pub fn steps_job(&self, name: &str, steps: u32, more: &str) {
        let more = format!("{WORKERS}\n{more}");
        let text = jobs::stepper(&self.server.url(), steps, STEP_MS, &more);
        self.fleet.write_job(name, &text);
    }

    /// Where the steps' effects go.
    pub fn target_url(&self) -> String {
        self.server.url()
    }

    /// Waits until a run of steps is well under way.
    pub async fn under_way(&self) {
        until("some steps", PATIENCE, async || {
            (jobs::steps(&self.target).len() >= 4).then_some(())
        })
        .await;
    }

    /// All runs of a job.
    pub async fn runs(&self, job: &str) -> Vec<RunRecord> {
        let name = job.parse().expect("a name");
        self.fleet.store().runs(&name, 1000).await.expect("runs")
    }

    /// Waits until the only run of a job ended; its attempts must have ended like this.
    pub async fn ends_as(&self, job: &str, outcomes: &[&str]) {
        let ended = self
            .fleet
            .run_where(job, "ended", |run| run.state.is_ended())
            .await;
        let runs = self.runs(job).await;
        assert_eq!(runs.len(), 1, "one run: {runs:?}");
        judge(&ended, outcomes);
    }

    /// The steps of a run that were made: all of them, in attempts that follow one another, and none
    /// again but one a lost attempt, which may have been under way when its pod died.
    pub fn judge_steps(&self, run: &RunId, steps: u32, outcomes: &[&str]) {
        let effects: Vec<(u64, u64)> = self
            .target
            .effects()
            .iter()
            .filter(|effect| effect["run"] == run.as_str())
            .map(|effect| {
                let number = |key: &str| effect[key].as_u64().expect("a number");
                (number("attempt"), number("step"))
            })
            .collect();
        let made: BTreeSet<u64> = effects.iter().map(|(_, step)| *step).collect();
        assert_eq!(made, (0..u64::from(steps)).collect(), "{effects:?}");
        assert!(
            effects.is_sorted_by_key(|(attempt, _)| *attempt),
            "{effects:?}"
        );
        let twice = effects.len() - made.len();
        let lost = outcomes
            .iter()
            .filter(|outcome| **outcome == "lost")
            .count();
        assert!(twice <= lost, "{twice} steps were made twice: {effects:?}");
    }

    /// If the request was withheld, it comes once somebody else leads, as from a slow network: nothing
    /// changes.
    pub async fn late(&self, side: Side, jobs: &[&str]) {
        until("another leader", PATIENCE, async || {
            (self.fleet.leader().await != LEADER).then_some(())
        })
        .await;
        if side == Side::After {
            return;
        }
        let before = self.everything(jobs).await;
        let reply = tokio::time::timeout(PATIENCE, self.wire.release()).await;
        let reply = reply.expect("an answer to the late request");
        assert_eq!(
            self.everything(jobs).await,
            before,
            "it was answered {reply:?}"
        );
    }

    async fn everything(&self, jobs: &[&str]) -> (Vec<RunRecord>, String, String) {
        let mut runs = Vec::new();
        for job in jobs {
            runs.extend(self.runs(job).await);
        }
        let counts = self.fleet.store().counts().await.expect("counts");
        (runs, format!("{counts:?}"), self.fleet.leader().await)
    }
}

/// A run's record says how each attempt ended, in order, and how the last one decided it.
pub fn judge(record: &RunRecord, outcomes: &[&str]) {
    let told: Vec<&str> = record
        .attempts
        .iter()
        .map(|attempt| attempt.outcome.as_ref().map_or("none", |it| it.as_str()))
        .collect();
    assert_eq!(told, outcomes, "{record:?}");
    let state = match outcomes.last() {
        None => RunState::Skipped,
        Some(&"lost") => RunState::Lost,
        Some(_) => RunState::Succeeded,
    };
    assert_eq!(record.state, state, "{record:?}");
    let mut numbered = record.attempts.iter().zip(1..);
    assert!(
        numbered.all(|(it, number)| it.attempt == number),
        "{record:?}"
    );
    let fences: Vec<_> = record
        .attempts
        .iter()
        .map(|attempt| attempt.fence)
        .collect();
    assert!(fences.is_sorted_by(|a, b| a < b), "{record:?}");
}
