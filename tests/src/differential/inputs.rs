//! What steps are made of: names and times that are the same for every store.

use std::time::Duration;

use fastrand::Rng;
use wasmcron_core::ids::{JobName, PodAddress, PodRef, RunId, SessionId};
use wasmcron_core::job::{Definition, StoredDefinition};
use wasmcron_core::time::Timestamp;
use wasmcron_store::runs::Retention;

use crate::conformance::{LONG, keep};

/// Addresses; the `i`-th session is one of the `i % PODS`-th.
pub(super) const PODS: usize = 3;
/// Jobs.
pub(super) const JOBS: usize = 4;
/// 2026-01-01T00:00:00Z, where every job is opened.
const BASE_MS: i64 = 1_767_225_600_000;
/// Further ahead than any clock that a test meets, in seconds.
const YEARS: u64 = 20 * 366 * 86_400;
/// Shorter than the pass of time behind it, by far.
pub(super) const BRIEF: Duration = Duration::from_millis(3);
/// What makes everything brief pass.
pub(super) const PASSES: Duration = Duration::from_millis(25);

/// Which of the things that a store gave: 0 is the latest.
pub(super) type Pick = usize;

/// Makes steps.
pub struct Maker {
    /// What decides.
    pub rng: Rng,
    fired: [u64; JOBS],
    sessions: [usize; PODS],
    forgets: bool,
    made: u128,
}

impl Maker {
    /// From the seed of `rng`.
    #[must_use]
    pub fn new(mut rng: Rng) -> Maker {
        Maker {
            forgets: rng.bool(),
            rng,
            fired: [0; JOBS],
            sessions: [0; PODS],
            made: 0,
        }
    }

    /// Mostly the latest session of an address; now and then one that it superseded.
    pub(super) fn pod(&mut self) -> usize {
        let address = self.rng.usize(0..PODS).min(self.rng.usize(0..PODS));
        let session = match self.rng.u32(0..12) {
            0 => self.rng.usize(0..=self.sessions[address]),
            _ => self.sessions[address],
        };
        address + session * PODS
    }

    /// A session that supersedes the others of its address.
    pub(super) fn restarted(&mut self) -> usize {
        let address = self.rng.usize(0..PODS);
        self.sessions[address] += 1;
        address + self.sessions[address] * PODS
    }

    /// The job's nominal times come anew, as when its file comes back.
    pub(super) fn starts_again(&mut self, job: usize) {
        self.fired[job] = 0;
    }

    pub(super) fn job(&mut self) -> usize {
        // A few jobs meet themselves more often than many.
        self.rng.usize(0..JOBS).min(self.rng.usize(0..JOBS))
    }

    /// Mostly the latest; sometimes one long gone.
    pub(super) fn pick(&mut self) -> Pick {
        match self.rng.u32(0..20) {
            0..12 => 0,
            12..18 => self.rng.usize(0..4),
            _ => self.rng.usize(0..40),
        }
    }

    pub(super) fn one_in(&mut self, n: u32) -> bool {
        self.rng.u32(0..n) == 0
    }

    /// The next nominal time of a job, in seconds; sometimes one that had its turn, or one too far on.
    pub(super) fn second(&mut self, job: usize) -> u64 {
        match self.rng.u32(0..36) {
            0..3 => self.rng.u64(1..=self.fired[job].max(1)),
            3..6 => self.fired[job] + 2,
            6 => self.fired[job] + YEARS,
            _ => {
                self.fired[job] += 1;
                self.fired[job]
            }
        }
    }

    /// Whether little is kept of ended runs, and whether not for long. Never both in one list of steps:
    /// a store may count a run that is past among those that a job keeps until it has swept it.
    pub(super) fn kept(&mut self) -> (bool, bool) {
        let chosen = self.one_in(4);
        (chosen && !self.forgets, chosen && self.forgets)
    }

    /// Whether records are past while their runs may come up again. No store knows then that a run was
    /// over, so what damage brings back is not compared.
    pub(super) fn forgets(&self) -> bool {
        self.forgets
    }

    /// A number that no other step has.
    pub(super) fn number(&mut self) -> u128 {
        self.made += 1;
        self.made
    }
}

/// The `i`-th session.
pub(super) fn pod(i: usize) -> PodRef {
    let address = ["a", "b", "c"][i % PODS];
    PodRef {
        address: PodAddress::new(address).expect("an address"),
        session: SessionId::new(&format!("01JDX{i:021}")).expect("a ULID"),
    }
}

/// When the `i`-th session says that it started.
pub(super) fn started(i: usize) -> Timestamp {
    at(i as u64)
}

pub(super) fn job(i: usize) -> JobName {
    JobName::new(&format!("j{i}")).expect("a name")
}

/// A nominal time.
pub(super) fn at(second: u64) -> Timestamp {
    Timestamp::from_millis(BASE_MS) + Duration::from_secs(second)
}

pub(super) fn run(of: usize, second: u64) -> RunId {
    RunId::nominal(&job(of), at(second))
}

/// The `variant`-th definition of a job.
pub(super) fn stored(variant: u32, since: u64) -> StoredDefinition {
    let definition = Definition {
        timeout: LONG * (variant + 1),
        ..crate::conformance::definition()
    };
    StoredDefinition {
        hash: definition.hash(),
        definition,
        since: at(since),
    }
}

/// What is kept of ended runs: nearly everything, little, or nothing for long.
pub(super) fn kept(few: bool, brief: bool) -> Retention {
    Retention {
        age: if brief { BRIEF } else { keep().age },
        runs: if few { 3 } else { keep().runs },
    }
}
