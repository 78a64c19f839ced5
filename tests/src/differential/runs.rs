//! Steps of what executing attempts write, and of what ends them.

use std::time::Duration;

use wasmcron_core::ids::Digest;
use wasmcron_core::run::{Outcome, Progress, RunState};
use wasmcron_core::task::Reason;
use wasmcron_store::runs::{AttemptRef, Finish, LogLine, Next, SaveCheckpoint, Saved, StateWrite};

use super::canonical::said;
use super::inputs::{BRIEF, Maker, Pick, at, kept, pod};
use super::player::{Held, Player, chosen};
use crate::conformance::LONG;

/// How an attempt ends.
#[derive(Clone, Copy, Debug)]
pub enum Ends {
    Well,
    Badly,
    Late,
    Cancelled,
    Retries,
    Yields,
}

#[derive(Clone, Debug)]
pub enum Step {
    Extend {
        held: Vec<Pick>,
        fresh: bool,
        by: Option<usize>,
        brief: bool,
    },
    Save {
        held: Pick,
        fresh: bool,
        ahead: u64,
        bytes: usize,
    },
    SetState {
        held: Pick,
        fresh: bool,
        key: u32,
        bytes: Option<usize>,
    },
    Log {
        held: Pick,
        fresh: bool,
        lines: u32,
        batch: u32,
    },
    Progress {
        held: Pick,
        fresh: bool,
        done: u32,
    },
    Finish {
        held: Pick,
        fresh: bool,
        ends: Ends,
        later: bool,
        writes: Vec<(u32, Option<usize>)>,
        few: bool,
        brief: bool,
    },
    Cancel {
        run: Pick,
        fresh: bool,
        by: u32,
        few: bool,
        brief: bool,
    },
    Clear {
        run: Pick,
    },
}

/// Bytes of state that a job may have.
const STATE_LIMIT: u32 = 40;

impl Step {
    pub(super) fn random(maker: &mut Maker) -> Step {
        let (held, fresh) = (maker.pick(), !maker.one_in(4));
        let (few, brief) = maker.kept();
        match maker.rng.u32(0..100) {
            0..16 => Step::Extend {
                fresh,
                held: (0..maker.rng.u32(1..4)).map(|_| maker.pick()).collect(),
                by: maker.one_in(8).then(|| maker.pod()),
                brief: maker.one_in(4),
            },
            16..36 => Step::Save {
                held,
                fresh,
                ahead: maker.rng.u64(0..3),
                bytes: maker.rng.usize(0..40),
            },
            36..46 => Step::SetState {
                held,
                fresh,
                key: maker.rng.u32(0..3),
                bytes: written(maker),
            },
            46..54 => Step::Log {
                held,
                fresh,
                lines: maker.rng.u32(1..4),
                batch: maker.rng.u32(0..4),
            },
            54..60 => Step::Progress {
                held,
                fresh,
                done: maker.rng.u32(0..9),
            },
            60..82 => Step::Finish {
                held,
                fresh,
                ends: match maker.rng.u32(0..12) {
                    0..3 => Ends::Well,
                    3..5 => Ends::Badly,
                    5 => Ends::Late,
                    6 => Ends::Cancelled,
                    7..10 => Ends::Retries,
                    _ => Ends::Yields,
                },
                later: maker.one_in(3),
                writes: (0..maker.rng.usize(0..3))
                    .map(|_| (maker.rng.u32(0..3), written(maker)))
                    .collect(),
                few,
                brief,
            },
            82..96 => Step::Cancel {
                run: maker.pick(),
                fresh,
                by: maker.rng.u32(0..2),
                few,
                brief,
            },
            _ => Step::Clear { run: maker.pick() },
        }
    }

    pub(super) async fn play(&self, player: &mut Player) -> String {
        let store = player.store.clone();
        match self {
            Step::Extend {
                held,
                fresh,
                by,
                brief,
            } => extend(player, held, *fresh, *by, *brief).await,
            Step::Cancel {
                run,
                fresh,
                by,
                few,
                brief,
            } => {
                let run = match player.held(*run, true).await {
                    Some(held) if *fresh => Some(held.at.run),
                    _ => chosen(&player.runs, *run),
                };
                let Some(run) = run else {
                    return "no run".into();
                };
                let by = format!("ann|{by}");
                let answer = store.cancel(&run, &by, kept(*few, *brief)).await;
                player.pass_if(*brief).await;
                said(&answer)
            }
            Step::Clear { run } => match chosen(&player.runs, *run) {
                Some(run) => said(&store.clear_checkpoint(&run, "ann").await),
                None => "no run".into(),
            },
            Step::Save { held, fresh, .. }
            | Step::SetState { held, fresh, .. }
            | Step::Log { held, fresh, .. }
            | Step::Progress { held, fresh, .. }
            | Step::Finish { held, fresh, .. } => match player.held(*held, *fresh).await {
                Some(held) => self.write(player, held).await,
                None => "nothing held".into(),
            },
        }
    }

