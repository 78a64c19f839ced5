//! Steps of the schedule, and of what people ask for.

use std::time::Duration;

use wasmcron_core::ids::RunId;
use wasmcron_core::task::{Reason, Task};
use wasmcron_core::time::Timestamp;
use wasmcron_core::view::{Gap, Waiting};
use wasmcron_store::schedule::{
    Changes, Decision, IdempotencyKey, PublishAnswer, Published, Submission, Submitted,
};

use super::canonical::said;
use super::inputs::{Maker, Pick, at, job, pod, run, stored};
use super::player::{Player, chosen};
use crate::conformance::LONG;

/// A decision before it has a task.
#[derive(Clone, Copy, Debug)]
pub struct Decided {
    job: usize,
    second: u64,
    /// The first second of a gap that ends at `second`; none: it fires.
    from: Option<u64>,
    after: u64,
    to: usize,
}

/// Whom a submission asks for.
#[derive(Clone, Copy, Debug)]
pub enum Asked {
    /// A run of its own.
    Manual(u128),
    /// A nominal time.
    Backfill(u64),
}

#[derive(Clone, Debug)]
pub enum Step {
    Open {
        term: Pick,
        job: usize,
        was: Option<u32>,
        variant: u32,
        since: u64,
    },
    Publish {
        term: Pick,
        decided: Vec<Decided>,
    },
    Submit {
        job: usize,
        asked: Asked,
        key: Option<u32>,
        body: u32,
    },
    Pause {
        job: usize,
    },
    Resume {
        job: usize,
    },
    Release {
        job: usize,
    },
    Retire {
        term: Pick,
        job: usize,
    },
    SetWaiting {
        term: Pick,
        job: usize,
        waits: bool,
    },
    Changes {
        since: Option<Pick>,
    },
    PromoteDue {
        term: Pick,
        to: usize,
    },
    Promote {
        term: Pick,
        run: Pick,
        to: usize,
    },
    Explain {
        term: Pick,
        run: Pick,
        soon: bool,
    },
}

impl Step {
    /// Opens a job for the first time.
    pub(super) fn first(maker: &mut Maker, job: usize) -> Step {
        Step::Open {
            term: 0,
            job,
            was: None,
            variant: maker.rng.u32(0..2),
            since: 0,
        }
    }

    /// How a job fires again.
    pub(super) fn mended_by(&self, maker: &mut Maker) -> Vec<Step> {
        match *self {
            Step::Retire { job, .. } => {
                maker.starts_again(job);
                vec![Step::first(maker, job)]
            }
            // The cursor is where the clock is.
            Step::Resume { job } => {
                maker.starts_again(job);
                vec![Step::Retire { term: 0, job }, Step::first(maker, job)]
            }
            Step::Pause { job } if maker.rng.bool() => {
                vec![Step::Retire { term: 0, job }, Step::first(maker, job)]
            }
            _ => Vec::new(),
        }
    }

    pub(super) fn random(maker: &mut Maker) -> Step {
        let job = maker.job();
        let term = if maker.one_in(12) { maker.pick() } else { 0 };
        match maker.rng.u32(0..100) {
            0..38 => Step::Publish {
                term,
                decided: (0..maker.rng.usize(1..4))
                    .map(|_| Decided::random(maker))
                    .collect(),
            },
            38..62 => Step::PromoteDue {
                term,
                to: maker.pod(),
            },
            62..66 => Step::Promote {
                term,
                run: maker.pick(),
                to: maker.pod(),
            },
            66..78 => Step::submission(maker, job),
            78..81 => Step::Explain {
                term,
                run: maker.pick(),
                soon: maker.rng.bool(),
            },
            81..83 => Step::Pause { job },
            83..85 => Step::Resume { job },
            85..87 => Step::Release { job },
            87..90 => Step::Retire { term, job },
            90..92 => Step::SetWaiting {
                term,
                job,
                waits: maker.rng.bool(),
            },
            92..95 => Step::Changes {
                since: maker.rng.bool().then(|| maker.pick()),
            },
            _ => Step::Open {
                term,
                job,
                was: maker.rng.bool().then(|| maker.rng.u32(0..3)),
                variant: maker.rng.u32(0..3),
                since: maker.rng.u64(0..20),
            },
        }
    }

    fn submission(maker: &mut Maker, job: usize) -> Step {
        let asked = if maker.one_in(4) {
            Asked::Backfill(maker.rng.u64(1..30))
        } else {
            let new = maker.number();
            // Sometimes one that was asked for before.
            Asked::Manual(if maker.one_in(8) { new / 2 } else { new })
        };
        Step::Submit {
            job,
            asked,
            key: maker.one_in(3).then(|| maker.rng.u32(0..6)),
            body: maker.rng.u32(0..2),
        }
    }

    pub(super) async fn play(&self, player: &mut Player) -> String {
        let store = player.store.clone();
        match self {
            Step::Publish { term, decided } => publish(player, *term, decided).await,
            Step::Submit {
                job,
                asked,
                key,
                body,
            } => submit(player, *job, *asked, *key, *body).await,
            Step::Changes { since } => changes(player, *since).await,
            Step::PromoteDue { term, to } => promote_due(player, *term, *to).await,
            Step::Promote { term, run, to } => {
                let Some(run) = chosen(&player.runs, *run) else {
                    return "no run".into();
                };
                let moves = [(run, pod(*to).address)];
                said(&store.promote(&player.term(*term), &moves).await)
            }
            Step::Explain { term, run, soon } => {
                let Some(run) = chosen(&player.runs, *run) else {
                    return "no run".into();
                };
                let again = if *soon { Duration::ZERO } else { LONG };
                let term = player.term(*term);
                said(&store.explain_delayed(&term, &run, "no|body", again).await)
            }
            other => other.operate(player).await,
        }
    }

