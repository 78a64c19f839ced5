//! A paged source of merchants: deterministic from a seed, read by keyset cursor, with a version
//! that tells a reader when the rows changed under it.
//!
//! | Request | Answer |
//! | --- | --- |
//! | `GET /rows?limit=1..1000[&cursor=C]` | `{"version", "total", "rows": [..], "next": C or null}`, sorted by `updated_at`, then `id`; 410 if the rows changed since the cursor was given; 400 for a cursor that is none |
//! | `GET /version` | `{"version", "total", "checksum"}` |
//! | `POST /admin/faults` | see [`Faults`] |
//! | `POST /admin/change` `{"rows": n}` | changes n rows: their `updated_at` moves, the version rises |
//! | `POST /admin/latency` `{"ms": n}` | how long each page takes |
//! | `GET /admin/dump[?rows=false]` | version, rows and request log |

mod data;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use data::{Cursor, Merchants};

use super::requests::{Asked, Became, RequestLog};
use super::{checksum, lock};

/// The largest page.
const MAX_LIMIT: usize = 1000;

/// How a source begins.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Seed of the rows.
    pub seed: u64,
    /// Number of rows.
    pub rows: usize,
    /// How long each page takes.
    pub latency: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            seed: 1,
            rows: 1000,
            latency: Duration::ZERO,
        }
    }
}

/// What goes wrong with the next pages. A request body changes the given fields only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Faults {
    /// So many pages are served before anything goes wrong.
    pub skip: u32,
    /// Then so many page requests fail…
    pub fail: u32,
    /// …with this status, 503 if not said…
    pub status: Option<u16>,
    /// …and this `Retry-After` in seconds.
    pub retry_after: Option<u32>,
    /// Then so many page requests get the page before the one they asked for once more.
    pub repeat: u32,
    /// Then so many pages come in the wrong order.
    pub shuffle: u32,
}

/// What becomes of one page request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Serve,
    Fail {
        status: StatusCode,
        retry_after: Option<u32>,
    },
    Repeat,
    Shuffle,
}

impl Faults {
    fn next(&mut self) -> Fate {
        let take = |left: &mut u32| {
            let some = *left > 0;
            *left = left.saturating_sub(1);
            some
        };
        if take(&mut self.skip) {
            Fate::Serve
        } else if take(&mut self.fail) {
            let status = self
                .status
                .and_then(|status| StatusCode::from_u16(status).ok());
            Fate::Fail {
                status: status.unwrap_or(StatusCode::SERVICE_UNAVAILABLE),
                retry_after: self.retry_after,
            }
        } else if take(&mut self.repeat) {
            Fate::Repeat
        } else if take(&mut self.shuffle) {
            Fate::Shuffle
        } else {
            Fate::Serve
        }
    }
}

struct Inner {
    merchants: Merchants,
    latency: Duration,
    faults: Faults,
    /// The cursor of the latest page that was served as asked.
    served: Option<Cursor>,
    log: RequestLog,
}

/// A source; clones share their data.
#[derive(Clone)]
pub struct Source(Arc<Mutex<Inner>>);

impl Source {
    /// A source with fresh rows.
    pub fn new(config: Config) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            merchants: Merchants::new(config.seed, config.rows),
            latency: config.latency,
            faults: Faults::default(),
            served: None,
            log: RequestLog::default(),
        })))
    }

    /// Its HTTP interface.
    pub fn router(&self) -> Router {
        Router::new()
            .route("/rows", get(rows))
            .route("/version", get(version))
            .route("/admin/faults", post(set_faults))
            .route("/admin/change", post(change))
            .route("/admin/latency", post(set_latency))
            .route("/admin/dump", get(dump))
            .with_state(self.clone())
    }

    /// Lets the next pages go wrong.
    pub fn set_faults(&self, faults: Faults) {
        lock(&self.0).faults = faults;
    }

    /// Changes rows, which makes open cursors invalid.
    pub fn change(&self, rows: usize) {
        lock(&self.0).merchants.change(rows);
    }

    /// All rows in order.
    pub fn rows(&self) -> Vec<Value> {
        lock(&self.0).merchants.rows().to_vec()
    }

    /// The request log.
    pub fn log(&self) -> RequestLog {
        lock(&self.0).log.clone()
    }
}

