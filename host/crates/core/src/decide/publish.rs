//! Which pod gets a task.

use std::time::Duration;

use crate::ids::PodAddress;
use crate::job::Definition;
use crate::time::Timestamp;
use crate::view::Pod;

/// Why no pod gets a task; the run stays due and says so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoPod {
    /// Nobody subscribes.
    #[error("no live pod")]
    NoneLive,
    /// Some subscribe, but none carries the labels.
    #[error("none of {live} live pods has the labels that the job asks for")]
    Labels {
        /// How many live.
        live: usize,
    },
    /// None has read a job file of this name.
    #[error("no live pod has a file of this job")]
    Job,
    /// None has the plugin, or the version the job asks for.
    #[error("no live pod has the plugin {plugin}")]
    Plugin {
        /// The plugin, with the digest where the job names one.
        plugin: String,
    },
    /// Each that could handed it back.
    #[error("every live pod that has the plugin handed the task back")]
    Avoided,
    /// Each that could runs, or waits to run, an exclusive job.
    #[error("every live pod that has the plugin is held by an exclusive run")]
    Exclusive,
}

/// The live pods, and whose turn it is.
///
/// Round robin over active subscribers in the order of their addresses: with pods A, B, C four
/// tasks go to A, B, C and A. The turn survives changes of the membership by remembering the last
/// address, not an index.
#[derive(Clone, Debug, Default)]
pub struct Picker {
    live: Vec<Pod>,
    last: Option<PodAddress>,
}

impl Picker {
    /// Takes a fresh reading of the pods.
    pub fn refresh(&mut self, pods: Vec<Pod>, now: Timestamp, window: Duration) {
        self.live = pods;
        self.live
            .retain(|pod| pod.is_active(now, window) && pod.report.is_some() && !pod.load.draining);
        self.live.sort_by(|a, b| a.address.cmp(&b.address));
    }

    /// Drops a pod that an answer of the store called gone.
    pub fn exclude(&mut self, address: &PodAddress) {
        self.live.retain(|pod| pod.address != *address);
    }

    /// The live pods.
    #[must_use]
    pub fn live(&self) -> &[Pod] {
        &self.live
    }

    /// The next pod in turn that can run the job and is not to be avoided.
    ///
    /// # Errors
    /// When there is none; the reason names the last obstacle that the nearest pods met.
    pub fn pick(
        &mut self,
        job: &str,
        definition: &Definition,
        avoid: &[PodAddress],
    ) -> Result<PodAddress, NoPod> {
        let count = self.live.len();
        let start = match &self.last {
            Some(last) => self.live.partition_point(|pod| pod.address <= *last),
            None => 0,
        };
        let mut nearest = Obstacle::None;
        for step in 0..count {
            let Some(pod) = self.live.get((start + step) % count) else {
                continue;
            };
            match obstacle(pod, job, definition, avoid) {
                Obstacle::None => {
                    self.last = Some(pod.address.clone());
                    return Ok(pod.address.clone());
                }
                met => nearest = nearest.max(met),
            }
        }
        Err(match nearest {
            Obstacle::None => NoPod::NoneLive,
            Obstacle::Labels => NoPod::Labels { live: count },
            Obstacle::Job => NoPod::Job,
            Obstacle::Plugin => NoPod::Plugin {
                plugin: match &definition.digest {
                    Some(digest) => format!("{} at {}", definition.plugin, digest.short()),
                    None => definition.plugin.to_string(),
                },
            },
            Obstacle::Avoided => NoPod::Avoided,
            Obstacle::Exclusive => NoPod::Exclusive,
        })
    }
}

/// How near a pod comes to running a task: later obstacles are met by pods that passed earlier ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Obstacle {
    None,
    Labels,
    Job,
    Plugin,
    Avoided,
    Exclusive,
}

