//! The same sequence of verbs for several stores, whose answers must not differ.
//!
//! A seed makes a list of [`Step`]s over a small world: six sessions of three pods, four jobs, nominal
//! times of January 2026. A step is plain data and never holds a number that a store gave: it says
//! "the latest delivery" or "the fence before that", and each [`Player`] knows its own store's. So any
//! part of a list is a list, and one that shows a difference can be made short.
//!
//! A new verb is one more variant of the step of its role, with its weight in `random` and its call in
//! `play`, beside each other in one file.

#![allow(
    clippy::panic,
    clippy::expect_used,
    reason = "all of it is a test: what no store may answer ends it"
)]

mod canonical;
mod damage;
mod inputs;
mod jobs;
mod leading;
mod player;
mod pods;
mod queue;
mod recovery;
mod runs;
mod shrink;
mod view;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;

use crate::conformance::Harness;

pub use inputs::Maker;
pub use player::Player;
pub use shrink::shortest;

/// After so many steps everything is compared.
const LOOK_EVERY: usize = 10;
/// Between two steps, so that no order hangs on whether two of them fell into one millisecond.
const TICK: Duration = Duration::from_millis(1);

/// One call, or a few that belong together.
#[derive(Clone, Debug)]
pub enum Step {
    /// Of the register of pods.
    Pods(pods::Step),
    /// Of the lease.
    Leading(leading::Step),
    /// Of the schedule, and what people ask for.
    Jobs(jobs::Step),
    /// Of taking and claiming.
    Queue(queue::Step),
    /// Of what executing attempts write.
    Runs(runs::Step),
    /// Of what stands still.
    Recovery(recovery::Step),
    /// What no verb does.
    Damage(damage::Step),
}

impl Step {
    /// What mostly follows a step after which little else would succeed.
    fn mended_by(&self, maker: &mut Maker) -> Vec<Step> {
        if maker.one_in(3) {
            return Vec::new();
        }
        match self {
            Step::Leading(step) if step.frees() => {
                vec![Step::Leading(leading::Step::win(maker.pod()))]
            }
            Step::Pods(step) => step.mended_by().map(Step::Pods).into_iter().collect(),
            Step::Jobs(step) => {
                let steps = step.mended_by(maker).into_iter();
                steps.map(Step::Jobs).collect()
            }
            _ => Vec::new(),
        }
    }

    async fn play(&self, player: &mut Player) -> String {
        let said = match self {
            Step::Pods(step) => Box::pin(step.play(player)).await,
            Step::Leading(step) => Box::pin(step.play(player)).await,
            Step::Jobs(step) => Box::pin(step.play(player)).await,
            Step::Queue(step) => Box::pin(step.play(player)).await,
            Step::Runs(step) => Box::pin(step.play(player)).await,
            Step::Recovery(step) => Box::pin(step.play(player)).await,
            Step::Damage(step) => Box::pin(step.play(player)).await,
        };
        player.symbols.canonical(&said)
    }
}

/// The steps of a seed.
#[must_use]
pub fn steps(seed: u64, count: usize) -> Vec<Step> {
    let mut maker = Maker::new(Rng::with_seed(seed));
    let mut steps = opening(&mut maker);
    while steps.len() < count {
        let step = random(&mut maker);
        let next = step.mended_by(&mut maker);
        steps.push(step);
        steps.extend(next);
    }
    steps
}

fn random(maker: &mut Maker) -> Step {
    match maker.rng.u32(0..100) {
        0..7 => Step::Pods(pods::Step::random(maker)),
        7..10 => Step::Leading(leading::Step::random(maker)),
        10..37 => Step::Jobs(jobs::Step::random(maker)),
        37..67 => Step::Queue(queue::Step::random(maker)),
        67..90 => Step::Runs(runs::Step::random(maker)),
        90..97 => Step::Recovery(recovery::Step::random(maker)),
        _ => Step::Damage(damage::Step::random(maker)),
    }
}

/// What nearly everything else needs: pods that live, a leader, jobs.
fn opening(maker: &mut Maker) -> Vec<Step> {
    let mut steps = Vec::new();
    for pod in 0..inputs::PODS {
        steps.push(Step::Pods(pods::Step::Register { pod }));
        steps.push(Step::Pods(pods::Step::beat(pod)));
    }
    steps.push(Step::Leading(leading::Step::win(0)));
    for job in 0..inputs::JOBS {
        steps.push(Step::Jobs(jobs::Step::first(maker, job)));
    }
    steps
}

/// Two stores that answered differently.
#[derive(Clone)]
pub struct Difference {
    /// The number of the step that showed it.
    pub at: usize,
    /// The step, and what was compared.
    pub what: String,
    /// For each store its name and what it said, as far as it differs.
    pub said: Vec<(&'static str, String)>,
}

impl fmt::Debug for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "step {}: {}", self.at, self.what)?;
        for (name, said) in &self.said {
            writeln!(f, "  {name}:")?;
            for line in said.lines() {
                writeln!(f, "    {line}")?;
            }
        }
        Ok(())
    }
}

/// Plays steps to all stores; the first difference ends it.
///
/// # Errors
/// The difference.
pub async fn play(
    sides: Vec<(&'static str, Arc<dyn Harness>)>,
    steps: &[Step],
) -> Result<(), Difference> {
    let mut players = Vec::new();
    for (name, harness) in sides {
        players.push(Player::new(name, harness).await);
    }
    for (at, step) in steps.iter().enumerate() {
        tokio::time::sleep(TICK).await;
        let mut said = Vec::new();
        for player in &mut players {
            said.push((player.name, step.play(player).await));
        }
        compare(at, &format!("{step:?}"), &said)?;
        if (at + 1) % LOOK_EVERY == 0 || at + 1 == steps.len() {
            let mut seen = Vec::new();
            for player in &mut players {
                seen.push((player.name, Box::pin(view::everything(player)).await));
            }
            compare(at, "the view", &seen)?;
        }
    }
    Ok(())
}

fn compare(at: usize, what: &str, said: &[(&'static str, String)]) -> Result<(), Difference> {
    let Some((_, first)) = said.first() else {
        return Ok(());
    };
    if said.iter().all(|(_, other)| other == first) {
        return Ok(());
    }
    // Lines that all of them have tell nothing.
    let texts: Vec<String> = said.iter().map(|(_, text)| text.clone()).collect();
    let common = |line: &&str| texts.iter().all(|text| text.lines().any(|l| l == *line));
    let only = |text: &str| -> String {
        let lines: Vec<&str> = text.lines().filter(|line| !common(line)).collect();
        lines.join("\n")
    };
    let said = said.iter().map(|(name, text)| (*name, only(text)));
    Err(Difference {
        at,
        what: what.to_owned(),
        said: said.collect(),
    })
}
