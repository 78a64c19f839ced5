//! What pods and targets saw of a run of the product, and whether it kept its promises.
//!
//! The history is written outside the store: the pods' logs ([`log`]), the requests that the target
//! answered ([`Effect`]), and the faults that were injected ([`Fault`]). [`check`] holds it, with a
//! final [`Reading`] of the store and the target, against the invariants of the protocol. It is pure:
//! each rule has a test that plants the fault it is there for.

mod check;
mod figures;
pub mod log;
mod reading;
mod rules;
mod span;
#[cfg(test)]
mod tests;
mod timeline;

use std::fmt;

use wasmcron_core::ids::{JobName, RunId};
use wasmcron_core::time::Timestamp;

use crate::servers::requests::Entry;

pub use check::{Bounds, Counted, Rule, Verdict, Violation, check};
pub use figures::{Figures, Percentiles, Wait, figures};
pub use reading::{JobReading, Reading, SyncReading};
pub use span::Span;

/// One line of a pod's log that matters here.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// When, by the machine's clock.
    pub at: Timestamp,
    /// The pod whose log it stands in.
    pub pod: String,
    /// What happened.
    pub kind: Kind,
    /// The line as people read it.
    pub text: String,
}

/// What a line says.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// `pod.started`.
    PodStarted,
    /// `pod.stopped`.
    PodStopped,
    /// `leader.won`.
    Won {
        /// The term.
        term: u64,
    },
    /// `leader.lost` or `leader.resigned`.
    Deposed {
        /// The term.
        term: u64,
    },
    /// `run.published` of a firing.
    Published {
        /// The run.
        run: RunId,
        /// The leader's term.
        term: u64,
    },
    /// `run.published` of a run that was delayed, `run.recovered`, or `firing.gap`.
    Led {
        /// The run, if it is about one.
        run: Option<RunId>,
        /// The leader's term.
        term: u64,
        /// It took the run from an attempt or a queue.
        recovered: bool,
    },
    /// `run.lost`: the leader ended the run.
    Lost {
        /// The run.
        run: RunId,
        /// The leader's term.
        term: u64,
    },
    /// `run.claimed`.
    Claimed(Attempt),
    /// `run.started`.
    Started {
        /// The attempt.
        attempt: Attempt,
        /// The sequence of the checkpoint it began from; 0: from nothing.
        from: u64,
    },
    /// `checkpoint.saved`: the store acknowledged it.
    Saved {
        /// The run.
        run: RunId,
        /// The fence of the attempt.
        fence: u64,
        /// The sequence.
        seq: u64,
    },
    /// `run.finished`.
    Finished {
        /// The attempt.
        attempt: Attempt,
        /// What was to come: a state of the run, or `again`.
        next: String,
        /// What the store answered: `finished`, `fenced` or `none`.
        answer: String,
    },
    /// `run.fenced`: a write was refused.
    Fenced {
        /// The run.
        run: RunId,
    },
    /// `run.handed_back`, by its own pod or by the next session of it.
    HandedBack {
        /// The run.
        run: RunId,
        /// The fence of the attempt, if it had begun.
        fence: Option<u64>,
    },
    /// `run.skipped`, `run.waiting` and what else is about a run.
    About {
        /// The run.
        run: RunId,
    },
    /// Something else.
    Other,
}

/// One attempt, as its lines name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The run.
    pub run: RunId,
    /// Its number.
    pub number: u32,
    /// Its fence.
    pub fence: u64,
}

impl Kind {
    /// The run it is about.
    #[must_use]
    pub fn run(&self) -> Option<&RunId> {
        match self {
            Kind::Published { run, .. }
            | Kind::Lost { run, .. }
            | Kind::Saved { run, .. }
            | Kind::Fenced { run }
            | Kind::HandedBack { run, .. }
            | Kind::About { run } => Some(run),
            Kind::Led { run, .. } => run.as_ref(),
            Kind::Claimed(attempt)
            | Kind::Started { attempt, .. }
            | Kind::Finished { attempt, .. } => Some(&attempt.run),
            Kind::PodStarted | Kind::PodStopped | Kind::Won { .. } | Kind::Deposed { .. } => None,
            Kind::Other => None,
        }
    }
}

/// One write that a target was asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Effect {
    /// When its headers came.
    pub received: Timestamp,
    /// When it took effect or was refused. Effects stand in this order.
    pub at: Timestamp,
    /// The run it came from.
    pub run: RunId,
    /// The number of the attempt.
    pub attempt: u32,
    /// Its fence.
    pub fence: u64,
    /// Method and path.
    pub what: String,
    /// Its idempotency key.
    pub key: Option<String>,
    /// What became of it.
    pub became: Became,
    /// Rows that the target had before and took again.
    pub rewritten: usize,
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Became {
    /// It took effect.
    Applied,
    /// It had taken effect before; nothing happened.
    Duplicate,
    /// A later fence had been seen.
    Fenced,
    /// Refused for another reason.
    Refused,
}

impl Effect {
    /// Reads a request; none for one that wrote nothing or says nobody's name.
    #[must_use]
    pub fn of(entry: &Entry) -> Option<Effect> {
        if entry.method == "GET" || entry.path.starts_with("/admin") {
            return None;
        }
        let time = |ms: u64| Timestamp::from_millis(i64::try_from(ms).unwrap_or(i64::MAX));
        let once = entry.path.starts_with("/effects/once");
        let became = match entry.status {
            _ if entry.fenced => Became::Fenced,
            200..=299 if once && entry.rewritten > 0 => Became::Duplicate,
            200..=299 => Became::Applied,
            _ => Became::Refused,
        };
        Some(Effect {
            received: time(entry.received_ms),
            at: time(entry.at_ms),
            run: entry.caller.run.as_deref()?.parse().ok()?,
            attempt: entry.caller.attempt?,
            fence: entry.caller.fence.as_deref()?.parse().ok()?,
            what: format!("{} {}", entry.method, entry.path),
            key: entry.key.clone(),
            became,
            rewritten: entry.rewritten,
        })
    }

    /// The job.
    #[must_use]
    pub fn job(&self) -> JobName {
        self.run.job()
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "target: {} by attempt {} (fence {}) of {}: {:?}",
            self.what, self.attempt, self.fence, self.run, self.became
        )
    }
}

/// A fault that was injected.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// From when until when.
    pub span: Span,
    /// What was done.
    pub harm: Harm,
    /// To which pod; none: to the store.
    pub pod: Option<String>,
    /// For people.
    pub text: String,
}

/// Kinds of faults, as far as the rules tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harm {
    /// SIGKILL; the span ends when the pod serves again.
    Killed,
    /// SIGTERM; the span ends when the pod serves again.
    Terminated,
    /// SIGSTOP until SIGCONT.
    Frozen,
    /// The pod's connection to the store is disturbed.
    Cut,
    /// The store does not answer.
    StoreAway,
    /// A plugin was replaced.
    Swapped,
}

/// Everything that was seen.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Lines of all pods, by time; those of one pod in their order.
    pub events: Vec<Event>,
    /// Writes that targets were asked for, in the order of their effects.
    pub effects: Vec<Effect>,
    /// Faults by their begin.
    pub faults: Vec<Fault>,
}

impl History {
    /// All of it as text, a line for each thing that was seen, by time.
    #[must_use]
    pub fn text(&self) -> String {
        timeline::whole(self)
    }

    /// Puts everything in its order.
    #[must_use]
    pub fn sorted(mut self) -> History {
        self.events.sort_by_key(|event| event.at);
        self.faults.sort_by_key(|fault| fault.span.from);
        self
    }
}
