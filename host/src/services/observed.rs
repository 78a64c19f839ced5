//! A value that one loop sets and others follow.
//!
//! Like tokio's `watch`, but whoever waits is woken in the order in which it began to, where `watch`
//! wakes in a random one: a simulation could not repeat itself.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The end that sets the value.
#[derive(Debug)]
pub struct Source<T>(Arc<Shared<T>>);

/// An end that follows it. A clone goes on from where its original was.
#[derive(Debug)]
pub struct Observer<T> {
    shared: Arc<Shared<T>>,
    seen: u64,
}

#[derive(Debug)]
struct Shared<T> {
    value: Mutex<(u64, T)>,
    changed: Notify,
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, (u64, T)> {
        // Nothing panics while it is held.
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Source<T> {
    /// Of a first value.
    #[must_use]
    pub fn new(value: T) -> Source<T> {
        Source(Arc::new(Shared {
            value: Mutex::new((0, value)),
            changed: Notify::new(),
        }))
    }

    /// Changes the value; whoever follows hears of it if `change` says that it did.
    pub fn change_if(&self, change: impl FnOnce(&mut T) -> bool) {
        let mut value = self.0.lock();
        if !change(&mut value.1) {
            return;
        }
        value.0 += 1;
        drop(value);
        self.0.changed.notify_waiters();
    }

    /// Follows the value from now on.
    #[must_use]
    pub fn observe(&self) -> Observer<T> {
        Observer {
            seen: self.0.lock().0,
            shared: self.0.clone(),
        }
    }
}

impl<T> Clone for Observer<T> {
    fn clone(&self) -> Self {
        Observer {
            shared: self.shared.clone(),
            seen: self.seen,
        }
    }
}

impl<T: Clone> Observer<T> {
    /// The value now.
    #[must_use]
    pub fn get(&self) -> T {
        self.shared.lock().1.clone()
    }

    /// The value now; [`Self::changed`] waits for a later one.
    pub fn take(&mut self) -> T {
        let value = self.shared.lock();
        self.seen = value.0;
        value.1.clone()
    }
}

impl<T> Observer<T> {
    /// Waits until the value is another than the one seen last; for ever if it stays. May be dropped
    /// and called again without missing a change.
    pub async fn changed(&mut self) {
        loop {
            // Listens before it looks, so that no change falls between the two.
            let changed = self.shared.changed.notified();
            let version = self.shared.lock().0;
            if version != self.seen {
                self.seen = version;
                return;
            }
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn every_change_is_seen_once() {
        let source = Source::new(1);
        let mut observer = source.observe();
        assert!(observer.changed().now_or_never().is_none());
        source.change_if(|value| {
            *value = 2;
            true
        });
        source.change_if(|_| false);
        assert!(observer.changed().now_or_never().is_some());
        assert_eq!(observer.get(), 2);
        assert!(observer.changed().now_or_never().is_none());
        source.change_if(|_| true);
        assert_eq!(observer.take(), 2);
        assert!(observer.changed().now_or_never().is_none(), "it was taken");
    }

    #[tokio::test]
    async fn who_waits_is_woken() {
        let source = Source::new(());
        let mut observer = source.observe();
        let waits = tokio::spawn(async move { observer.changed().await });
        tokio::task::yield_now().await;
        source.change_if(|()| true);
        waits.await.expect("it was woken");
    }
}
