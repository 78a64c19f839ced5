//! Makes a list of steps that shows a difference short.

use super::{Difference, Step};

/// Tries that shrinking takes at most; each plays what is left from the beginning.
const TRIES: usize = 400;

/// The shortest part that was found to show a difference still, and that difference. Leaves out half
/// of the steps, then quarters, and at last one by one.
pub async fn shortest(
    steps: &[Step],
    first: Difference,
    plays: impl AsyncFn(&[Step]) -> Result<(), Difference>,
) -> (Vec<Step>, Difference) {
    let mut left = steps.get(..=first.at).unwrap_or(steps).to_vec();
    let (mut shown, mut tries) = (first, 0);
    let mut size = (left.len() / 2).max(1);
    loop {
        let (mut at, mut dropped) = (0, false);
        while at < left.len() && tries < TRIES {
            let mut fewer = left.clone();
            fewer.drain(at..(at + size).min(left.len()));
            tries += 1;
            match plays(&fewer).await {
                Err(difference) => {
                    fewer.truncate(difference.at + 1);
                    (left, shown, dropped) = (fewer, difference, true);
                }
                Ok(()) => at += size,
            }
        }
        if tries >= TRIES || (size == 1 && !dropped) {
            return (left, shown);
        }
        if !dropped {
            size = (size / 2).max(1);
        }
    }
}
