//! The schedule of faults and requests that a seed stands for: a plain list, so that a shorter one can
//! be tried.

use std::fmt;
use std::time::Duration;

use crate::jobs::choose;
use crate::net::{Cut, Weather};

/// Something that happens to the fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// When, since the world began.
    pub at: Duration,
    /// For how long.
    pub lasts: Duration,
    /// What.
    pub what: What,
}

/// What happens. Pods and jobs are named by number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// SIGKILL; the pod starts again afterwards, at the same address.
    Kill {
        /// The pod.
        pod: usize,
    },
    /// SIGTERM; the pod starts again afterwards.
    Terminate {
        /// The pod.
        pod: usize,
    },
    /// SIGSTOP and SIGCONT.
    Freeze {
        /// The pod.
        pod: usize,
    },
    /// A second process starts at a pod's address while the first one is frozen, which then thaws.
    Twin {
        /// The pod.
        pod: usize,
    },
    /// Bad weather on every link, or on one.
    Weather {
        /// The pod, or all.
        pod: Option<usize>,
        /// How bad.
        weather: Weather,
    },
    /// A pod cannot reach the store.
    Cut {
        /// The pod.
        pod: usize,
        /// How.
        cut: Cut,
    },
    /// The store is away and comes back with everything it acknowledged.
    StoreDown,
    /// The store fails over to a replica that lacks the writes of the last so many milliseconds, and
    /// whose clock differs.
    Failover {
        /// How far back, in milliseconds.
        lost_ms: u64,
        /// By how much its clock is ahead, in milliseconds.
        clock_ms: i64,
    },
    /// The next request that publishes is left half done, as by a store without rollback, and unanswered.
    HalfPublish {
        /// The queue has its entry, too; what comes after it is missing in any case.
        queued: bool,
    },
    /// A machine's wall clock is set.
    ClockStep {
        /// The pod.
        pod: usize,
        /// Forward by, in milliseconds.
        by_ms: i64,
    },
    /// Somebody asks for a run of a job, and asks again for the same one.
    Trigger {
        /// The job.
        job: usize,
    },
    /// Somebody cancels whatever run of a job is active.
    Cancel {
        /// The job.
        job: usize,
    },
    /// Somebody asks for the run of a nominal time: the next one, or one that is past.
    Backfill {
        /// The job.
        job: usize,
        /// How far before the next one, in milliseconds.
        before_ms: u64,
    },
    /// Somebody pauses a job and resumes it afterwards.
    Hold {
        /// The job.
        job: usize,
        /// At the very moment at which it should fire next.
        late: bool,
    },
    /// A job gets another schedule, pod by pod within the time given.
    Reschedule {
        /// The job.
        job: usize,
    },
    /// A new version of the plugin arrives, pod by pod within the time given.
    NewPlugin,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>9.3} s", self.at.as_secs_f64())?;
        if !self.lasts.is_zero() {
            write!(f, " for {:.3} s", self.lasts.as_secs_f64())?;
        }
        write!(f, "  {:?}", self.what)
    }
}

/// The mean time between faults.
const EVERY: Duration = Duration::from_secs(20);

/// Longer than any lease of a pod.
const PAST_LEASES: Duration = Duration::from_secs(11);

/// Makes the faults of a seed, in the order of their times. The last tenth of the time stays quiet.
#[must_use]
pub fn generate(
    dice: &mut fastrand::Rng,
    pods: usize,
    jobs: usize,
    length: Duration,
) -> Vec<Fault> {
    let until = ms(length) * 9 / 10;
    let mut plan = Vec::new();
    let mut at = 0;
    loop {
        at += dice.u64(1..=2 * ms(EVERY));
        if at >= until {
            return plan;
        }
        let (what, longest) = one(dice, pods, jobs);
        let shortest = match what {
            // A live pod's address is its own: a twin is one that was frozen past its leases.
            What::Twin { .. } => ms(PAST_LEASES),
            _ => 1,
        };
        let lasts = if longest == 0 {
            0
        } else {
            dice.u64(shortest..=longest).min(until - at).max(shortest)
        };
        plan.push(Fault {
            at: Duration::from_millis(at),
            lasts: Duration::from_millis(lasts),
            what,
        });
    }
}

/// One fault, and how long it may last, in milliseconds.
fn one(dice: &mut fastrand::Rng, pods: usize, jobs: usize) -> (What, u64) {
    let pod = dice.usize(0..pods);
    let job = dice.usize(0..jobs);
    match dice.u8(0..114) {
        0..18 => (What::Kill { pod }, 30_000),
        18..25 => (What::Terminate { pod }, 20_000),
        25..37 => (What::Freeze { pod }, 30_000),
        37..50 => {
            let pod = dice.bool().then_some(pod);
            let weather = weather(dice);
            (What::Weather { pod, weather }, 40_000)
        }
        50..58 => {
            let cut = *choose(dice, &[Cut::Silent, Cut::Answers, Cut::Reset]);
            (What::Cut { pod, cut }, 30_000)
        }
        58..62 => (What::StoreDown, 20_000),
        62..66 => {
            let what = What::Failover {
                lost_ms: dice.u64(1..=1_000),
                clock_ms: dice.i64(-50..=200),
            };
            (what, 5_000)
        }
        66..70 => {
            let by_ms = dice.i64(-20_000..=20_000);
            (What::ClockStep { pod, by_ms }, 0)
        }
        70..82 => (What::Trigger { job }, 0),
        82..87 => (What::Cancel { job }, 0),
        87..92 => {
            let late = dice.bool();
            (What::Hold { job, late }, 60_000)
        }
        92..97 => (What::Reschedule { job }, 10_000),
        97..100 => (What::NewPlugin, 5_000),
        100..104 => (What::Twin { pod }, 30_000),
        104..110 => {
            let before_ms = *choose(dice, &[0, 0, 60_000, 300_000]);
            (What::Backfill { job, before_ms }, 0)
        }
        _ => {
            let queued = dice.bool();
            (What::HalfPublish { queued }, 0)
        }
    }
}

fn weather(dice: &mut fastrand::Rng) -> Weather {
    Weather {
        lost: dice.u8(0..=15),
        unanswered: dice.u8(0..=15),
        late: dice.u8(0..=10),
        slow: Duration::from_millis(*choose(dice, &[0, 20, 200, 600])),
    }
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
