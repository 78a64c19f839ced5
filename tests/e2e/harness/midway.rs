//! Pods in the middle of a run of numbered steps: where most tests of faults begin.

use std::collections::BTreeSet;

use wasmcron_core::ids::RunId;
use wasmcron_tests::servers::{self, target::Target};

use super::{Fleet, PATIENCE, PodProcess, Timing, jobs, until};

/// The job's name.
pub const JOB: &str = "steps";

/// A fleet whose job `steps` runs.
pub struct Midway {
    /// The fleet.
    pub fleet: Fleet,
    /// Its pods, but those that were taken out.
    pub pods: Vec<PodProcess>,
    /// The run.
    pub run: RunId,
    /// Where the effects go.
    pub target: Target,
    _server: servers::Running,
}

impl Midway {
    /// Starts the pods and a run of so many steps, and waits until some were done. `more` are further
    /// lines of the job file.
    pub async fn start(
        timing: Timing,
        pods: &[&str],
        steps: u32,
        step_ms: u32,
        more: &str,
    ) -> Midway {
        Midway::on(Fleet::new(timing).await, pods, steps, step_ms, more).await
    }

    /// The same in a fleet that is there and has no pods yet.
    pub async fn on(fleet: Fleet, pods: &[&str], steps: u32, step_ms: u32, more: &str) -> Midway {
        let (target, server) = jobs::target().await;
        fleet.install("stepper", "stepper");
        fleet.write_job(JOB, &jobs::stepper(&server.url(), steps, step_ms, more));
        let mut started = Vec::new();
        for pod in pods {
            started.push(fleet.pod(pod).await);
        }
        fleet.live(pods.len()).await;
        fleet.opened(&[JOB]).await;
        let run = fleet.trigger(JOB, "{}").await;
        let midway = Midway {
            fleet,
            pods: started,
            run,
            target,
            _server: server,
        };
        until("some steps", PATIENCE, async || {
            (midway.steps().len() >= 8).then_some(())
        })
        .await;
        midway
    }

    /// The steps that reached the target, as (attempt, step), in order.
    pub fn steps(&self) -> Vec<(u64, u64)> {
        jobs::steps(&self.target)
    }

    /// The different steps among them.
    pub fn distinct_steps(&self) -> BTreeSet<u64> {
        self.steps().into_iter().map(|(_, step)| step).collect()
    }

    /// Takes out the pod that executes the first attempt.
    pub async fn victim(&mut self) -> PodProcess {
        let address = self.fleet.attempt(&self.run, 1).await.attempts[0]
            .pod
            .to_string();
        let index = self.pods.iter().position(|pod| pod.address() == address);
        self.pods.swap_remove(index.expect("the executing pod"))
    }
}
