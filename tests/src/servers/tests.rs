//! The servers' rules, over HTTP.

use std::time::Duration;

use serde_json::{Value, json};

use super::source::{Config, Faults, Source};
use super::target::Target;
use super::{Running, start};

/// A client of one server that sends the headers of an attempt.
struct Client {
    url: String,
    fence: &'static str,
    agent: ureq::Agent,
}

impl Client {
    fn new(running: &Running) -> Self {
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(10)))
            .build()
            .new_agent();
        Self {
            url: running.url(),
            fence: "1",
            agent,
        }
    }

    fn with_fence(&self, fence: &'static str) -> Self {
        Self {
            url: self.url.clone(),
            fence,
            agent: self.agent.clone(),
        }
    }

    fn send(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let request = ureq::http::Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.url))
            .header("content-type", "application/json")
            .header("idempotency-key", "run-1")
            .header("x-run-id", "run-1")
            .header("x-attempt", "1")
            .header("x-fence", self.fence)
            .body(body.to_string())
            .expect("a request");
        let mut response = self.agent.run(request).expect("a response");
        let text = response.body_mut().read_to_string().expect("a text");
        (
            response.status().as_u16(),
            serde_json::from_str(&text).unwrap_or(Value::Null),
        )
    }

    fn get(&self, path: &str) -> (u16, Value) {
        let response = self.agent.get(format!("{}{path}", self.url)).call();
        let mut response = response.expect("a response");
        let text = response.body_mut().read_to_string().expect("a text");
        (
            response.status().as_u16(),
            serde_json::from_str(&text).unwrap_or(Value::Null),
        )
    }
}

/// Runs a blocking test body beside a server.
fn with_server(router: axum::Router, body: impl FnOnce(Client) + Send + 'static) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let running = start(([127, 0, 0, 1], 0).into(), router)
            .await
            .expect("a free port");
        let client = Client::new(&running);
        tokio::task::spawn_blocking(move || body(client))
            .await
            .expect("the test's body");
    });
}

#[test]
fn bulk_writes_are_upserts_that_count_rewrites() {
    let target = Target::default();
    with_server(target.router(), |client| {
        let bulk = json!({ "documents": [
            { "id": "a", "document": { "id": "a" } }, { "id": "b", "document": { "id": "b" } },
        ] });
        assert_eq!(client.send("POST", "/indexes/x/_bulk", &bulk).0, 404);
        assert_eq!(client.send("PUT", "/indexes/x", &Value::Null).0, 201);
        assert_eq!(client.send("PUT", "/indexes/x", &Value::Null).0, 200);
        let first = client.send("POST", "/indexes/x/_bulk", &bulk);
        assert_eq!(first, (200, json!({ "created": 2, "rewritten": 0 })));
        let again = client.send("POST", "/indexes/x/_bulk", &bulk);
        assert_eq!(again, (200, json!({ "created": 0, "rewritten": 2 })));
        assert_eq!(client.get("/indexes/x/_stats").1["count"], 2);
    });
    let log = target.log();
    assert_eq!(
        log.entries
            .iter()
            .map(|entry| entry.rewritten)
            .collect::<Vec<_>>()[..5],
        [0, 0, 0, 0, 2]
    );
    assert_eq!(log.entries[4].caller.run.as_deref(), Some("run-1"));
    assert_eq!(target.data().indexes["x"].documents["a"].writes, 2);
}

#[test]
fn a_straggler_is_refused_where_a_later_fence_was_seen() {
    let target = Target::default();
    with_server(target.router(), |client| {
        let (old, new) = (client.with_fence("1"), client.with_fence("2"));
        assert_eq!(old.send("PUT", "/indexes/x", &Value::Null).0, 201);
        let bulk = json!({ "documents": [] });
        assert_eq!(new.send("POST", "/indexes/x/_bulk", &bulk).0, 200);
        let (status, body) = old.send("POST", "/indexes/x/_bulk", &bulk);
        assert_eq!((status, &body["fenced"]), (409, &json!(true)));
        assert_eq!(
            old.send("PUT", "/indexes/y", &Value::Null).0,
            201,
            "another index"
        );
    });
}

#[test]
fn an_alias_is_switched_and_protects_its_index() {
    let target = Target::default();
    with_server(target.router(), |client| {
        for index in ["m.1", "m.2", "n.1"] {
            client.send("PUT", &format!("/indexes/{index}"), &Value::Null);
        }
        assert_eq!(client.get("/aliases/m").1, json!({ "index": null }));
        let switch = |index: &str| client.send("PUT", "/aliases/m", &json!({ "index": index }));
        assert_eq!(switch("none").0, 404);
        assert_eq!(switch("m.1").1, json!({ "index": "m.1", "previous": null }));
        assert_eq!(
            switch("m.2").1,
            json!({ "index": "m.2", "previous": "m.1" })
        );
        assert_eq!(
            client.get("/indexes?prefix=m.").1,
            json!({ "indexes": ["m.1", "m.2"] })
        );
        assert_eq!(client.send("DELETE", "/indexes/m.2", &Value::Null).0, 409);
        assert_eq!(client.send("DELETE", "/indexes/m.1", &Value::Null).0, 204);
        assert_eq!(client.send("DELETE", "/indexes/m.1", &Value::Null).0, 404);
    });
    assert_eq!(target.data().switches.len(), 2);
}

