//! Wake-ups between pods. They carry no fact: whoever misses one finds out by looking.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use wasmcron_core::ids::{PodAddress, RunId};

use crate::error::Result;

/// Wake-ups kept for a slow listener; further ones are dropped, as all wake-ups may be.
pub const WAKES_MAX: usize = 256;

/// Why somebody should look now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "wake", rename_all = "kebab-case")]
pub enum Wake {
    /// Nobody leads: campaign.
    LeaderFree,
    /// A run is due: leader, promote.
    Due,
    /// A run's end is asked for: its pod, extend now.
    Cancel {
        /// The run.
        run: RunId,
    },
    /// A pod left: leader, publish its tasks again.
    Left {
        /// The pod.
        pod: PodAddress,
    },
    /// A pod reported other jobs or plugins: leader, read the pods.
    Reported,
    /// A job's schedule, pause or quarantine changed: leader, look again.
    Jobs,
    /// The subscription began (again): wake-ups may have been missed, look at everything.
    Subscribed,
}

/// The channel of wake-ups.
#[async_trait]
pub trait Control: Send + Sync {
    /// Listens on a connection of its own, reconnecting by itself; each (re)connection yields
    /// [`Wake::Subscribed`]. Ends when the receiver is dropped.
    fn listen(&self) -> mpsc::Receiver<Wake>;

    /// Wakes everybody.
    async fn wake(&self, wake: &Wake) -> Result<()>;
}
