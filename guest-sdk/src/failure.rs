//! How an attempt fails, and what the host should do about it.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::checkpoint::SaveError;
use crate::http::HttpError;
use crate::secrets::SecretError;

/// How an attempt failed.
///
/// Any error becomes a failure by `?`. It is tried again, since most errors of a job come from
/// the network and pass, and since the job's retry policy bounds the attempts; the exceptions are
/// errors of this crate that say themselves that trying again cannot help. Say otherwise with
/// [`ResultExt`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// May pass: try again, within the job's retry policy.
    Retry {
        /// What went wrong, for people.
        message: String,
        /// Wait at least this long; none: the job's back-off.
        after: Option<Duration>,
    },
    /// Trying again cannot help: the run ends as failed.
    Fatal(String),
    /// The job stopped because it was asked to.
    Cancelled,
}

impl Failure {
    /// A failure that may pass.
    pub fn retry(message: impl Into<String>) -> Self {
        Self::Retry {
            message: message.into(),
            after: None,
        }
    }

    /// A failure that trying again cannot mend.
    pub fn fatal(message: impl Into<String>) -> Self {
        Self::Fatal(message.into())
    }

    /// Asks the host to wait at least this long before the next attempt. Only a failure that is
    /// tried again can wait; the others stay as they are.
    #[must_use]
    pub fn after(self, wait: Duration) -> Self {
        match self {
            Self::Retry { message, .. } => Self::Retry {
                message,
                after: Some(wait),
            },
            other => other,
        }
    }

    /// Puts what was being done before the message.
    #[must_use]
    pub fn context(self, doing: impl fmt::Display) -> Self {
        match self {
            Self::Retry { message, after } => Self::Retry {
                message: format!("{doing}: {message}"),
                after,
            },
            Self::Fatal(message) => Self::Fatal(format!("{doing}: {message}")),
            Self::Cancelled => Self::Cancelled,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Retry { message, .. } | Self::Fatal(message) => f.write_str(message),
            Self::Cancelled => f.write_str("cancelled"),
        }
    }
}

// `Failure` is deliberately no `Error` itself: that leaves room for this conversion of every error.
impl<E: Error + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        let message = chain(&error);
        let error: &(dyn Error + 'static) = &error;
        if let Some(http) = error.downcast_ref::<HttpError>() {
            return if http.is_retryable() {
                Self::Retry {
                    message,
                    after: http.retry_after(),
                }
            } else {
                Self::Fatal(message)
            };
        }
        let hopeless = matches!(error.downcast_ref(), Some(SecretError::NotGranted(_)))
            || matches!(error.downcast_ref(), Some(SaveError::TooLarge { .. }))
            || matches!(
                error.downcast_ref(),
                Some(crate::state::StateError::TooLarge { .. })
            );
        if hopeless {
            Self::Fatal(message)
        } else {
            Self::retry(message)
        }
    }
}

/// The message of an error with those of its causes.
fn chain(error: &dyn Error) -> String {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let text = next.to_string();
        // Many errors already print their cause.
        if !message.contains(&text) {
            message.push_str(": ");
            message.push_str(&text);
        }
        cause = next.source();
    }
    message
}

/// Says of a `Result` what its error means for the run.
pub trait ResultExt<T> {
    /// The error ends the run: trying again cannot help.
    ///
    /// # Errors
    ///
    /// [`Failure::Fatal`], with what was being done before the error's own message.
    fn or_fatal(self, doing: &str) -> Result<T, Failure>;

    /// The error may pass: try again.
    ///
    /// # Errors
    ///
    /// [`Failure::Retry`], with what was being done before the error's own message.
    fn or_retry(self, doing: &str) -> Result<T, Failure>;
}

impl<T, E: Into<Failure>> ResultExt<T> for Result<T, E> {
    fn or_fatal(self, doing: &str) -> Result<T, Failure> {
        self.map_err(|error| match error.into() {
            Failure::Cancelled => Failure::Cancelled,
            other => Failure::Fatal(other.to_string()).context(doing),
        })
    }

    fn or_retry(self, doing: &str) -> Result<T, Failure> {
        self.map_err(|error| match error.into() {
            Failure::Fatal(message) => Failure::retry(message).context(doing),
            other => other.context(doing),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fails() -> Result<u32, Failure> {
        Ok("x".parse::<u32>()?)
    }

    #[test]
    fn any_error_is_tried_again_by_default() {
        assert_eq!(
            fails(),
            Err(Failure::retry("invalid digit found in string"))
        );
    }

    #[test]
    fn a_secret_that_is_not_granted_is_fatal() {
        let failure = Failure::from(SecretError::NotGranted("token".to_owned()));
        assert!(matches!(failure, Failure::Fatal(message) if message.contains("`token`")));
    }

    #[test]
    fn the_author_has_the_last_word() {
        let fatal = "x".parse::<u32>().or_fatal("reading the offset");
        assert_eq!(
            fatal,
            Err(Failure::fatal(
                "reading the offset: invalid digit found in string"
            ))
        );
        let again = Err::<(), _>(Failure::fatal("no")).or_retry("asking");
        assert_eq!(again, Err(Failure::retry("asking: no")));
    }

    #[test]
    fn only_a_retry_can_wait() {
        let wait = Duration::from_secs(3);
        assert_eq!(
            Failure::retry("busy").after(wait),
            Failure::Retry {
                message: "busy".to_owned(),
                after: Some(wait)
            }
        );
        assert_eq!(Failure::fatal("no").after(wait), Failure::fatal("no"));
    }
}
