//! Steps of the register of pods.

use wasmcron_core::view::PodLoad;

use super::canonical::said;
use super::inputs::{BRIEF, Maker, PODS, Pick, pod, started};
use super::player::Player;
use crate::conformance::{LONG, report};

#[derive(Clone, Debug)]
pub enum Step {
    Restart {
        pod: usize,
    },
    Revive {
        pod: usize,
    },
    Register {
        pod: usize,
    },
    Report {
        pod: usize,
        version: u32,
    },
    Heartbeat {
        pod: usize,
        draining: bool,
        brief: bool,
    },
    Leave {
        pod: usize,
    },
    Forget {
        term: Pick,
        pod: usize,
        brief: bool,
    },
}

impl Step {
    /// The heartbeat of a pod that goes on living.
    pub(super) fn beat(pod: usize) -> Step {
        Step::Heartbeat {
            pod,
            draining: false,
            brief: false,
        }
    }

    /// How a pod that nothing can be sent to comes back.
    pub(super) fn mended_by(&self) -> Option<Step> {
        match *self {
            Step::Leave { pod }
            | Step::Forget { pod, .. }
            | Step::Register { pod }
            | Step::Heartbeat { pod, .. } => Some(Step::Revive { pod }),
            _ => None,
        }
    }

    pub(super) fn random(maker: &mut Maker) -> Step {
        let pod = maker.pod();
        match maker.rng.u32(0..20) {
            0..3 => Step::Register { pod },
            3..5 => Step::Restart {
                pod: maker.restarted(),
            },
            5..7 => Step::Report {
                pod,
                version: maker.rng.u32(0..3),
            },
            7..15 => Step::Heartbeat {
                pod,
                draining: maker.one_in(8),
                brief: maker.one_in(12),
            },
            15 => Step::Leave { pod },
            16 | 17 => Step::Forget {
                term: maker.pick() / 2,
                pod,
                brief: maker.one_in(3),
            },
            _ => Step::Revive { pod },
        }
    }

    /// What a pod does whom nobody knows.
    async fn revive(player: &mut Player, i: usize) -> String {
        let store = player.store.clone();
        let registered = store
            .register(&pod(i), started(i), &report(started(i)))
            .await;
        player.started(i);
        let beats = store.heartbeat(&pod(i), &PodLoad::default(), LONG).await;
        format!("{} {}", said(&registered), said(&beats))
    }

    pub(super) async fn play(&self, player: &mut Player) -> String {
        let store = player.store.clone();
        match *self {
            Step::Register { pod: i } => {
                let answer = store
                    .register(&pod(i), started(i), &report(started(i)))
                    .await;
                said(&answer)
            }
            Step::Report { pod: i, version } => {
                let mut report = report(started(i));
                report.version = version.to_string();
                said(&store.report(&pod(i), &report).await)
            }
            Step::Heartbeat {
                pod: i,
                draining,
                brief,
            } => {
                let load = PodLoad {
                    running: u32::try_from(i).unwrap_or(0),
                    draining,
                    last_take: started(i),
                    ..PodLoad::default()
                };
                let window = if brief { BRIEF / 10 } else { LONG };
                let answer = store.heartbeat(&pod(i), &load, window).await;
                player.pass_if(brief).await;
                said(&answer)
            }
            Step::Restart { pod } | Step::Revive { pod } => Step::revive(player, pod).await,
            Step::Leave { pod: i } => said(&store.leave(&pod(i)).await),
            Step::Forget {
                term,
                pod: i,
                brief,
            } => {
                player.pass_if(brief).await;
                let (term, address) = (player.term(term), pod(i % PODS).address);
                let window = if brief { BRIEF / 10 } else { LONG };
                said(&store.forget(&term, &address, window).await)
            }
        }
    }
}
