//! A pod's place in a fleet: it is killed, started again and cut off under one address.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use tokio::sync::{Mutex, MutexGuard};

use super::pod::PodProcess;
use crate::proxy::Proxy;

/// How long a pod may take until it serves, while the store may be away.
const START: Duration = Duration::from_secs(90);
/// A pod that ended at its start is started again after this long.
const REST: Duration = Duration::from_millis(300);

/// The place.
pub struct Slot {
    /// The pod's address.
    pub address: String,
    /// Between it and the store, if anything is.
    pub proxy: Option<Proxy>,
    config: PathBuf,
    process: Mutex<Option<PodProcess>>,
}

/// The process of a slot, which nobody else harms meanwhile.
pub type Held<'a> = MutexGuard<'a, Option<PodProcess>>;

impl Slot {
    pub(super) fn new(address: String, proxy: Option<Proxy>, config: PathBuf) -> Slot {
        Slot {
            address,
            proxy,
            config,
            process: Mutex::new(None),
        }
    }

    /// The process, unless somebody harms it already.
    #[must_use]
    pub fn try_hold(&self) -> Option<Held<'_>> {
        self.process.try_lock().ok()
    }

    /// The process, once nobody else harms it.
    pub async fn hold(&self) -> Held<'_> {
        self.process.lock().await
    }

    /// Starts the pod and waits until it serves. One that ends before it serves, as pods do that lose
    /// the store meanwhile, is started again, as whoever supervises pods would. Answers how often.
    ///
    /// # Errors
    /// When it cannot be started, or does not serve in time.
    pub async fn start(&self, held: &mut Held<'_>) -> Result<u32> {
        let mut failures = 0;
        let end = tokio::time::Instant::now() + START;
        loop {
            let process = held.insert(PodProcess::spawn(&self.address, &self.config)?);
            if process.serves(START).await? {
                return Ok(failures);
            }
            if tokio::time::Instant::now() >= end {
                let words = process.last_words(10);
                anyhow::bail!("pod {} does not serve:\n{words}", self.address);
            }
            failures += 1;
            tokio::time::sleep(REST).await;
        }
    }
}