#[derive(Deserialize)]
struct PageQuery {
    limit: usize,
    cursor: Option<String>,
}

async fn rows(
    State(source): State<Source>,
    asked: Asked,
    Query(query): Query<PageQuery>,
) -> Response {
    let latency = lock(&source.0).latency;
    tokio::time::sleep(latency).await;
    let mut inner = lock(&source.0);
    let (status, body, retry_after) = inner.page(&query);
    let served = body
        .get("rows")
        .and_then(Value::as_array)
        .map_or(0, Vec::len);
    let became = Became {
        rows: served,
        ..Became::default()
    };
    inner.log.add(&asked, status, became);
    let mut response = (status, Json(body)).into_response();
    if let Some(seconds) = retry_after {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

impl Inner {
    fn page(&mut self, query: &PageQuery) -> (StatusCode, Value, Option<u32>) {
        let refuse = |status, error: String| (status, json!({ "error": error }), None);
        if !(1..=MAX_LIMIT).contains(&query.limit) {
            let error = format!("limit {}; 1 to {MAX_LIMIT} are accepted", query.limit);
            return refuse(StatusCode::BAD_REQUEST, error);
        }
        let fate = self.faults.next();
        if let Fate::Fail {
            status,
            retry_after,
        } = fate
        {
            let body = json!({ "error": "a fault was asked for" });
            return (status, body, retry_after);
        }
        let mut cursor = match query.cursor.as_deref().map(Cursor::parse) {
            None => Cursor::start(self.merchants.version()),
            Some(Some(cursor)) => cursor,
            Some(None) => return refuse(StatusCode::BAD_REQUEST, "no cursor of mine".to_owned()),
        };
        if cursor.version != self.merchants.version() {
            let error = format!("the rows changed: version {}", self.merchants.version());
            return refuse(StatusCode::GONE, error);
        }
        if fate == Fate::Repeat {
            // A cache in between would do this: the answer to the earlier request once more.
            cursor = self.served.clone().unwrap_or(cursor);
        } else {
            self.served = Some(cursor.clone());
        }
        let (mut rows, next) = self.merchants.page(&cursor, query.limit);
        if fate == Fate::Shuffle {
            rows.reverse();
        }
        let body = json!({
            "version": self.merchants.version().to_string(),
            "total": self.merchants.rows().len(),
            "rows": rows,
            "next": next.map(|cursor| cursor.to_string()),
        });
        (StatusCode::OK, body, None)
    }
}

async fn version(State(source): State<Source>, asked: Asked) -> Json<Value> {
    let mut inner = lock(&source.0);
    inner.log.add(&asked, StatusCode::OK, Became::default());
    Json(json!({
        "version": inner.merchants.version().to_string(),
        "total": inner.merchants.rows().len(),
        "checksum": checksum::to_text(checksum::of_all(inner.merchants.rows())),
    }))
}

async fn set_faults(State(source): State<Source>, Json(faults): Json<Faults>) -> Json<Faults> {
    source.set_faults(faults);
    Json(faults)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    rows: usize,
}

async fn change(State(source): State<Source>, Json(change): Json<Change>) -> Json<Value> {
    source.change(change.rows);
    let version = lock(&source.0).merchants.version();
    Json(json!({ "version": version.to_string() }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Latency {
    ms: u64,
}

async fn set_latency(State(source): State<Source>, Json(latency): Json<Latency>) -> StatusCode {
    lock(&source.0).latency = Duration::from_millis(latency.ms);
    StatusCode::NO_CONTENT
}

#[derive(Deserialize)]
struct DumpQuery {
    #[serde(default = "yes")]
    rows: bool,
}

fn yes() -> bool {
    true
}

async fn dump(State(source): State<Source>, Query(query): Query<DumpQuery>) -> Json<Value> {
    let inner = lock(&source.0);
    Json(json!({
        "version": inner.merchants.version().to_string(),
        "total": inner.merchants.rows().len(),
        "checksum": checksum::to_text(checksum::of_all(inner.merchants.rows())),
        "rows": query.rows.then(|| inner.merchants.rows()),
        "log": inner.log,
    }))
}
