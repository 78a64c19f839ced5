//! Why there is no usable response.

use std::fmt;
use std::time::Duration;

/// Why there is no usable response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HttpErrorKind {
    /// The job file does not grant this origin, or the address is not allowed.
    Denied,
    /// Nothing listens there.
    Refused,
    /// The name or the way to the address is not known.
    Unreachable,
    /// It took too long.
    TimedOut,
    /// The connection ended before the response did.
    Interrupted,
    /// TLS failed.
    Tls,
    /// The request itself is wrong: URL, method or headers.
    Invalid,
    /// The response body exceeds [`super::Request::max_response`].
    TooLarge,
    /// The status is outside 2xx.
    Status(u16),
    /// The body is not what was expected.
    Body,
    /// Something else went wrong.
    Other,
}

/// Why there is no usable response. Its text names method and URL, without the query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpError {
    of: String,
    kind: HttpErrorKind,
    detail: String,
    retry_after: Option<Duration>,
}

impl HttpError {
    pub(crate) fn new(of: String, kind: HttpErrorKind, detail: impl Into<String>) -> Self {
        Self {
            of,
            kind,
            detail: detail.into(),
            retry_after: None,
        }
    }

    pub(crate) fn with_retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// What kind of error it is.
    pub fn kind(&self) -> HttpErrorKind {
        self.kind
    }

    /// The status, if there was one.
    pub fn status(&self) -> Option<u16> {
        match self.kind {
            HttpErrorKind::Status(status) => Some(status),
            _ => None,
        }
    }

    /// How long the server asked to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Whether the same request may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self.kind {
            HttpErrorKind::Denied | HttpErrorKind::Invalid | HttpErrorKind::TooLarge => false,
            HttpErrorKind::Status(status) => {
                matches!(status, 408 | 425 | 429 | 500 | 502 | 503 | 504)
            }
            HttpErrorKind::Refused
            | HttpErrorKind::Unreachable
            | HttpErrorKind::TimedOut
            | HttpErrorKind::Interrupted
            | HttpErrorKind::Tls
            | HttpErrorKind::Body
            | HttpErrorKind::Other => true,
        }
    }
}

impl fmt::Display for HttpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            HttpErrorKind::Denied => "denied: `[allow] http` of the job file does not grant it",
            HttpErrorKind::Refused => "connection refused",
            HttpErrorKind::Unreachable => "not reachable",
            HttpErrorKind::TimedOut => "timed out",
            HttpErrorKind::Interrupted => "the connection was interrupted",
            HttpErrorKind::Tls => "TLS failed",
            HttpErrorKind::Invalid => "not a valid request",
            HttpErrorKind::TooLarge => "the response is too large",
            HttpErrorKind::Status(status) => {
                write!(f, "{}: status {status}", self.of)?;
                return if self.detail.is_empty() {
                    Ok(())
                } else {
                    write!(f, " ({})", self.detail)
                };
            }
            HttpErrorKind::Body => "the body is not what was expected",
            HttpErrorKind::Other => "failed",
        };
        write!(f, "{}: {what}", self.of)?;
        if self.detail.is_empty() {
            Ok(())
        } else {
            write!(f, " ({})", self.detail)
        }
    }
}

impl std::error::Error for HttpError {}

/// The beginning of a body, for a message.
pub(super) fn excerpt(body: &[u8]) -> String {
    const LIMIT: usize = 200;
    let text = String::from_utf8_lossy(&body[..body.len().min(LIMIT)]);
    let mut excerpt: String = text
        .trim()
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    if body.len() > LIMIT {
        excerpt.push('…');
    }
    excerpt
}
