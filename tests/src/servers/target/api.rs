//! The target's HTTP interface: each handler passes a request to [`Data`] and logs its answer.

use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};

use super::data::{Answer, BulkItem, Data};
use super::{Failures, Target};
use crate::servers::lock;
use crate::servers::requests::{Asked, Became, Caller};

/// The largest request body: 32 MiB.
const MAX_BODY: usize = 32 << 20;

pub(super) fn router(target: Target) -> Router {
    Router::new()
        .route("/indexes", get(list))
        .route("/indexes/{index}", put(create).delete(delete))
        .route("/indexes/{index}/_bulk", post(bulk))
        .route("/indexes/{index}/_stats", get(stats))
        .route("/aliases/{alias}", get(alias).put(switch))
        .route("/reports", post(report).get(reports))
        .route("/effects", post(effect).get(effects))
        .route("/effects/once", post(effect_once))
        .route("/admin/fail", post(set_failures))
        .route("/admin/dump", get(dump))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(target)
}

impl Target {
    /// Answers one request: late, or not at all if a failure was asked for.
    async fn answer(
        &self,
        asked: Asked,
        act: impl FnOnce(&mut Data, &Caller) -> Answer,
    ) -> Response {
        let latency = lock(&self.0).latency;
        tokio::time::sleep(latency).await;
        let mut inner = lock(&self.0);
        let failure = inner.failures.next(&asked.path);
        let failed = |status| Answer::new(status, json!({ "error": "a failure was asked for" }));
        let answer = match failure {
            Some(status) if inner.failures.after_effect => {
                let done = act(&mut inner.data, &asked.caller);
                Answer {
                    rows: done.rows,
                    rewritten: done.rewritten,
                    ..failed(status)
                }
            }
            Some(status) => failed(status),
            None => act(&mut inner.data, &asked.caller),
        };
        let became = Became {
            rows: answer.rows,
            rewritten: answer.rewritten,
            fenced: answer.body["fenced"] == true,
        };
        inner.log.add(&asked, answer.status, became);
        if answer.status == StatusCode::NO_CONTENT {
            answer.status.into_response()
        } else {
            (answer.status, Json(answer.body)).into_response()
        }
    }
}

#[derive(Deserialize)]
struct ListQuery {
    #[serde(default)]
    prefix: String,
}

async fn list(
    State(target): State<Target>,
    asked: Asked,
    Query(query): Query<ListQuery>,
) -> Response {
    target
        .answer(asked, |data, _| data.list(&query.prefix))
        .await
}

async fn create(State(target): State<Target>, asked: Asked, Path(index): Path<String>) -> Response {
    target
        .answer(asked, |data, caller| data.create(&index, caller))
        .await
}

async fn delete(State(target): State<Target>, asked: Asked, Path(index): Path<String>) -> Response {
    target
        .answer(asked, |data, caller| data.delete(&index, caller))
        .await
}

#[derive(Deserialize)]
struct Bulk {
    documents: Vec<BulkItem>,
}

async fn bulk(
    State(target): State<Target>,
    asked: Asked,
    Path(index): Path<String>,
    Json(bulk): Json<Bulk>,
) -> Response {
    target
        .answer(asked, |data, caller| {
            data.bulk(&index, bulk.documents, caller)
        })
        .await
}

async fn stats(State(target): State<Target>, asked: Asked, Path(index): Path<String>) -> Response {
    target.answer(asked, |data, _| data.stats(&index)).await
}

async fn alias(State(target): State<Target>, asked: Asked, Path(alias): Path<String>) -> Response {
    target.answer(asked, |data, _| data.alias(&alias)).await
}

#[derive(Deserialize)]
struct Switch {
    index: String,
}

async fn switch(
    State(target): State<Target>,
    asked: Asked,
    Path(alias): Path<String>,
    Json(switch): Json<Switch>,
) -> Response {
    target
        .answer(asked, |data, caller| {
            data.switch(&alias, &switch.index, caller)
        })
        .await
}

async fn report(State(target): State<Target>, asked: Asked, Json(report): Json<Value>) -> Response {
    let key = asked.key.clone();
    target
        .answer(asked, |data, caller| match key {
            Some(key) => data.report(&key, report, caller),
            None => no_key(),
        })
        .await
}

fn no_key() -> Answer {
    let body = json!({ "error": "this needs an `idempotency-key` header" });
    Answer::new(StatusCode::BAD_REQUEST, body)
}

async fn reports(State(target): State<Target>) -> Json<Value> {
    Json(json!({ "reports": lock(&target.0).data.reports }))
}

async fn effect(State(target): State<Target>, asked: Asked, Json(effect): Json<Value>) -> Response {
    target.answer(asked, |data, _| data.effect(effect)).await
}

async fn effect_once(
    State(target): State<Target>,
    asked: Asked,
    Json(effect): Json<Value>,
) -> Response {
    let key = asked.key.clone();
    target
        .answer(asked, |data, caller| match key {
            Some(key) => data.effect_once(&key, effect, caller),
            None => no_key(),
        })
        .await
}

async fn effects(State(target): State<Target>) -> Json<Value> {
    Json(json!({ "effects": lock(&target.0).data.effects }))
}

async fn set_failures(
    State(target): State<Target>,
    Json(failures): Json<Failures>,
) -> Json<Failures> {
    target.set_failures(failures.clone());
    Json(failures)
}

#[derive(Deserialize)]
struct DumpQuery {
    #[serde(default = "yes")]
    documents: bool,
}

fn yes() -> bool {
    true
}

async fn dump(State(target): State<Target>, Query(query): Query<DumpQuery>) -> Response {
    let inner = lock(&target.0);
    let mut data = inner.data.clone();
    if !query.documents {
        data.indexes
            .values_mut()
            .for_each(|index| index.documents.clear());
    }
    Json(json!({ "data": data, "log": inner.log })).into_response()
}
