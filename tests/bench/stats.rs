//! What a list of measured times says.

use std::time::Duration;

/// The value that a share of all lie at or below; zero for an empty list.
pub fn percentile(values: &[Duration], share: f64) -> Duration {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a place in a list"
    )]
    let place = (share * sorted.len().saturating_sub(1) as f64).round() as usize;
    sorted.get(place).copied().unwrap_or_default()
}

/// The middle of several rounds; zero for none.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// So many in this time, a second.
pub fn rate(count: usize, time: Duration) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "counts here are far below 2^52")]
    let count = count as f64;
    count / time.as_secs_f64().max(1e-9)
}

/// Milliseconds, as figures show them.
pub fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
