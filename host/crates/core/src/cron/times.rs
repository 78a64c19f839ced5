//! The times of day at which a schedule fires, as bit sets.

/// Seconds, minutes and hours; bit n stands for the value n. None of the sets is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Times {
    pub(super) seconds: u64,
    pub(super) minutes: u64,
    pub(super) hours: u64,
}

impl Times {
    /// The earliest time of the day, in seconds since its midnight.
    pub(super) fn first(self) -> i64 {
        seconds_of(
            lowest(self.hours),
            lowest(self.minutes),
            lowest(self.seconds),
        )
    }

    /// The earliest time of the day that is not before `from`; both in seconds since midnight,
    /// with `from` in `0..86_400`.
    pub(super) fn at_or_after(self, from: i64) -> Option<i64> {
        let from = u32::try_from(from).ok()?;
        let (hour, minute, second) = (from / 3_600, from / 60 % 60, from % 60);
        if has(self.hours, hour) {
            if has(self.minutes, minute)
                && let Some(second) = next_bit(self.seconds, second)
            {
                return Some(seconds_of(hour, minute, second));
            }
            if let Some(minute) = next_bit(self.minutes, minute + 1) {
                return Some(seconds_of(hour, minute, lowest(self.seconds)));
            }
        }
        let hour = next_bit(self.hours, hour + 1)?;
        Some(seconds_of(hour, lowest(self.minutes), lowest(self.seconds)))
    }
}

fn seconds_of(hour: u32, minute: u32, second: u32) -> i64 {
    i64::from(hour * 3_600 + minute * 60 + second)
}

fn lowest(set: u64) -> u32 {
    set.trailing_zeros()
}

fn has(set: u64, bit: u32) -> bool {
    next_bit(set, bit) == Some(bit)
}

/// The lowest member of `set` that is not below `from`.
pub(super) fn next_bit(set: u64, from: u32) -> Option<u32> {
    let rest = set.checked_shr(from)?;
    (rest != 0).then(|| from + rest.trailing_zeros())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_next_time_by_trying_every_second() {
        let times = Times {
            seconds: 1 << 7 | 1 << 59,
            minutes: 1 << 3 | 1 << 4 | 1 << 58,
            hours: 1 | 1 << 13 | 1 << 22,
        };
        let matches = |at: i64| {
            let bit = |set: u64, value: i64| set >> value & 1 == 1;
            bit(times.hours, at / 3_600)
                && bit(times.minutes, at / 60 % 60)
                && bit(times.seconds, at % 60)
        };
        let mut expected = None;
        for at in (0..86_400).rev() {
            if matches(at) {
                expected = Some(at);
            }
            assert_eq!(times.at_or_after(at), expected, "from second {at}");
        }
        assert_eq!(Some(times.first()), expected);
    }

    #[test]
    fn a_bit_beyond_the_word_is_absent() {
        assert_eq!(next_bit(u64::MAX, 63), Some(63));
        assert_eq!(next_bit(u64::MAX, 64), None);
    }
}
