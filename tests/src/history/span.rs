//! Stretches of time, and how much of one is covered by others.

use std::time::Duration;

use wasmcron_core::time::Timestamp;

/// From one moment to a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its begin.
    pub from: Timestamp,
    /// Its end.
    pub until: Timestamp,
}

impl Span {
    /// Its length.
    #[must_use]
    pub fn length(self) -> Duration {
        self.until.since(self.from)
    }

    /// Whether a moment lies in it.
    #[must_use]
    pub fn contains(self, at: Timestamp) -> bool {
        self.from <= at && at <= self.until
    }

    /// Whether it shares a moment with another.
    #[must_use]
    pub fn meets(self, other: Span) -> bool {
        self.from <= other.until && other.from <= self.until
    }

    /// The same with some time more at its end.
    #[must_use]
    pub fn and(self, more: Duration) -> Span {
        Span {
            until: self.until + more,
            ..self
        }
    }

    /// How much of it none of the others covers.
    #[must_use]
    pub fn without(self, others: impl IntoIterator<Item = Span>) -> Duration {
        let mut others: Vec<Span> = others
            .into_iter()
            .filter(|other| other.meets(self))
            .collect();
        others.sort_by_key(|other| other.from);
        let (mut left, mut at) = (Duration::ZERO, self.from);
        for other in others {
            left += other.from.min(self.until).since(at);
            at = at.max(other.until);
        }
        left + self.until.since(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(from: i64, until: i64) -> Span {
        Span {
            from: Timestamp::from_millis(from),
            until: Timestamp::from_millis(until),
        }
    }

    #[test]
    fn what_others_do_not_cover_is_left() {
        let left = |others: &[Span]| span(100, 200).without(others.iter().copied()).as_millis();
        assert_eq!(left(&[]), 100);
        assert_eq!(left(&[span(0, 99), span(201, 300)]), 100);
        assert_eq!(left(&[span(50, 120), span(110, 130), span(180, 250)]), 50);
        assert_eq!(left(&[span(120, 140), span(125, 130)]), 80);
        assert_eq!(left(&[span(0, 300)]), 0);
    }
}