    async fn write(&self, player: &mut Player, held: Held) -> String {
        let store = player.store.clone();
        match self {
            Step::Save { ahead, bytes, .. } => {
                let save = checkpoint(&held, *ahead, *bytes);
                let answer = store.save_checkpoint(&save).await;
                if let Ok(Saved::Saved(seq)) = answer {
                    let same = |known: &&mut Held| known.at.run == held.at.run;
                    for known in player.held.iter_mut().filter(same) {
                        known.seq = known.seq.max(seq);
                    }
                }
                said(&answer)
            }
            Step::SetState { key, bytes, .. } => {
                let write = state(*key, *bytes);
                said(&store.set_state(&held.at, &write, STATE_LIMIT).await)
            }
            Step::Log { lines, batch, .. } => {
                let lines: Vec<LogLine> = (0..*lines).map(|n| line(&held, *batch, n)).collect();
                said(&store.append_log(&held.at, &lines, 5).await)
            }
            Step::Progress { done, .. } => {
                let progress = Progress {
                    done: f64::from(*done),
                    total: (done % 2 == 0).then_some(9.5),
                    message: "at|it".into(),
                };
                said(&store.report_progress(&held.at, &progress).await)
            }
            Step::Finish {
                ends,
                later,
                writes,
                few,
                brief,
                ..
            } => {
                let mut finish = finish(held, *ends, *later);
                let writes = writes.iter().map(|(key, bytes)| state(*key, *bytes));
                finish.state = writes.collect();
                finish.retention = kept(*few, *brief);
                let answer = store.finish(&finish).await;
                player.pass_if(*brief).await;
                said(&answer)
            }
            _ => unreachable!("played above"),
        }
    }
}

fn written(maker: &mut Maker) -> Option<usize> {
    (!maker.one_in(4)).then(|| maker.rng.usize(0..25))
}

async fn extend(
    player: &mut Player,
    picks: &[Pick],
    fresh: bool,
    by: Option<usize>,
    brief: bool,
) -> String {
    let mut held: Vec<Held> = Vec::new();
    for pick in picks {
        held.extend(player.held(*pick, fresh).await);
    }
    let Some(first) = held.first() else {
        return "nothing held".into();
    };
    let me = by.map_or(first.pod.clone(), pod);
    let attempts: Vec<AttemptRef> = held.iter().map(|held| held.at.clone()).collect();
    let ttl = if brief { BRIEF } else { LONG };
    let answer = player.store.extend(&me, &attempts, ttl).await;
    player.pass_if(brief).await;
    said(&answer)
}

fn checkpoint(held: &Held, ahead: u64, bytes: usize) -> SaveCheckpoint {
    SaveCheckpoint {
        attempt: held.at.clone(),
        number: held.number,
        seq: (held.seq + ahead).max(1),
        schema: 3,
        digest: Digest::of(b"p"),
        data: vec![b'x'; bytes],
        limit: 35,
    }
}

fn state(key: u32, bytes: Option<usize>) -> StateWrite {
    StateWrite {
        key: format!("key{key}"),
        value: bytes.map(|bytes| vec![b'y'; bytes]),
    }
}

fn line(held: &Held, batch: u32, n: u32) -> LogLine {
    LogLine {
        at: at(u64::from(n)),
        attempt: held.number,
        level: "info".into(),
        message: format!("line {n} of {batch}"),
        fields: vec![("a|b".into(), "c\nd".into())],
    }
}

fn finish(held: Held, ends: Ends, later: bool) -> Finish {
    let end = |state| Next::End { state, why: None };
    let again = |reason, failures, idle_yields| Next::Again {
        reason,
        due_in: if later { LONG } else { Duration::ZERO },
        failures,
        idle_yields,
        why: "once|more".into(),
    };
    let failed = || Outcome::Failed {
        message: "bad|luck".into(),
        retry: true,
        after_ms: later.then_some(7),
    };
    let (outcome, next) = match ends {
        Ends::Well => (
            Outcome::Succeeded {
                summary: "all|done".into(),
            },
            end(RunState::Succeeded),
        ),
        Ends::Badly => (failed(), end(RunState::Failed)),
        Ends::Late => {
            let message = "its|time-out".into();
            (Outcome::TimedOut { message }, end(RunState::TimedOut))
        }
        Ends::Cancelled => {
            let by = "bob".into();
            (Outcome::Cancelled { by }, end(RunState::Cancelled))
        }
        Ends::Retries => (failed(), again(Reason::Retry, held.failures + 1, 0)),
        Ends::Yields => (Outcome::Yielded, again(Reason::Resume, held.failures, 1)),
    };
    Finish {
        attempt: held.at,
        me: held.pod,
        outcome,
        next,
        digest: later.then(|| Digest::of(b"q")),
        state: Vec::new(),
        state_limit: STATE_LIMIT,
        retention: kept(false, false),
    }
}
