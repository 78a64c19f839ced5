//! Steps of the leader's lease.

use wasmcron_store::leadership::{Campaign, TermRef};

use super::canonical::said;
use super::inputs::{BRIEF, Maker, Pick, pod};
use super::player::Player;
use crate::conformance::LONG;

#[derive(Clone, Debug)]
pub enum Step {
    Campaign { pod: usize, brief: bool },
    Renew { term: Pick, brief: bool },
    Resign { term: Pick },
}

impl Step {
    /// The campaign of a pod for a long lease.
    pub(super) fn win(pod: usize) -> Step {
        Step::Campaign { pod, brief: false }
    }

    /// Whether nobody may lead after it.
    pub(super) fn frees(&self) -> bool {
        !matches!(
            self,
            Step::Campaign { brief: false, .. } | Step::Renew { brief: false, .. }
        )
    }

    pub(super) fn random(maker: &mut Maker) -> Step {
        let brief = maker.one_in(6);
        match maker.rng.u32(0..10) {
            0..6 => Step::Campaign {
                pod: maker.pod(),
                brief,
            },
            6..9 => Step::Renew {
                term: maker.pick(),
                brief,
            },
            _ => Step::Resign { term: maker.pick() },
        }
    }

    pub(super) async fn play(&self, player: &mut Player) -> String {
        let store = player.store.clone();
        let ttl = |brief| if brief { BRIEF } else { LONG };
        match *self {
            Step::Campaign { pod: i, brief } => {
                let me = pod(i);
                let answer = store.campaign(&me, ttl(brief)).await;
                if let Ok(Campaign::Won(term)) = answer {
                    let term = TermRef { pod: me, term };
                    player.terms.retain(|known| *known != term);
                    player.terms.push(term);
                }
                player.pass_if(brief).await;
                said(&answer)
            }
            Step::Renew { term, brief } => {
                let answer = store.renew(&player.term(term), ttl(brief)).await;
                player.pass_if(brief).await;
                said(&answer)
            }
            Step::Resign { term } => said(&store.resign(&player.term(term)).await),
        }
    }
}
