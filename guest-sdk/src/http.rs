//! A small blocking HTTP client. Only origins that the job file grants are reached.
//!
//! ```no_run
//! # use wasmcron_guest::{http, Failure};
//! # fn f() -> Result<(), Failure> {
//! let page: serde_json::Value = http::get("https://api.example.com/rows")
//!     .query("limit", 200)
//!     .header("accept", "application/json")
//!     .send()?
//!     .error_for_status()?
//!     .json()?;
//! # Ok(()) }
//! ```

mod error;
mod url;

use std::fmt::Display;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::host;

pub use error::{HttpError, HttpErrorKind};
pub use url::Target;

/// The time a request may take unless [`Request::timeout`] says otherwise.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
/// The largest response body unless [`Request::max_response`] says otherwise: 16 MiB.
const DEFAULT_MAX_RESPONSE: usize = 16 << 20;

/// Starts a GET request.
pub fn get(url: impl Into<String>) -> Request {
    Request::new("GET", url)
}

/// Starts a POST request.
pub fn post(url: impl Into<String>) -> Request {
    Request::new("POST", url)
}

/// Starts a PUT request.
pub fn put(url: impl Into<String>) -> Request {
    Request::new("PUT", url)
}

/// Starts a DELETE request.
pub fn delete(url: impl Into<String>) -> Request {
    Request::new("DELETE", url)
}

/// A request under construction.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Request {
    /// The method, in capitals.
    pub method: String,
    /// The absolute URL.
    pub url: String,
    /// Header names and values.
    pub headers: Vec<(String, String)>,
    /// The body; empty for none.
    pub body: Vec<u8>,
    /// The time for the whole request, from connecting to the last byte of the response.
    pub timeout: Duration,
    /// The largest response body in bytes.
    pub max_response: usize,
}

impl Request {
    /// A request with any method.
    pub fn new(method: &str, url: impl Into<String>) -> Self {
        Self {
            method: method.to_ascii_uppercase(),
            url: url.into(),
            headers: Vec::new(),
            body: Vec::new(),
            timeout: DEFAULT_TIMEOUT,
            max_response: DEFAULT_MAX_RESPONSE,
        }
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Adds a query parameter; name and value are percent-encoded.
    #[must_use]
    pub fn query(mut self, name: &str, value: impl Display) -> Self {
        url::push_query(&mut self.url, name, &value.to_string());
        self
    }

    /// Sets the body.
    #[must_use]
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// Sets the body to a value as JSON, with the fitting content type.
    ///
    /// # Errors
    ///
    /// If the value cannot be written as JSON.
    pub fn json<T: Serialize + ?Sized>(self, value: &T) -> Result<Self, serde_json::Error> {
        let body = serde_json::to_vec(value)?;
        Ok(self.header("content-type", "application/json").body(body))
    }

    /// Sets the time for the whole request; 30 s if never said.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the largest response body in bytes; 16 MiB if never said.
    #[must_use]
    pub fn max_response(mut self, bytes: usize) -> Self {
        self.max_response = bytes;
        self
    }

    /// The parts of the URL that a connection needs.
    ///
    /// # Errors
    ///
    /// If the URL is not an absolute `http` or `https` one.
    pub fn target(&self) -> Result<Target, HttpError> {
        Target::parse(&self.url).map_err(|why| self.error(HttpErrorKind::Invalid, why))
    }

    /// Sends the request and reads the whole response, whatever its status.
    ///
    /// # Errors
    ///
    /// If there is no complete response. See [`HttpError::is_retryable`].
    pub fn send(&self) -> Result<Response, HttpError> {
        self.target()?;
        let mut response = host::with(|host| host.http(self))?;
        response.of = format!("{} {}", self.method, url::without_query(&self.url));
        Ok(response)
    }

    /// An error of this request.
    pub fn error(&self, kind: HttpErrorKind, detail: impl Into<String>) -> HttpError {
        let of = format!("{} {}", self.method, url::without_query(&self.url));
        HttpError::new(of, kind, detail)
    }
}

/// A complete response.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// Header names, in lower case, and values.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// Method and URL of the request, for messages.
    of: String,
}

impl Response {
    /// A response with a status and nothing else; tests script a host with it.
    pub fn new(status: u16) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: Vec::new(),
            of: "response".to_owned(),
        }
    }

    /// Adds a header.
    #[must_use]
    pub fn with_header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_ascii_lowercase(), value.into()));
        self
    }

    /// Sets the body.
    #[must_use]
    pub fn with_body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// Sets the body to a JSON value.
    #[must_use]
    pub fn with_json(self, value: &serde_json::Value) -> Self {
        self.with_header("content-type", "application/json")
            .with_body(value.to_string())
    }

    /// The first header of a name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// Whether the status is 2xx.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Makes a status outside 2xx an error. 408, 425, 429, 500, 502, 503 and 504 may pass;
    /// the others are fatal when they reach the host by `?`. A `Retry-After` in seconds is heeded.
    ///
    /// # Errors
    ///
    /// [`HttpErrorKind::Status`].
    pub fn error_for_status(self) -> Result<Self, HttpError> {
        if self.is_success() {
            return Ok(self);
        }
        let after = self
            .header("retry-after")
            .and_then(|value| value.trim().parse().ok());
        let detail = error::excerpt(&self.body);
        let error = HttpError::new(self.of, HttpErrorKind::Status(self.status), detail);
        Err(match after {
            Some(seconds) => error.with_retry_after(Duration::from_secs(seconds)),
            None => error,
        })
    }

    /// The body as text; bytes that are not UTF-8 become replacement characters.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Reads the body as JSON.
    ///
    /// # Errors
    ///
    /// [`HttpErrorKind::Body`] if it is not JSON of this type. It may pass: a proxy's error page
    /// looks like this.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, HttpError> {
        serde_json::from_slice(&self.body).map_err(|error| {
            let detail = format!("{error}; it begins with: {}", error::excerpt(&self.body));
            HttpError::new(self.of.clone(), HttpErrorKind::Body, detail)
        })
    }
}
