//! Waiting for a signal instead of for time.

use std::time::Duration;

/// How long a signal is waited for before the test fails. Generous: machines are slow at times, and a
/// passing test never waits for it.
pub const PATIENCE: Duration = Duration::from_secs(45);

/// How often a condition is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(15);

/// Waits until `look` answers; fails naming `what` once `patience` is over.
pub async fn until<T>(
    what: &str,
    patience: Duration,
    mut look: impl AsyncFnMut() -> Option<T>,
) -> T {
    let deadline = tokio::time::Instant::now() + patience;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(
            tokio::time::Instant::now() < deadline,
            "waited {patience:?} in vain for {what}"
        );
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