fn obstacle(pod: &Pod, job: &str, definition: &Definition, avoid: &[PodAddress]) -> Obstacle {
    let Some(report) = &pod.report else {
        return Obstacle::Job;
    };
    if definition
        .pods
        .iter()
        .any(|(label, value)| report.labels.get(label) != Some(value))
    {
        return Obstacle::Labels;
    }
    if !report.jobs.contains_key(job) {
        return Obstacle::Job;
    }
    let has = report.plugins.get(&definition.plugin);
    // A pinned version may still be loaded on a pod whose active one is newer, but that pod's next
    // restart would lose it: only pods where it is active count.
    if !has.is_some_and(|active| {
        definition
            .digest
            .as_ref()
            .is_none_or(|wanted| wanted == active)
    }) {
        return Obstacle::Plugin;
    }
    if avoid.contains(&pod.address) {
        return Obstacle::Avoided;
    }
    if pod.load.exclusive.is_some() {
        Obstacle::Exclusive
    } else {
        Obstacle::None
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use std::collections::BTreeMap;

    use crate::decide::agenda::testing::definition;
    use crate::ids::{Digest, JobName, PluginName, PodAddress, SessionId};
    use crate::time::Timestamp;
    use crate::view::{JobReport, Pod, PodLoad, PodReport};

    pub(crate) fn session(n: u8) -> SessionId {
        SessionId::new(&format!("01JDX0000000000000000000{n:02}")).expect("ulid")
    }

    pub(crate) fn pod(address: &str, heartbeat: Timestamp) -> Pod {
        let report = PodReport {
            version: "0".into(),
            started: Timestamp::EPOCH,
            capacity: 4,
            labels: BTreeMap::new(),
            plugins: [(PluginName::new("p").expect("name"), Digest::of(b"p"))].into(),
            jobs: [(
                JobName::new("job").expect("name"),
                JobReport {
                    hash: definition("@daily").hash(),
                    since: Timestamp::EPOCH,
                },
            )]
            .into(),
            refused: BTreeMap::new(),
        };
        Pod {
            address: PodAddress::new(address).expect("address"),
            session: Some(session(1)),
            heartbeat: Some(heartbeat),
            report: Some(report.into()),
            load: PodLoad::default(),
            queued: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::pod;
    use super::*;
    use crate::decide::agenda::testing::definition;
    use crate::ids::{Digest, RunId};

    const WINDOW: Duration = Duration::from_secs(8);

    fn now() -> Timestamp {
        Timestamp::from_millis(1_000_000)
    }

    fn picker(pods: Vec<Pod>) -> Picker {
        let mut picker = Picker::default();
        picker.refresh(pods, now(), WINDOW);
        picker
    }

    #[test]
    fn four_tasks_go_to_a_b_c_a() {
        let mut picker = picker(["c", "a", "b"].map(|name| pod(name, now())).into());
        let job = definition("@daily");
        let order: Vec<_> = (0..4)
            .map(|_| picker.pick("job", &job, &[]).expect("pod").to_string())
            .collect();
        assert_eq!(order, ["a", "b", "c", "a"]);
    }

    #[test]
    fn a_silent_or_draining_pod_is_not_picked() {
        let mut draining = pod("b", now());
        draining.load.draining = true;
        let silent = pod("a", now() - WINDOW);
        let mut picker = picker(vec![silent, draining, pod("c", now())]);
        let job = definition("@daily");
        for _ in 0..3 {
            assert_eq!(picker.pick("job", &job, &[]).expect("pod").as_str(), "c");
        }
    }

    #[test]
    fn the_reason_names_the_nearest_obstacle() {
        let mut job = definition("@daily");
        assert_eq!(picker(vec![]).pick("job", &job, &[]), Err(NoPod::NoneLive));
        let mut busy = pod("b", now());
        busy.load.exclusive = Some(RunId::nominal(&"x".parse().expect("name"), now()));
        let avoid = [PodAddress::new("a").expect("address")];
        assert_eq!(
            picker(vec![pod("a", now())]).pick("job", &job, &avoid),
            Err(NoPod::Avoided)
        );
        assert_eq!(
            picker(vec![pod("a", now()), busy]).pick("job", &job, &avoid),
            Err(NoPod::Exclusive)
        );
        assert_eq!(
            picker(vec![pod("a", now())]).pick("other", &job, &[]),
            Err(NoPod::Job)
        );
        job.digest = Some(Digest::of(b"newer"));
        assert!(matches!(
            picker(vec![pod("a", now())]).pick("job", &job, &[]),
            Err(NoPod::Plugin { .. })
        ));
        job.pods.insert("zone".into(), "eu".into());
        assert_eq!(
            picker(vec![pod("a", now())]).pick("job", &job, &[]),
            Err(NoPod::Labels { live: 1 })
        );
    }
}
