//! Steps of taking, claiming and giving back.

use std::time::Duration;

use wasmcron_core::ids::{Digest, Token};
use wasmcron_store::queue::{Claim, Claimed, HandBack, Hold};
use wasmcron_store::runs::AttemptRef;

use super::canonical::said;
use super::inputs::{BRIEF, Maker, Pick, pod};
use super::player::{Held, Player, chosen};
use crate::conformance::LONG;

#[derive(Clone, Debug)]
pub enum Step {
    Take {
        pod: usize,
        max: usize,
    },
    Claiming {
        pod: usize,
    },
    Claim {
        taken: Pick,
        fresh: bool,
        by: Option<usize>,
        token: u128,
        brief: bool,
        late: bool,
    },
    ClaimAgain {
        claim: Pick,
    },
    Skip {
        taken: Pick,
        fresh: bool,
        by: Option<usize>,
    },
    Park {
        taken: Pick,
        fresh: bool,
        by: Option<usize>,
        max: u32,
    },
    GiveUp {
        taken: Pick,
        fresh: bool,
        by: Option<usize>,
        avoid: bool,
        later: bool,
    },
    HandBack {
        held: Pick,
        fresh: bool,
        by: Option<usize>,
        counted: bool,
        avoid: bool,
        later: bool,
    },
}

impl Step {
    pub(super) fn random(maker: &mut Maker) -> Step {
        let by = maker.one_in(12).then(|| maker.pod());
        let (taken, fresh) = (maker.pick(), !maker.one_in(4));
        match maker.rng.u32(0..100) {
            0..14 => Step::Take {
                pod: maker.pod(),
                max: maker.rng.usize(1..4),
            },
            14..16 => Step::Claiming { pod: maker.pod() },
            16..66 => Step::Claim {
                taken,
                fresh,
                by,
                token: maker.number(),
                brief: maker.one_in(10),
                late: maker.one_in(12),
            },
            66..74 => Step::ClaimAgain {
                claim: maker.pick(),
            },
            74..78 => Step::Skip { taken, fresh, by },
            78..88 => Step::Park {
                taken,
                fresh,
                by,
                max: maker.rng.u32(0..3),
            },
            88..93 => Step::GiveUp {
                taken,
                fresh,
                by,
                avoid: maker.rng.bool(),
                later: maker.one_in(4),
            },
            _ => Step::HandBack {
                held: taken,
                fresh,
                by,
                counted: maker.rng.bool(),
                avoid: maker.one_in(3),
                later: maker.one_in(4),
            },
        }
    }

    pub(super) async fn play(&self, player: &mut Player) -> String {
        match *self {
            Step::Take { pod: i, max } => player.take_for(i, max).await,
            Step::Claiming { pod: i } => said(&player.store.claiming(&pod(i)).await),
            Step::Claim {
                taken,
                fresh,
                by,
                token,
                brief,
                late,
            } => {
                let Some((me, taken)) = player.taken(taken, fresh).await else {
                    return "nothing taken".into();
                };
                let claim = Claim {
                    me: by.map_or(me, pod),
                    taken,
                    token: Token::new(&format!("token{token}")).expect("a token"),
                    digest: (token % 2 == 0).then(|| Digest::of(b"p")),
                    lock_ttl: if brief { BRIEF } else { LONG },
                    ends_in: if late { BRIEF } else { LONG },
                };
                player.claims.push(claim.clone());
                let answer = claimed(player, &claim).await;
                player.pass_if(brief || late).await;
                answer
            }
            Step::ClaimAgain { claim } => match chosen(&player.claims, claim) {
                Some(claim) => {
                    let answer = claimed(player, &claim).await;
                    player.pass_if(claim.lock_ttl == BRIEF).await;
                    answer
                }
                None => "no claim".into(),
            },
            _ => self.decline(player).await,
        }
    }

    async fn decline(&self, player: &mut Player) -> String {
        let store = player.store.clone();
        match *self {
            Step::HandBack {
                held,
                fresh,
                by,
                counted,
                avoid,
                later,
            } => {
                let Some(held) = player.held(held, fresh).await else {
                    return "nothing held".into();
                };
                let back = HandBack {
                    me: by.map_or(held.pod, pod),
                    run: held.at.run,
                    hold: Hold::Fence {
                        fence: held.at.fence,
                        counted,
                    },
                    why: "draining|".into(),
                    avoid,
                    due_in: if later { LONG } else { Duration::ZERO },
                };
                said(&store.hand_back(&back).await)
            }
            Step::Skip { taken, fresh, by }
            | Step::Park {
                taken, fresh, by, ..
            }
            | Step::GiveUp {
                taken, fresh, by, ..
            } => {
                let Some((me, taken)) = player.taken(taken, fresh).await else {
                    return "nothing taken".into();
                };
                let me = by.map_or(me, pod);
                match *self {
                    Step::Skip { .. } => said(&store.skip(&me, &taken, "over|lap").await),
                    Step::Park { max, .. } => said(&store.park(&me, &taken, max).await),
                    Step::GiveUp { avoid, later, .. } => {
                        let back = HandBack {
                            me,
                            run: taken.run,
                            hold: Hold::Delivery(taken.delivery),
                            why: "no|plugin".into(),
                            avoid,
                            due_in: if later { LONG } else { Duration::ZERO },
                        };
                        said(&store.hand_back(&back).await)
                    }
                    _ => unreachable!("one of the three"),
                }
            }
            _ => unreachable!("played above"),
        }
    }
}

async fn claimed(player: &mut Player, claim: &Claim) -> String {
    let answer = player.store.claim(claim).await;
    if let Ok(Claimed::Claimed(attempt)) = &answer {
        let held = Held {
            pod: claim.me.clone(),
            at: AttemptRef {
                job: claim.taken.run.job(),
                run: claim.taken.run.clone(),
                fence: attempt.fence,
            },
            number: attempt.task.attempt,
            failures: attempt.task.failures,
            seq: attempt.checkpoint.as_ref().map_or(0, |kept| kept.seq),
        };
        player.held.retain(|known| known.at != held.at);
        player.held.push(held);
    }
    said(&answer)
}
