//! The log of a server's requests: who asked for what, when, and what became of it.

use std::collections::VecDeque;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::http::{HeaderMap, Method, StatusCode};
use serde::{Deserialize, Serialize};

/// Requests that are kept; older ones are dropped and counted.
const KEPT: usize = 200_000;

/// The attempt a request comes from, as its headers say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caller {
    /// `x-run-id`.
    pub run: Option<String>,
    /// `x-attempt`.
    pub attempt: Option<u32>,
    /// `x-fence`.
    pub fence: Option<String>,
}

impl Caller {
    /// Reads the headers of a request.
    pub fn of(headers: &HeaderMap) -> Self {
        Self {
            run: text(headers, "x-run-id"),
            attempt: text(headers, "x-attempt").and_then(|value| value.parse().ok()),
            fence: text(headers, "x-fence"),
        }
    }
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    let value = headers.get(name)?.to_str().ok()?;
    Some(value.to_owned())
}

/// One request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// When its headers came, in milliseconds since 1970.
    pub received_ms: u64,
    /// When it took effect and was answered, in milliseconds since 1970. Entries stand in the order
    /// of their effects.
    pub at_ms: u64,
    /// Its method.
    pub method: String,
    /// Its path, with the query.
    pub path: String,
    /// The attempt it came from.
    #[serde(flatten)]
    pub caller: Caller,
    /// Its `idempotency-key`.
    pub key: Option<String>,
    /// The status of the answer.
    pub status: u16,
    /// It was refused since a later fence had been seen.
    pub fenced: bool,
    /// Rows that were sent or served.
    pub rows: usize,
    /// Rows among them that the target had before.
    pub rewritten: usize,
}

/// The log.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RequestLog {
    /// The kept requests, oldest first.
    pub entries: VecDeque<Entry>,
    /// How many older ones are gone.
    pub dropped: u64,
}

/// A request before its answer is known.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Its method.
    pub method: Method,
    /// Its path, with the query.
    pub path: String,
    /// The attempt it came from.
    pub caller: Caller,
    /// Its `idempotency-key`.
    pub key: Option<String>,
    /// When its headers came, in milliseconds since 1970.
    pub received_ms: u64,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Became {
    /// Rows that were sent or served.
    pub rows: usize,
    /// Rows among them that the target had before.
    pub rewritten: usize,
    /// It was refused since a later fence had been seen.
    pub fenced: bool,
}

impl RequestLog {
    /// Adds an answered request.
    pub fn add(&mut self, asked: &Asked, status: StatusCode, became: Became) {
        if self.entries.len() >= KEPT {
            self.entries.pop_front();
            self.dropped += 1;
        }
        self.entries.push_back(Entry {
            received_ms: asked.received_ms,
            at_ms: now_ms(),
            method: asked.method.to_string(),
            path: asked.path.clone(),
            caller: asked.caller.clone(),
            key: asked.key.clone(),
            status: status.as_u16(),
            fenced: became.fenced,
            rows: became.rows,
            rewritten: became.rewritten,
        });
    }
}

/// Milliseconds since 1970.
pub fn now_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl<S: Sync> axum::extract::FromRequestParts<S> for Asked {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(
        parts: &mut axum::http::request::Parts,
        _: &S,
    ) -> Result<Self, Self::Rejection> {
        Ok(Self {
            method: parts.method.clone(),
            path: parts
                .uri
                .path_and_query()
                .map_or_else(String::new, ToString::to_string),
            caller: Caller::of(&parts.headers),
            key: text(&parts.headers, "idempotency-key"),
            received_ms: now_ms(),
        })
    }
}
