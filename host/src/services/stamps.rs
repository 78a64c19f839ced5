//! Tells whether anything became of a folder's job files without reading them: the watch ticks now and
//! then for nothing, and a hundred thousand files take seconds to read.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use wasmcron_core::time::Timestamp;

use crate::config::job_file;

/// A file that changed this shortly before it was looked at may change again without a trace, since
/// file systems count time in steps.
const STEP: Duration = Duration::from_secs(2);

/// What is seen of a file from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamp {
    path: PathBuf,
    place: (u64, u64),
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// What is seen of all job files of a folder from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamps {
    files: Vec<Stamp>,
    settled: bool,
}

impl Stamps {
    /// Of this folder at this time; none where it cannot be told, and the files must be read.
    #[must_use]
    pub fn of(directory: &Path, now: Timestamp) -> Option<Stamps> {
        let mut files = Vec::new();
        for path in job_file::paths_in(directory).ok()? {
            // A link counts by what it leads to.
            let found = std::fs::metadata(&path).ok()?;
            files.push(Stamp {
                path,
                place: (found.dev(), found.ino()),
                size: found.size(),
                modified: (found.mtime(), found.mtime_nsec()),
                changed: (found.ctime(), found.ctime_nsec()),
            });
        }
        let before = (now - STEP).as_millis() / 1_000;
        let settled = files.iter().all(|file| file.changed.0 < before);
        Some(Stamps { files, settled })
    }

    /// Whether files that looked like `earlier` when they were read need not be read again.
    #[must_use]
    pub fn nothing_since(&self, earlier: &Stamps) -> bool {
        earlier.settled && self.files == earlier.files
    }
}

#[cfg(test)]
mod tests {
    use super::super::machine::{Machine as _, RealMachine};
    use super::*;

    #[test]
    fn only_what_changed_long_ago_is_not_read_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.toml");
        std::fs::write(&path, "one").expect("write");
        let now = RealMachine.wall();
        let later = now + Duration::from_secs(10);
        let stamps = |now| Stamps::of(folder.path(), now).expect("stamps");
        assert!(!stamps(now).nothing_since(&stamps(now)), "just written");
        let read = stamps(later);
        assert!(stamps(later).nothing_since(&read));
        std::fs::write(&path, "two!").expect("write");
        assert!(!stamps(later).nothing_since(&read));
        let read = stamps(later);
        std::fs::write(folder.path().join("b.toml"), "").expect("write");
        assert!(!stamps(later).nothing_since(&read));
        std::fs::remove_file(folder.path().join("b.toml")).expect("remove");
        assert!(stamps(later).nothing_since(&read));
        assert!(Stamps::of(&folder.path().join("none"), now).is_none());
    }
}
