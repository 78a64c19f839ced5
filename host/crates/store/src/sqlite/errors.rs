//! SQLite's errors, grouped by what the caller can do.

use rusqlite::{Error, ErrorCode, ffi};

use crate::error::StoreError;

/// What a person may do about a damaged file. Nothing of ours ever writes over it.
const ADVICE: &str = "nothing was overwritten; stop every pod, move the file away together with its \
                      -wal and -shm files, then put a copy in its place, try `sqlite3 FILE .recover`, \
                      or start with an empty store";

/// Who may hold a lock for long.
pub(super) const HELD: &str = "a forgotten sqlite3 or a pod that was stopped while it wrote may hold it \
                               (`fuser FILE` names processes); nothing was written, so try again";

/// What trouble means for the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Not now.
    Unavailable,
    /// No room; nothing was written.
    Full,
    /// A person has to act.
    Refused,
}

/// Trouble that all verbs of one transaction share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trouble {
    /// What it means.
    pub(super) kind: Kind,
    /// For people; names the file.
    pub(super) message: String,
}

/// Of what all verbs of a transaction share.
pub(super) type Checked<T> = Result<T, Trouble>;

impl Trouble {
    /// Of any kind.
    pub(super) fn new(kind: Kind, message: impl Into<String>) -> Trouble {
        Trouble {
            kind,
            message: message.into(),
        }
    }

    /// That a person has to act on.
    pub(super) fn refused(message: impl Into<String>) -> Trouble {
        Trouble::new(Kind::Refused, message)
    }

    /// As the answer to a verb.
    pub(super) fn error(&self, verb: &'static str) -> StoreError {
        let message = self.message.clone();
        match self.kind {
            Kind::Unavailable => StoreError::Unavailable { verb, message },
            Kind::Full => StoreError::Full { verb, message },
            Kind::Refused => StoreError::Refused { verb, message },
        }
    }
}

/// Whether somebody else holds a lock that may be free soon.
pub(super) fn is_busy(error: &Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
    )
}

/// What an error of SQLite means, for a file called `place`.
pub(super) fn trouble(place: &str, error: &Error) -> Trouble {
    let Some(failure) = error.sqlite_error() else {
        // Ours: a column of another type than the layout has.
        return Trouble::refused(format!(
            "{place}: {error}; accepted: tables as wasmcron makes them"
        ));
    };
    match failure.code {
        ErrorCode::DiskFull => Trouble::new(
            Kind::Full,
            format!("no room left for {place} on its disk, or its quota is used up"),
        ),
        // Growing the shared index of the log is the one place where SQLite has another word for it.
        ErrorCode::SystemIoFailure if failure.extended_code == ffi::SQLITE_IOERR_SHMSIZE => {
            Trouble::new(
                Kind::Full,
                format!("no room left for {place}-shm on its disk"),
            )
        }
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => Trouble::new(
            Kind::Unavailable,
            format!("{place} is locked by another process ({error})"),
        ),
        ErrorCode::DatabaseCorrupt => Trouble::refused(damaged(place, &error.to_string())),
        ErrorCode::NotADatabase => Trouble::refused(no_database(place)),
        ErrorCode::ReadOnly => Trouble::refused(format!(
            "{place} cannot be written ({error}); accepted: a file, in a folder, that this user may \
             write, and that stays where it is while pods run"
        )),
        ErrorCode::PermissionDenied | ErrorCode::AuthorizationForStatementDenied => {
            Trouble::refused(format!("{place}: {error}; accepted: a file of this user"))
        }
        ErrorCode::TooBig => Trouble::refused(format!("{place}: {error}")),
        ErrorCode::SystemIoFailure | ErrorCode::OutOfMemory | ErrorCode::CannotOpen => {
            Trouble::new(Kind::Unavailable, format!("{place}: {error}"))
        }
        ErrorCode::OperationInterrupted
        | ErrorCode::SchemaChanged
        | ErrorCode::OperationAborted => {
            Trouble::new(Kind::Unavailable, format!("{place}: {error}"))
        }
        _ => Trouble::refused(format!("{place}: {error}")),
    }
}

/// Says that a file is a damaged database.
pub(super) fn damaged(place: &str, found: &str) -> String {
    format!("{place} is damaged: found {found}; accepted: an intact database of wasmcron; {ADVICE}")
}

/// Says that a file is no database.
pub(super) fn no_database(place: &str) -> String {
    let bytes = std::fs::metadata(place).map_or(0, |file| file.len());
    format!(
        "{place} is no SQLite database: found {bytes} bytes of something else; accepted: a path where \
         no file is yet, or a store of wasmcron; {ADVICE}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(code: i32) -> Kind {
        let error = Error::SqliteFailure(ffi::Error::new(code), None);
        let trouble = trouble("/var/lib/store.db", &error);
        assert!(trouble.message.contains("/var/lib/store.db"), "{trouble:?}");
        trouble.kind
    }

    #[test]
    fn errors_say_what_the_caller_can_do() {
        for (code, wanted) in [
            (ffi::SQLITE_FULL, Kind::Full),
            (ffi::SQLITE_IOERR_SHMSIZE, Kind::Full),
            (ffi::SQLITE_BUSY, Kind::Unavailable),
            (ffi::SQLITE_BUSY_SNAPSHOT, Kind::Unavailable),
            (ffi::SQLITE_LOCKED, Kind::Unavailable),
            (ffi::SQLITE_IOERR_FSYNC, Kind::Unavailable),
            (ffi::SQLITE_NOMEM, Kind::Unavailable),
            (ffi::SQLITE_INTERRUPT, Kind::Unavailable),
            (ffi::SQLITE_CANTOPEN, Kind::Unavailable),
            (ffi::SQLITE_READONLY, Kind::Refused),
            (ffi::SQLITE_READONLY_DBMOVED, Kind::Refused),
            (ffi::SQLITE_CORRUPT, Kind::Refused),
            (ffi::SQLITE_NOTADB, Kind::Refused),
            (ffi::SQLITE_TOOBIG, Kind::Refused),
            (ffi::SQLITE_ERROR, Kind::Refused),
        ] {
            assert_eq!(kind(code), wanted, "{code}");
        }
    }

    #[test]
    fn an_answer_carries_its_verb_and_tells_whether_to_repeat() {
        let full = Trouble::new(Kind::Full, "no room").error("publish");
        assert_eq!(
            full.to_string(),
            "the store is full, publish was not applied: no room"
        );
        assert!(full.is_transient());
        assert!(!Trouble::refused("no").error("publish").is_transient());
    }
}