    async fn operate(&self, player: &mut Player) -> String {
        let store = player.store.clone();
        match *self {
            Step::Open {
                term,
                job: i,
                was,
                variant,
                since,
            } => {
                let was = was.map(|variant| stored(variant, 0).hash);
                let (term, new) = (player.term(term), stored(variant, since));
                said(&store.open(&term, &job(i), was.as_ref(), &new).await)
            }
            Step::Pause { job: i } => said(&store.pause(&job(i), "ann", "too|loud").await),
            Step::Resume { job: i } => said(&store.resume(&job(i), "ann").await),
            Step::Release { job: i } => said(&store.release(&job(i), "ann").await),
            Step::Retire { term, job: i } => said(&store.retire(&player.term(term), &job(i)).await),
            Step::SetWaiting {
                term,
                job: i,
                waits,
            } => {
                let waiting = waits.then(|| Waiting {
                    since: at(1),
                    why: "no|pod".into(),
                });
                let term = player.term(term);
                said(&store.set_waiting(&term, &job(i), waiting.as_ref()).await)
            }
            _ => unreachable!("played above"),
        }
    }
}

impl Decided {
    fn random(maker: &mut Maker) -> Decided {
        let job = maker.job();
        let second = maker.second(job);
        Decided {
            job,
            second,
            from: maker
                .one_in(8)
                .then(|| second.saturating_sub(maker.rng.u64(0..2)).max(1)),
            after: match maker.rng.u32(0..10) {
                0 => second + 1,
                1..4 => second - 1,
                _ => 0,
            },
            to: maker.pod(),
        }
    }

    fn decision(self) -> Decision {
        // Zero stands for no cursor at all.
        let after = if self.after == 0 {
            Timestamp::EPOCH
        } else {
            at(self.after)
        };
        let run = run(self.job, self.second);
        match self.from {
            None => Decision::Fire {
                task: task(run, at(self.second), Reason::Scheduled),
                to: pod(self.to).address,
                after,
            },
            Some(from) => Decision::Gap {
                job: job(self.job),
                gap: Gap {
                    from: at(from),
                    to: at(self.second),
                    count: self.second - from + 1,
                    why: "mis|fire".into(),
                },
                after,
            },
        }
    }
}

fn task(run: RunId, nominal: Timestamp, reason: Reason) -> Task {
    Task::first(run, nominal, reason, r#"{"a":"b|c"}"#.into())
}

async fn publish(player: &mut Player, term: Pick, decided: &[Decided]) -> String {
    let decisions: Vec<Decision> = decided.iter().map(|one| one.decision()).collect();
    let term = player.term(term);
    let answer = player.store.publish(&term, &decisions).await;
    if let Ok(PublishAnswer::Answers(answers)) = &answer {
        for (answer, decision) in answers.iter().zip(decisions) {
            if let (Published::Published, Decision::Fire { task, .. }) = (answer, decision) {
                player.knows(task.run);
            }
        }
    }
    said(&answer)
}

async fn submit(
    player: &mut Player,
    of: usize,
    asked: Asked,
    key: Option<u32>,
    body: u32,
) -> String {
    let (run, nominal, reason) = match asked {
        Asked::Manual(n) => {
            let run = format!("{}@01JDX{n:021}", job(of));
            (run.parse().expect("a run id"), at(0), Reason::Manual)
        }
        Asked::Backfill(second) => (run(of, second), at(second), Reason::Backfill),
    };
    let submission = Submission {
        task: task(run, nominal, reason),
        idempotency: key.map(|key| IdempotencyKey {
            key: format!("key{key}"),
            body: format!("body{body}"),
        }),
    };
    let answer = player.store.submit(&submission).await;
    if let Ok(Submitted::Accepted { run }) = &answer {
        player.knows(run.clone());
    }
    said(&answer)
}

async fn changes(player: &mut Player, since: Option<Pick>) -> String {
    let since = since.and_then(|pick| chosen(&player.versions, pick));
    let answer = player.store.changes(since).await;
    if let Ok(Changes::Jobs { version, .. } | Changes::Everything { version }) = &answer {
        player.versions.push(*version);
    }
    said(&answer)
}

/// What a leader does with what is due.
async fn promote_due(player: &mut Player, term: Pick, to: usize) -> String {
    let (term, to) = (player.term(term), pod(to).address);
    let mut due = match player.store.due_delayed(5).await {
        Ok(due) => due,
        Err(error) => return said::<()>(&Err(error)),
    };
    let shown = due.entries.iter().map(|entry| format!("{entry:?}"));
    let shown: Vec<String> = shown.collect();
    due.corrupt.sort();
    let runs = due.entries.iter().map(|entry| entry.task.run.clone());
    let moves: Vec<_> = runs.map(|run| (run, to.clone())).collect();
    let answer = player.store.promote(&term, &moves).await;
    format!(
        "{}\ncorrupt {:?} next {:?}\n{}",
        shown.join("\n"),
        due.corrupt,
        due.next,
        said(&answer)
    )
}
