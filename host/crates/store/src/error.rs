//! What can go wrong between a pod and the store, grouped by what the caller can do.

/// An answer that is not one of the verb's own: losing a race is never an error.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// No answer, or one that says "not now" (down, loading, read-only, failing over). Whether the
    /// request was applied is unknown: repeat it, every verb answers a repeat alike.
    #[error("the store did not answer {verb}: {message}")]
    Unavailable {
        /// The verb.
        verb: &'static str,
        /// The client's or server's text, without secrets.
        message: String,
    },
    /// The store has no room. Nothing was written: keep the result and repeat later.
    #[error("the store is full, {verb} was not applied: {message}")]
    Full {
        /// The verb.
        verb: &'static str,
        /// The server's text.
        message: String,
    },
    /// The store will not do this for us, now or later: wrong password, missing right, wrong type
    /// of key, old version. A person has to act.
    #[error("the store refused {verb}: {message}")]
    Refused {
        /// The verb.
        verb: &'static str,
        /// The server's text, with the key where known.
        message: String,
    },
    /// Bytes in the store that do not decode. The caller can go on with everything else.
    #[error("{key} holds what is not {what}: {message}")]
    Corrupt {
        /// The key, with the field where there is one.
        key: String,
        /// What should stand there.
        what: &'static str,
        /// Where decoding stopped.
        message: String,
    },
    /// The caller's own bytes exceed a limit of the protocol. Nothing was sent.
    #[error("{what} has {found} bytes, the limit is {limit}")]
    TooLarge {
        /// What.
        what: &'static str,
        /// Its size in bytes.
        found: usize,
        /// The limit in bytes.
        limit: usize,
    },
}

impl StoreError {
    /// Whether the same request may be repeated with some hope.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            StoreError::Unavailable { .. } | StoreError::Full { .. }
        )
    }
}

/// What every verb returns.
pub type Result<T> = std::result::Result<T, StoreError>;
