//! How long it took until somebody else went on.

use std::fmt;
use std::time::Duration;

use wasmcron_core::time::Timestamp;

use super::rules::recovery::open_attempts;
use super::{Fault, Harm, History, Kind, Span};

/// One wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// What it began with.
    pub after: Harm,
    /// Its length.
    pub length: Duration,
    /// No other fault met it.
    pub alone: bool,
}

/// All waits of a history.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// From a pod's fault until another attempt of a run that it executed began.
    pub resumes: Vec<Wait>,
    /// From the leader's fault until the next term was won.
    pub takeovers: Vec<Wait>,
}

/// Percentiles of some waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Percentiles {
    /// How many waits.
    pub count: usize,
    /// Half took at most this.
    pub p50: Duration,
    /// 99 of 100 took at most this.
    pub p99: Duration,
    /// The longest.
    pub max: Duration,
}

impl Percentiles {
    /// Of some waits; none of none.
    #[must_use]
    pub fn of(waits: impl IntoIterator<Item = Duration>) -> Option<Percentiles> {
        let mut waits: Vec<Duration> = waits.into_iter().collect();
        waits.sort();
        let at = |hundredths: usize| {
            let rank = (waits.len() * hundredths).div_ceil(100).max(1);
            waits.get(rank - 1).copied()
        };
        Some(Percentiles {
            count: waits.len(),
            p50: at(50)?,
            p99: at(99)?,
            max: at(100)?,
        })
    }
}

impl fmt::Display for Percentiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "p50 {:5.2} s  p99 {:5.2} s  max {:5.2} s  ({} times)",
            self.p50.as_secs_f64(),
            self.p99.as_secs_f64(),
            self.max.as_secs_f64(),
            self.count
        )
    }
}

/// Measures the waits of a history.
#[must_use]
pub fn figures(history: &History) -> Figures {
    let mut figures = Figures::default();
    for fault in &history.faults {
        let Some(pod) = fault.pod.as_deref() else {
            continue;
        };
        let from = fault.span.from;
        // Whoever is only hindered may go on before anybody takes over, and lose its place later.
        let counts = |at: Timestamp| match fault.harm {
            Harm::Killed | Harm::Terminated => true,
            Harm::Frozen | Harm::Cut => fault.span.contains(at),
            Harm::StoreAway | Harm::Swapped => false,
        };
        for attempt in open_attempts(history, pod, from) {
            let resumed = history.events.iter().find(|event| match &event.kind {
                Kind::Started { attempt: next, .. } => {
                    next.run == attempt.run && next.fence > attempt.fence
                }
                _ => false,
            });
            if let Some(resumed) = resumed.filter(|event| counts(event.at)) {
                figures.resumes.push(wait(history, fault, resumed.at));
            }
        }
        let Some(term) = term_of(history, pod, from) else {
            continue;
        };
        let next = history
            .events
            .iter()
            .find(|event| matches!(event.kind, Kind::Won { term: next } if next > term));
        if let Some(next) = next.filter(|event| counts(event.at)) {
            figures.takeovers.push(wait(history, fault, next.at));
        }
    }
    figures
}

fn wait(history: &History, fault: &Fault, until: Timestamp) -> Wait {
    let span = Span {
        from: fault.span.from,
        until,
    };
    let met = |other: &&Fault| *other != fault && other.harm != Harm::Swapped;
    Wait {
        after: fault.harm,
        length: span.length(),
        alone: !history
            .faults
            .iter()
            .filter(met)
            .any(|other| other.span.meets(span)),
    }
}

/// The term that a pod held at a moment, as far as the logs say.
fn term_of(history: &History, pod: &str, at: Timestamp) -> Option<u64> {
    let before = history.events.iter().take_while(|event| event.at <= at);
    let mut held = None;
    for event in before {
        match event.kind {
            Kind::Won { term } => held = Some((event.pod.as_str(), term)),
            Kind::Deposed { term } if held.is_some_and(|(_, held)| held == term) => held = None,
            _ => {}
        }
    }
    held.filter(|(leader, _)| *leader == pod)
        .map(|(_, term)| term)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_waits_that_happened() {
        let ms = Duration::from_millis;
        assert_eq!(Percentiles::of([]), None);
        let of = |count: u64| Percentiles::of((1..=count).map(ms)).expect("some");
        assert_eq!((of(1).p50, of(1).max), (ms(1), ms(1)));
        assert_eq!(
            (of(100).p50, of(100).p99, of(100).max),
            (ms(50), ms(99), ms(100))
        );
        assert_eq!(of(10).p99, ms(10));
    }
}
