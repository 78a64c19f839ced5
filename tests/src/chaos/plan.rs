//! Which faults come when: all of it follows from the seed.

use std::fmt;
use std::time::Duration;

use clap::ValueEnum;

use crate::fleet::{StoreKind, Timing};

/// Kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// SIGKILL of a pod, which is started again.
    Kill,
    /// SIGTERM of a pod, which is started again.
    Terminate,
    /// SIGSTOP of a pod, and SIGCONT shorter or longer after than its leases last.
    Freeze,
    /// The connection of a pod to the store holds, swallows, delays, refuses or breaks.
    Cut,
    /// The store is killed and started again with its data.
    StoreRestart,
    /// The store answers nobody for a while.
    StorePause,
    /// The store refuses writes, or has forgotten its scripts.
    StoreRefuse,
    /// A plugin is replaced.
    Swap,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 8] = [
        Kind::Kill,
        Kind::Terminate,
        Kind::Freeze,
        Kind::Cut,
        Kind::StoreRestart,
        Kind::StorePause,
        Kind::StoreRefuse,
        Kind::Swap,
    ];

    /// Those that a store can be met by: a file has no server and nothing before it.
    #[must_use]
    pub fn of(store: StoreKind) -> Vec<Kind> {
        let anywhere = |kind: &Kind| match kind {
            Kind::Kill | Kind::Terminate | Kind::Freeze | Kind::Swap => true,
            Kind::Cut | Kind::StoreRestart | Kind::StorePause | Kind::StoreRefuse => {
                store == StoreKind::Redis
            }
        };
        Kind::ALL.into_iter().filter(anywhere).collect()
    }

    /// How often it comes, beside the others.
    fn weight(self) -> u32 {
        match self {
            Kind::Kill | Kind::Cut => 6,
            Kind::Freeze => 4,
            Kind::Terminate => 3,
            Kind::StoreRestart | Kind::StorePause | Kind::StoreRefuse | Kind::Swap => 1,
        }
    }
}

/// Whom a fault meets. The number tells several that fit apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// The pod that leads.
    Leader,
    /// A pod that executes a run.
    Executor(u32),
    /// Any.
    Any(u32),
}

/// What a connection does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Requests wait, and are executed late.
    HoldRequests,
    /// Requests are executed, answers wait.
    HoldAnswers,
    /// Both wait, as behind a link that is down and heals.
    HoldBoth,
    /// Requests are executed, answers are gone.
    SwallowAnswers,
    /// Everything is gone.
    SwallowBoth,
    /// Everything comes this much later.
    Slow(Duration),
    /// Connections are reset once.
    Reset,
    /// Connections are reset and new ones refused.
    Refuse,
}

/// One fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// SIGKILL, and a start after this long.
    Kill(Who, Duration),
    /// SIGTERM, and a start this long after its end.
    Terminate(Who, Duration),
    /// SIGSTOP for so long.
    Freeze(Who, Duration),
    /// A disturbed connection for so long.
    Cut(Who, Cut, Duration),
    /// The store is away for so long.
    StoreRestart(Duration),
    /// `CLIENT PAUSE` for so long.
    StorePause(Duration),
    /// SIGSTOP of the store for so long.
    StoreFreeze(Duration),
    /// It has no memory left for so long.
    StoreFull(Duration),
    /// It is a replica, which takes no writes, for so long.
    StoreReadOnly(Duration),
    /// `SCRIPT FLUSH`.
    StoreForgets,
    /// The n-th replacement of a plugin.
    Swap(u32),
}

/// A fault and how long after the one before it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Since the begin of the one before.
    pub after: Duration,
    /// What.
    pub fault: Fault,
}

/// The faults of so much time; about one every `pace`.
#[must_use]
pub fn plan(
    seed: u64,
    time: Duration,
    pace: Duration,
    timing: Timing,
    kinds: &[Kind],
) -> Vec<Planned> {
    let mut dice = Dice {
        random: fastrand::Rng::with_seed(seed),
        ttl: timing.lock_ttl(),
        swaps: 0,
    };
    let mut planned = Vec::new();
    let mut begun = Duration::ZERO;
    loop {
        let after = dice.between(pace.mul_f64(0.3), pace.mul_f64(1.7));
        begun += after;
        if begun >= time || kinds.is_empty() {
            return planned;
        }
        let fault = dice.fault(kinds);
        planned.push(Planned { after, fault });
    }
}

struct Dice {
    random: fastrand::Rng,
    ttl: Duration,
    swaps: u32,
}

impl Dice {
    fn between(&mut self, least: Duration, most: Duration) -> Duration {
        let milliseconds = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(0);
        let range = milliseconds(least)..=milliseconds(most).max(milliseconds(least));
        Duration::from_millis(self.random.u64(range))
    }

    /// From a fraction of the lock's time to a multiple of it: some of it ends before anybody notices.
    fn around_ttl(&mut self) -> Duration {
        let (least, most) = (self.ttl.mul_f64(0.15), self.ttl.mul_f64(2.2));
        self.between(least, most)
    }

    fn who(&mut self) -> Who {
        match self.random.u32(..4) {
            0 => Who::Leader,
            1 | 2 => Who::Executor(self.random.u32(..)),
            _ => Who::Any(self.random.u32(..)),
        }
    }

