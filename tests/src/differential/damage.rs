//! Steps that no verb makes.

use wasmcron_core::ids::RunId;
use wasmcron_store::recovery::Register;

use super::canonical::said;
use super::inputs::{Maker, PODS, Pick, job, kept, pod};
use super::player::{Player, chosen};
use super::recovery::register;
use crate::conformance::Damage;

#[derive(Clone, Debug)]
pub enum Step {
    QueueLost {
        pod: usize,
    },
    QueueEntry {
        pod: usize,
    },
    LockLost {
        job: usize,
    },
    PlaceLost {
        job: usize,
    },
    EntryLost {
        register: Register,
        entry: Pick,
    },
    CutAndBury {
        term: Pick,
        register: Register,
        entry: Pick,
    },
    Remember {
        register: Register,
        entry: Pick,
    },
    Restore {
        entry: Pick,
    },
}

impl Step {
    pub(super) fn random(maker: &mut Maker) -> Step {
        let (job, pod) = (maker.job(), maker.rng.usize(0..PODS));
        let (register, entry) = (register(maker), maker.pick());
        match maker.rng.u32(0..12) {
            0 => Step::QueueLost { pod },
            1 => Step::QueueEntry { pod },
            2..6 => Step::LockLost { job },
            6 => Step::PlaceLost { job },
            7 => Step::EntryLost { register, entry },
            8 => Step::CutAndBury {
                term: 0,
                register,
                entry,
            },
            9..11 => Step::Remember { register, entry },
            _ if maker.forgets() => Step::LockLost { job },
            _ => Step::Restore { entry },
        }
    }

    pub(super) async fn play(&self, player: &mut Player) -> String {
        let damage = match *self {
            Step::QueueLost { pod: i } => Damage::QueueLost(pod(i)),
            Step::QueueEntry { pod: i } => {
                let damage = Damage::QueueEntry(pod(i), "nonsense".into());
                player.harness.damage(damage).await;
                // At once, since a store may put behind it what comes later, or before it.
                return player.take_for(i, 100).await;
            }
            Step::LockLost { job: i } => Damage::LockLost(job(i)),
            Step::PlaceLost { job: i } => Damage::PlaceLost(job(i)),
            Step::EntryLost { register, entry } => match entry_of(player, register, entry).await {
                Some(run) => Damage::EntryLost(register, run),
                None => return "no entry".into(),
            },
            Step::Remember { register, entry } => match entry_of(player, register, entry).await {
                Some(run) => {
                    player.remembered.retain(|(_, known)| *known != run);
                    player.remembered.push((register, run.clone()));
                    Damage::Remember(register, run)
                }
                None => return "no entry".into(),
            },
            Step::Restore { entry } => match chosen(&player.remembered, entry) {
                Some((register, run)) => Damage::Restore(register, run),
                None => return "no entry".into(),
            },
            Step::CutAndBury {
                term,
                register,
                entry,
            } => return cut_and_bury(player, term, register, entry).await,
        };
        let shown = format!("{damage:?}");
        player.harness.damage(damage).await;
        shown
    }
}

/// An entry that is there.
async fn entry_of(player: &Player, register: Register, pick: Pick) -> Option<RunId> {
    let store = &player.store;
    let mut runs: Vec<RunId> = match register {
        Register::Scheduled => {
            let page = store.scheduled(None).await.expect("scheduled");
            page.entries
                .into_iter()
                .map(|entry| entry.task.run)
                .collect()
        }
        Register::Running => {
            let page = store.running(None).await.expect("running");
            page.entries
                .into_iter()
                .map(|entry| entry.task.run)
                .collect()
        }
        Register::Delayed => {
            let mut runs = Vec::new();
            for run in &player.runs {
                if matches!(store.delayed(run).await, Ok(Some(_))) {
                    runs.push(run.clone());
                }
            }
            runs
        }
    };
    runs.sort();
    let pick = pick % runs.len().max(1);
    chosen(&runs, pick)
}

async fn cut_and_bury(player: &mut Player, term: Pick, register: Register, pick: Pick) -> String {
    let Some(run) = entry_of(player, register, pick).await else {
        return "no entry".into();
    };
    let damage = Damage::EntryCut(register, run.clone());
    player.harness.damage(damage).await;
    let term = player.term(term);
    let keep = kept(false, false);
    let mut answer = player
        .store
        .bury(&term, register, &(&run).into(), keep)
        .await;
    if matches!(answer, Ok(false)) {
        // Nobody leads: what cannot be read does not stay, or every read would have to agree on it.
        let lost = Damage::EntryLost(register, run.clone());
        player.harness.damage(lost).await;
        answer = Ok(false);
    }
    format!("{run} {}", said(&answer))
}
