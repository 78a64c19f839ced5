//! Steps of finding what stands still, and moving it.

use wasmcron_core::ids::RunId;
use wasmcron_core::run::RunState;
use wasmcron_store::recovery::{Loss, Register, Seen};

use super::canonical::said;
use super::inputs::{Maker, Pick, kept, pod};
use super::player::{Player, chosen};

#[derive(Clone, Debug)]
pub enum Step {
    Look,
    Republish {
        term: Pick,
        seen: Pick,
        fresh: bool,
        to: usize,
        counted: bool,
    },
    Lose {
        term: Pick,
        seen: Pick,
        fresh: bool,
        late: bool,
        quarantine: bool,
        few: bool,
    },
    Bury {
        term: Pick,
        register: Register,
        run: Pick,
    },
}

impl Step {
    pub(super) fn random(maker: &mut Maker) -> Step {
        let term = if maker.one_in(12) { maker.pick() } else { 0 };
        let (seen, fresh) = (maker.pick(), !maker.one_in(3));
        match maker.rng.u32(0..20) {
            0..2 => Step::Look,
            2..12 => Step::Republish {
                term,
                seen,
                fresh,
                to: maker.pod(),
                counted: maker.rng.bool(),
            },
            12..16 => Step::Lose {
                term,
                seen,
                fresh,
                late: maker.rng.bool(),
                quarantine: maker.one_in(6),
                few: maker.kept().0,
            },
            _ => Step::Bury {
                term,
                register: register(maker),
                run: seen,
            },
        }
    }

    pub(super) async fn play(&self, player: &mut Player) -> String {
        let store = player.store.clone();
        match *self {
            Step::Look => {
                look(player).await;
                format!("{:?}", player.seen)
            }
            Step::Republish {
                term,
                seen,
                fresh,
                to,
                counted,
            } => {
                let Some((run, seen)) = found(player, seen, fresh).await else {
                    return "nothing seen".into();
                };
                let (term, to) = (player.term(term), pod(to).address);
                said(
                    &store
                        .republish(&term, &run, seen, &to, "it|died", counted)
                        .await,
                )
            }
            Step::Lose {
                term,
                seen,
                fresh,
                late,
                quarantine,
                few,
            } => {
                let Some((run, seen)) = found(player, seen, fresh).await else {
                    return "nothing seen".into();
                };
                let loss = Loss {
                    state: if late {
                        RunState::TimedOut
                    } else {
                        RunState::Lost
                    },
                    reason: "poi|son".into(),
                    quarantine,
                    digest: None,
                    retention: kept(few, false),
                };
                said(&store.lose(&player.term(term), &run, seen, &loss).await)
            }
            Step::Bury {
                term,
                register,
                run,
            } => {
                let Some(run) = chosen(&player.runs, run) else {
                    return "no run".into();
                };
                let term = player.term(term);
                said(
                    &store
                        .bury(&term, register, &(&run).into(), kept(false, false))
                        .await,
                )
            }
        }
    }
}

pub(super) fn register(maker: &mut Maker) -> Register {
    match maker.rng.u32(0..3) {
        0 => Register::Scheduled,
        1 => Register::Running,
        _ => Register::Delayed,
    }
}

/// Sees what stands in the registers now, as a recoverer does.
async fn look(player: &mut Player) -> usize {
    let scheduled = player.store.scheduled(None).await.expect("scheduled");
    let running = player.store.running(None).await.expect("running");
    let scheduled = scheduled.entries.into_iter();
    let running = running.entries.into_iter();
    let mut now: Vec<(RunId, Seen)> = scheduled
        .map(|entry| (entry.task.run, Seen::Scheduled(entry.delivery)))
        .chain(running.map(|entry| (entry.task.run, Seen::Running(entry.fence))))
        .collect();
    now.sort_by_key(|(run, seen)| (run.clone(), matches!(seen, Seen::Running(_))));
    player.seen.retain(|known| !now.contains(known));
    let count = now.len();
    player.seen.extend(now);
    count
}

/// Something that is there, or anything that once was.
async fn found(player: &mut Player, pick: Pick, fresh: bool) -> Option<(RunId, Seen)> {
    if !fresh {
        return chosen(&player.seen, pick);
    }
    let count = look(player).await;
    let pick = pick % count.max(1);
    chosen(&player.seen, pick)
}
