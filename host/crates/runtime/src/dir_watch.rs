//! A folder's changes as ticks.

use std::path::{Path, PathBuf};
use std::time::Duration;

/// How a folder is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirWatchConfig {
    /// Look at the folder this often even without events (NFS, mounts without inotify).
    pub poll: Duration,
    /// Wait this long after an event on a file that its writer has not closed.
    pub quiet: Duration,
    /// But never longer than this after the first such event.
    pub quiet_max: Duration,
}

impl Default for DirWatchConfig {
    fn default() -> Self {
        Self {
            poll: Duration::from_secs(30),
            quiet: Duration::from_millis(300),
            quiet_max: Duration::from_secs(5),
        }
    }
}

/// Watches one folder until it is dropped. Ticks are hints: look at the folder and compare bytes.
#[derive(Debug)]
pub struct DirWatch {}

impl DirWatch {
    /// Starts to watch. The first tick is there at once.
    ///
    /// # Errors
    ///
    /// The folder does not exist. (A folder that cannot be watched is polled.)
    pub fn start(_dir: &Path, _config: DirWatchConfig) -> std::io::Result<Self> {
        todo!()
    }

    /// Waits for the next time at which the folder is worth a look. Cancel safe.
    pub async fn tick(&mut self) {
        todo!()
    }

    /// The folder.
    #[must_use]
    pub fn dir(&self) -> &PathBuf {
        todo!()
    }
}
