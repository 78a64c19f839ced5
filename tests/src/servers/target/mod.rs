//! A target as search engines are: indexes that are filled in bulk and put in service by an alias;
//! beside them reports and effects for other plugins.
//!
//! Every write may carry `x-run-id`, `x-attempt` and `x-fence`. A write whose fence is below the
//! largest one seen for the same index, alias or report gets 409: it comes from a straggler.
//!
//! | Request | Answer |
//! | --- | --- |
//! | `PUT /indexes/{index}` | 201, or 200 if it is there already |
//! | `GET /indexes[?prefix=P]` | `{"indexes": [names]}` |
//! | `POST /indexes/{index}/_bulk` `{"documents": [{"id", "document"}]}` | upserts: `{"created", "rewritten"}` |
//! | `GET /indexes/{index}/_stats` | `{"count", "checksum"}` |
//! | `DELETE /indexes/{index}` | 204; 404; 409 while an alias points to it |
//! | `GET /aliases/{alias}` | `{"index": name or null}` |
//! | `PUT /aliases/{alias}` `{"index"}` | `{"index", "previous"}`, in one step; 404 without that index |
//! | `POST /reports` with `idempotency-key` | 201, or 200 for a key that was there; `GET` lists them |
//! | `POST /effects`, any JSON | 201; `GET` lists them |
//! | `POST /effects/once` with `idempotency-key` | 201; 200 and no effect for a key that was there; 409 after a later fence of the run's job |
//! | `POST /admin/fail` | see [`Failures`] |
//! | `GET /admin/dump[?documents=false]` | everything, with the request log |

mod api;
mod data;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use data::{Data, Document, Index, Report, Switch};

use super::lock;
use super::requests::RequestLog;

/// What goes wrong with the next requests outside `/admin`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Failures {
    /// So many matching requests are served before anything goes wrong.
    pub skip: u32,
    /// Then so many fail…
    pub fail: u32,
    /// …with this status, 503 if not said.
    pub status: Option<u16>,
    /// Only requests whose path contains this text match.
    pub path: String,
    /// Fail after the effect instead of before it: the caller cannot know that it took place.
    pub after_effect: bool,
}

impl Failures {
    /// The status a request fails with, if it is its turn.
    fn next(&mut self, path: &str) -> Option<StatusCode> {
        if !path.contains(&self.path) {
            return None;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        if self.fail == 0 {
            return None;
        }
        self.fail -= 1;
        let status = self
            .status
            .and_then(|status| StatusCode::from_u16(status).ok());
        Some(status.unwrap_or(StatusCode::SERVICE_UNAVAILABLE))
    }
}

#[derive(Default)]
struct Inner {
    data: Data,
    latency: Duration,
    failures: Failures,
    log: RequestLog,
}

/// A target; clones share their data.
#[derive(Clone, Default)]
pub struct Target(Arc<Mutex<Inner>>);

impl Target {
    /// An empty target whose requests take `latency`.
    pub fn new(latency: Duration) -> Self {
        let target = Self::default();
        lock(&target.0).latency = latency;
        target
    }

    /// Its HTTP interface.
    pub fn router(&self) -> Router {
        api::router(self.clone())
    }

    /// Lets the next requests fail.
    pub fn set_failures(&self, failures: Failures) {
        lock(&self.0).failures = failures;
    }

    /// A copy of its data.
    pub fn data(&self) -> Data {
        lock(&self.0).data.clone()
    }

    /// The effects in the order they came.
    pub fn effects(&self) -> Vec<Value> {
        lock(&self.0).data.effects.clone()
    }

    /// The request log.
    pub fn log(&self) -> RequestLog {
        lock(&self.0).log.clone()
    }
}
