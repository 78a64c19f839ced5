//! The leader dies at every arrow of a task's life: exactly before the store gets the request, or after
//! the store executed it and before the leader hears of it. Whoever leads then brings the run to the one
//! right end, and the request of the dead changes nothing if it comes late.

mod stage;
mod stories;

use std::fmt;
use std::panic::AssertUnwindSafe;

use futures::{FutureExt as _, StreamExt as _};
use wasmcron_tests::tripwire::Side::{self, After, Before};

use stories::Story;

/// Cases that go on at once; most of the time each waits for a lease to run out.
const AT_ONCE: usize = 6;

/// One arrow, and what becomes of the run if the leader dies there.
#[derive(Clone, Copy)]
struct Arrow {
    /// From where to where.
    name: &'static str,
    /// The verb, or the command, that is the arrow.
    verb: &'static str,
    /// How a leader comes to send it.
    story: Story,
    /// How the attempts of the run ended if the leader died before the store got the request. None: a
    /// request that blocks is always under way.
    before: Option<&'static [&'static str]>,
    /// The same if the store executed it.
    after: &'static [&'static str],
}

impl fmt::Display for Arrow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (`{}`, {:?})", self.name, self.verb, self.story)
    }
}

const ONE: &[&str] = &["succeeded"];
const TWO: &[&str] = &["lost", "succeeded"];

const ARROWS: &[Arrow] = &[
    // The leader executes nothing.
    arrow("nobody leads → leads", "campaign", Story::Elected, ONE, ONE),
    arrow("a job file → in force", "open", Story::Led, ONE, ONE),
    arrow("due → scheduled", "publish", Story::Led, ONE, ONE),
    arrow("missed → a gap", "publish", Story::Missed, ONE, ONE),
    arrow("asked for → scheduled", "promote", Story::Asked, ONE, ONE),
    arrow(
        "running → scheduled elsewhere",
        "republish",
        Story::Recovered,
        TWO,
        TWO,
    ),
    arrow(
        "running → given up",
        "lose",
        Story::GivenUp,
        &["lost"],
        &["lost"],
    ),
    // The leader executes as well.
    arrow("due → scheduled here", "publish", Story::Executed, ONE, ONE),
    Arrow {
        before: None,
        ..arrow("scheduled → taken", "BLMOVE", Story::Executed, ONE, ONE)
    },
    arrow("taken → running", "claim", Story::Executed, ONE, TWO),
    arrow(
        "running, its lock extended",
        "extend",
        Story::Executed,
        TWO,
        TWO,
    ),
    arrow(
        "running, a checkpoint saved",
        "save_checkpoint",
        Story::Executed,
        TWO,
        TWO,
    ),
    arrow("running → ended", "finish", Story::Executed, TWO, ONE),
    arrow(
        "running → retried",
        "finish",
        Story::Retried,
        TWO,
        &["failed", "succeeded"],
    ),
    arrow(
        "a retry → scheduled",
        "promote",
        Story::RetryPromoted,
        &["failed", "succeeded"],
        &["failed", "succeeded"],
    ),
    arrow("taken → skipped", "skip", Story::Skipped, &[], &[]),
    arrow("taken → parked", "park", Story::Parked, ONE, ONE),
    arrow(
        "taken → handed back",
        "hand_back",
        Story::HandedBack,
        ONE,
        ONE,
    ),
    arrow("live → leaving", "leave", Story::Drained, TWO, TWO),
    arrow(
        "running → yielded",
        "finish",
        Story::Drained,
        TWO,
        &["yielded", "succeeded"],
    ),
    arrow("leads → resigned", "resign", Story::Drained, TWO, TWO),
];

const fn arrow(
    name: &'static str,
    verb: &'static str,
    story: Story,
    before: &'static [&'static str],
    after: &'static [&'static str],
) -> Arrow {
    Arrow {
        name,
        verb,
        story,
        before: Some(before),
        after,
    }
}

/// Every firing has one run, every run one end, no step is made twice but the one under way, and the
/// record says so. (C25, C38, C41, C43, C47, C48)
#[tokio::test(flavor = "multi_thread")]
async fn the_leader_dies_at_every_arrow() {
    let sides = |arrow: &Arrow| {
        let before = arrow.before.map(|ends| (*arrow, Before, ends));
        before.into_iter().chain([(*arrow, After, arrow.after)])
    };
    let cases: Vec<(Arrow, Side, &[&str])> = ARROWS.iter().flat_map(sides).collect();
    let count = cases.len();
    let ends: Vec<Option<String>> = futures::stream::iter(cases)
        .map(|(arrow, side, ends)| async move {
            let began = tokio::time::Instant::now();
            let case = stories::play(arrow.story, arrow.verb, side, ends);
            let why = AssertUnwindSafe(case).catch_unwind().await.err()?;
            let why = why
                .downcast_ref::<String>()
                .map(String::as_str)
                .or(why.downcast_ref::<&str>().copied())
                .unwrap_or("a panic without a text");
            Some(format!(
                "the leader died {side:?} {arrow}, after {:?}: {why}",
                began.elapsed()
            ))
        })
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    let failures: Vec<String> = ends.into_iter().flatten().collect();
    assert!(
        failures.is_empty(),
        "{} of {count}:\n{}",
        failures.len(),
        failures.join("\n")
    );
}