    fn cut(&mut self) -> Cut {
        match self.random.u32(..9) {
            0 => Cut::HoldRequests,
            1 => Cut::HoldAnswers,
            2 => Cut::HoldBoth,
            3 | 4 => Cut::SwallowAnswers,
            5 => Cut::SwallowBoth,
            6 => Cut::Slow(self.between(Duration::from_millis(20), Duration::from_millis(250))),
            7 => Cut::Reset,
            _ => Cut::Refuse,
        }
    }

    fn fault(&mut self, kinds: &[Kind]) -> Fault {
        let sum: u32 = kinds.iter().map(|kind| kind.weight()).sum();
        let mut at = self.random.u32(..sum);
        let mut chosen = kinds[0];
        for kind in kinds {
            chosen = *kind;
            match at.checked_sub(kind.weight()) {
                Some(rest) => at = rest,
                None => break,
            }
        }
        match chosen {
            Kind::Kill => Fault::Kill(self.who(), self.around_ttl()),
            Kind::Terminate => Fault::Terminate(self.who(), self.around_ttl()),
            Kind::Freeze => Fault::Freeze(self.who(), self.around_ttl()),
            Kind::Cut => Fault::Cut(self.who(), self.cut(), self.around_ttl()),
            Kind::StoreRestart => Fault::StoreRestart(self.around_ttl()),
            Kind::StorePause if self.random.bool() => Fault::StorePause(self.around_ttl() / 2),
            Kind::StorePause => Fault::StoreFreeze(self.around_ttl()),
            Kind::StoreRefuse => match self.random.u32(..3) {
                0 => Fault::StoreFull(self.around_ttl() / 2),
                1 => Fault::StoreReadOnly(self.around_ttl() / 2),
                _ => Fault::StoreForgets,
            },
            Kind::Swap => {
                self.swaps += 1;
                Fault::Swap(self.swaps)
            }
        }
    }
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Who::Leader => "the leader",
            Who::Executor(_) => "an executor",
            Who::Any(_) => "any pod",
        })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |time: &Duration| format!("{:.1} s", time.as_secs_f64());
        match self {
            Fault::Kill(who, down) => write!(f, "SIGKILL to {who}, back in {}", seconds(down)),
            Fault::Terminate(who, down) => {
                write!(f, "SIGTERM to {who}, back {} after its end", seconds(down))
            }
            Fault::Freeze(who, time) => write!(f, "SIGSTOP to {who} for {}", seconds(time)),
            Fault::Cut(_, Cut::Reset, _) => write!(f, "connections reset"),
            Fault::Cut(who, cut, time) => {
                write!(
                    f,
                    "{cut:?} between {who} and the store for {}",
                    seconds(time)
                )
            }
            Fault::StoreRestart(down) => {
                write!(f, "SIGKILL to the store, back in {}", seconds(down))
            }
            Fault::StorePause(time) => write!(f, "CLIENT PAUSE of the store for {}", seconds(time)),
            Fault::StoreFreeze(time) => write!(f, "SIGSTOP to the store for {}", seconds(time)),
            Fault::StoreFull(time) => write!(f, "the store is full for {}", seconds(time)),
            Fault::StoreReadOnly(time) => {
                write!(f, "the store is a replica for {}", seconds(time))
            }
            Fault::StoreForgets => write!(f, "the store forgets its scripts"),
            Fault::Swap(number) => write!(f, "plugins replaced, version {number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTES: Duration = Duration::from_secs(600);

    fn planned(seed: u64, kinds: &[Kind]) -> Vec<Planned> {
        plan(seed, MINUTES, Duration::from_secs(2), Timing::Fast, kinds)
    }

    #[test]
    fn the_seed_decides_the_faults() {
        assert_eq!(planned(7, &Kind::ALL), planned(7, &Kind::ALL));
        assert_ne!(planned(7, &Kind::ALL), planned(8, &Kind::ALL));
    }

    #[test]
    fn ten_minutes_have_every_kind() {
        let faults = planned(1, &Kind::ALL);
        let of = |is: fn(&Fault) -> bool| faults.iter().filter(|one| is(&one.fault)).count();
        for count in [
            of(|fault| matches!(fault, Fault::Kill(Who::Leader, _))),
            of(|fault| matches!(fault, Fault::Kill(Who::Executor(_), _))),
            of(|fault| matches!(fault, Fault::Terminate(..))),
            of(|fault| matches!(fault, Fault::Freeze(..))),
            of(|fault| matches!(fault, Fault::Cut(_, Cut::SwallowAnswers, _))),
            of(|fault| matches!(fault, Fault::Cut(_, Cut::HoldRequests, _))),
            of(|fault| matches!(fault, Fault::StoreRestart(_))),
            of(|fault| matches!(fault, Fault::StorePause(_) | Fault::StoreFreeze(_))),
            of(|fault| matches!(fault, Fault::StoreFull(_) | Fault::StoreReadOnly(_))),
            of(|fault| matches!(fault, Fault::Swap(_))),
        ] {
            assert!(count > 1, "{faults:?}");
        }
        let time: Duration = faults.iter().map(|one| one.after).sum();
        assert!(time < MINUTES && time > MINUTES / 2);
    }

    #[test]
    fn only_the_kinds_asked_for_come() {
        let kills = planned(1, &[Kind::Kill]);
        assert!(!kills.is_empty());
        assert!(kills.iter().all(|one| matches!(one.fault, Fault::Kill(..))));
        assert!(planned(1, &[]).is_empty());
    }
}
