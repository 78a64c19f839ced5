//! Which files a store consists of while it is open, and how to see that somebody took one away.
//!
//! SQLite goes on with the files that it has open, whatever stands at their paths. Who opens the store
//! later finds others: two fleets that know nothing of each other, or one that lost its last writes.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use super::errors::{self, Checked, Trouble};

/// What SQLite keeps beside the file while it is in use.
const SIDES: [&str; 2] = ["-wal", "-shm"];

/// The files of an open store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    path: PathBuf,
    main: Number,
    sides: [Number; 2],
}

/// What a file is called by its file system, whatever paths lead to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Number {
    device: u64,
    inode: u64,
}

impl Number {
    fn of(found: &Metadata) -> Number {
        Number {
            device: found.dev(),
            inode: found.ino(),
        }
    }
}

/// What became of an open store's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Lost {
    /// The path leads to another file, or nowhere.
    Main,
    /// The file has nothing in it any more.
    Contents,
    /// One of the files beside it, and whether another one stands in its place.
    Side(PathBuf, bool),
}

impl Identity {
    /// Of a file that SQLite has open, so that its sides are there.
    pub(super) fn of(path: &Path, name: &str) -> Checked<Identity> {
        let number = |path: &Path| {
            let found = fs::metadata(path);
            found.map(|found| Number::of(&found)).map_err(|error| {
                Trouble::refused(format!(
                    "{name}: {} was taken away while the store was opened ({error}); accepted: files that \
                     stay where they are while pods run",
                    path.display()
                ))
            })
        };
        Ok(Identity {
            main: number(path)?,
            sides: [
                number(&beside(path, SIDES[0]))?,
                number(&beside(path, SIDES[1]))?,
            ],
            path: path.to_owned(),
        })
    }

    /// Its write-ahead log.
    pub(super) fn log(&self) -> PathBuf {
        beside(&self.path, SIDES[0])
    }

    /// What was taken away since it was opened.
    pub(super) fn lost(&self) -> Option<Lost> {
        match fs::metadata(&self.path) {
            Ok(found) if Number::of(&found) != self.main => return Some(Lost::Main),
            Ok(found) if found.len() == 0 => return Some(Lost::Contents),
            Ok(_) => {}
            Err(error) => return (error.kind() == io::ErrorKind::NotFound).then_some(Lost::Main),
        }
        SIDES.iter().zip(self.sides).find_map(|(ending, opened)| {
            let path = beside(&self.path, ending);
            match fs::metadata(&path) {
                Ok(found) if Number::of(&found) == opened => None,
                Ok(_) => Some(Lost::Side(path, true)),
                Err(_) => Some(Lost::Side(path, false)),
            }
        })
    }
}

/// Why nothing is written any more, for people.
pub(super) fn refused(name: &str, lost: &Lost, moved: bool) -> Trouble {
    const ONE: &str = "accepted: the files that were opened, where they were";
    Trouble::refused(match lost {
        Lost::Main => format!(
            "{name} was removed or replaced while it was in use; {ONE}. Start all pods of this store again"
        ),
        Lost::Contents => errors::damaged(name, "an empty file where a store was in use"),
        Lost::Side(side, _) => {
            let then = if moved {
                "What it held was moved into the file. Start all pods of this store again"
            } else {
                "End all pods of this store with SIGTERM, so that each can move what it holds into the \
                 file, and then start them again"
            };
            format!(
                "{} was removed or replaced while {name} was in use; {ONE}. {then}",
                side.display()
            )
        }
    })
}

/// A path beside the store, as SQLite names its own.
pub(super) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

/// What stands at a path instead of a file; none if it is one.
pub(super) fn no_file(found: &Metadata) -> Option<&'static str> {
    let kind = found.file_type();
    if kind.is_file() {
        None
    } else if kind.is_dir() {
        Some("a folder")
    } else if kind.is_char_device() || kind.is_block_device() {
        Some("a device")
    } else if kind.is_fifo() {
        Some("a pipe")
    } else if kind.is_socket() {
        Some("a socket")
    } else {
        Some("no file")
    }
}