#[test]
fn reports_are_kept_once_a_key_and_effects_all() {
    let target = Target::default();
    with_server(target.router(), |client| {
        assert_eq!(client.send("POST", "/reports", &json!({ "n": 1 })).0, 201);
        assert_eq!(client.send("POST", "/reports", &json!({ "n": 2 })).0, 200);
        assert_eq!(
            client.get("/reports").1["reports"]["run-1"],
            json!({ "report": { "n": 1 }, "posts": 2 })
        );
        client.send("POST", "/effects", &json!(1));
        client.send("POST", "/effects", &json!(1));
        assert_eq!(client.get("/effects").1, json!({ "effects": [1, 1] }));
    });
    assert_eq!(target.effects(), [json!(1), json!(1)]);
}

#[test]
fn an_effect_once_is_neither_repeated_nor_a_stragglers() {
    let target = Target::default();
    with_server(target.router(), |client| {
        let (old, new) = (client.with_fence("1"), client.with_fence("2"));
        let path = "/effects/once";
        assert_eq!(old.send("POST", path, &json!(1)).0, 201);
        let again = new.send("POST", path, &json!(1));
        assert_eq!(again, (200, json!({ "duplicate": true })));
        let late = old.send("POST", path, &json!(1));
        assert_eq!((late.0, &late.1["fenced"]), (409, &json!(true)));
    });
    assert_eq!(target.effects(), [json!(1)]);
    let log = target.log();
    let became: Vec<_> = log
        .entries
        .iter()
        .map(|entry| (entry.rewritten, entry.fenced))
        .collect();
    assert_eq!(became, [(0, false), (1, false), (0, true)]);
    assert_eq!(log.entries[0].key.as_deref(), Some("run-1"));
    assert!(log.entries[0].received_ms <= log.entries[0].at_ms);
}

#[test]
fn a_failure_can_come_before_or_after_the_effect() {
    let target = Target::default();
    with_server(target.router(), |client| {
        let fail = |after_effect| {
            let failures = json!({ "fail": 1, "path": "/effects", "after_effect": after_effect });
            client.send("POST", "/admin/fail", &failures);
        };
        fail(false);
        assert_eq!(
            client.send("PUT", "/indexes/x", &Value::Null).0,
            201,
            "another path"
        );
        assert_eq!(client.send("POST", "/effects", &json!(1)).0, 503);
        fail(true);
        assert_eq!(client.send("POST", "/effects", &json!(2)).0, 503);
        assert_eq!(client.send("POST", "/effects", &json!(3)).0, 201);
        assert_eq!(client.get("/effects").1, json!({ "effects": [2, 3] }));
        assert_eq!(
            client.get("/admin/dump").1["log"]["entries"][1]["status"],
            503
        );
    });
}

#[test]
fn the_source_serves_pages_until_its_rows_change() {
    let source = Source::new(Config {
        rows: 25,
        ..Config::default()
    });
    let shared = source.clone();
    with_server(source.router(), move |client| {
        let (status, first) = client.get("/rows?limit=10");
        assert_eq!((status, &first["total"]), (200, &json!(25)));
        let next = first["next"]
            .as_str()
            .expect("a cursor")
            .replace('|', "%7C");
        let (_, second) = client.get(&format!("/rows?limit=20&cursor={next}"));
        assert_eq!(second["rows"].as_array().map(Vec::len), Some(15));
        assert_eq!(second["next"], Value::Null);
        shared.change(1);
        assert_eq!(client.get(&format!("/rows?limit=10&cursor={next}")).0, 410);
        assert_eq!(client.get("/rows?limit=10&cursor=x").0, 400);
        assert_eq!(client.get("/rows?limit=1001").0, 400);
        assert_eq!(client.get("/version").1["version"], "2");
    });
}

#[test]
fn the_source_errs_on_request() {
    let source = Source::new(Config {
        rows: 30,
        ..Config::default()
    });
    let shared = source.clone();
    with_server(source.router(), move |client| {
        let (_, first) = client.get("/rows?limit=10");
        let cursor = first["next"]
            .as_str()
            .expect("a cursor")
            .replace('|', "%7C");
        let path = format!("/rows?limit=10&cursor={cursor}");
        let (_, second) = client.get(&path);
        let faults = Faults {
            fail: 1,
            status: Some(429),
            repeat: 1,
            shuffle: 1,
            ..Faults::default()
        };
        shared.set_faults(faults);
        assert_eq!(client.get(&path).0, 429);
        let next = second["next"]
            .as_str()
            .expect("a cursor")
            .replace('|', "%7C");
        let (_, repeated) = client.get(&format!("/rows?limit=10&cursor={next}"));
        assert_eq!(repeated, second, "the earlier page once more");
        let (_, shuffled) = client.get(&path);
        assert_ne!(shuffled, second);
        assert_eq!(client.get(&path).1, second);
    });
}
