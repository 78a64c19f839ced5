//! A source and a target in memory, behind the harness's HTTP script.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::rc::Rc;

use serde_json::{Value, json};
use wasmcron_guest::http::{HttpError, HttpErrorKind, Request, Response};
use wasmcron_guest::testing::Harness;

use crate::MerchantFullSync;
use crate::checksum::Checksum;

/// What one request meets instead of its answer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Trouble {
    /// The request goes through.
    None,
    /// A status, before any effect.
    Status(u16),
    /// The connection breaks after the effect.
    Lost,
    /// The source serves the page before once more.
    Repeat,
    /// The source's rows change just before.
    Change,
    /// The target takes a bulk write and drops its first row.
    DropRow,
}

/// Both servers.
#[derive(Default)]
pub(super) struct World {
    /// `(updated_at, id)` of each row, in the order they are served.
    pub(super) rows: Vec<(String, String)>,
    pub(super) version: u32,
    pub(super) indexes: BTreeMap<String, BTreeMap<String, Value>>,
    pub(super) alias: Option<String>,
    pub(super) switches: Vec<String>,
    /// How often each row of the current index was written.
    pub(super) writes: BTreeMap<String, u32>,
    /// Trouble for the next requests to the source.
    pub(super) source_trouble: VecDeque<Trouble>,
    /// Trouble for the next requests to the target.
    pub(super) target_trouble: VecDeque<Trouble>,
    /// Refuse fences below this.
    pub(super) fence: String,
    served: usize,
}

pub(super) type Shared = Rc<RefCell<World>>;

/// A world whose source has these rows, and a run of the plugin in it with pages of `page_size`.
pub(super) fn world(rows: &[(&str, &str)], page_size: u32) -> (Harness<MerchantFullSync>, Shared) {
    let rows = rows
        .iter()
        .map(|(time, id)| ((*time).to_owned(), (*id).to_owned()))
        .collect();
    let world = Rc::new(RefCell::new(World {
        rows,
        version: 1,
        ..World::default()
    }));
    let params = json!({
        "source": "http://source/rows", "target": "http://target/", "page_size": page_size,
    });
    let shared = world.clone();
    let harness = Harness::new()
        .params(&params)
        .http(move |request| shared.borrow_mut().answer(request));
    (harness, world)
}

/// A world with `count` sorted rows, of which three each share a time.
pub(super) fn counted(count: usize, page_size: u32) -> (Harness<MerchantFullSync>, Shared) {
    let rows: Vec<_> = (0..count)
        .map(|n| (format!("t{:03}", n / 3), format!("m{n:03}")))
        .collect();
    let rows: Vec<_> = rows
        .iter()
        .map(|(time, id)| (time.as_str(), id.as_str()))
        .collect();
    world(&rows, page_size)
}

impl World {
    /// The ids behind the alias.
    pub(super) fn in_service(&self) -> Vec<String> {
        let index = self
            .alias
            .as_ref()
            .and_then(|index| self.indexes.get(index));
        index
            .map(|index| index.keys().cloned().collect())
            .unwrap_or_default()
    }

    /// The ids of the source, sorted.
    pub(super) fn source_ids(&self) -> Vec<String> {
        let mut ids: Vec<_> = self.rows.iter().map(|(_, id)| id.clone()).collect();
        ids.sort();
        ids
    }

    /// Asserts that readers see exactly the source, once, and that nothing is left over.
    pub(super) fn assert_synced(&self) {
        assert_eq!(self.in_service(), self.source_ids());
        assert_eq!(
            self.switches.len(),
            1,
            "one switch over: {:?}",
            self.switches
        );
        assert_eq!(
            self.indexes.len(),
            1,
            "left over: {:?}",
            self.indexes.keys()
        );
    }

    fn answer(&mut self, request: &Request) -> Result<Response, HttpError> {
        let target = request.target().expect("a URL");
        let (path, query) = target
            .path_and_query
            .split_once('?')
            .unwrap_or((&target.path_and_query, ""));
        if target.authority == "source" {
            let trouble = self.source_trouble.pop_front().unwrap_or(Trouble::None);
            return self.source(request, query, &trouble);
        }
        let fence = request.headers.iter().find(|(name, _)| name == "x-fence");
        if fence.is_none_or(|(_, fence)| *fence < self.fence) {
            return Ok(Response::new(409).with_json(&json!({ "fenced": true })));
        }
        let trouble = self.target_trouble.pop_front().unwrap_or(Trouble::None);
        if let Trouble::Status(status) = trouble {
            return Ok(Response::new(status));
        }
        let parts: Vec<_> = path.trim_matches('/').split('/').collect();
        let body = serde_json::from_slice(&request.body).unwrap_or(Value::Null);
        let answer = self.target(&request.method, &parts, body, &trouble);
        if matches!(trouble, Trouble::Lost) {
            return Err(request.error(HttpErrorKind::Interrupted, "reset"));
        }
        Ok(answer)
    }

    fn source(
        &mut self,
        request: &Request,
        query: &str,
        trouble: &Trouble,
    ) -> Result<Response, HttpError> {
        match trouble {
            Trouble::Status(status) => return Ok(Response::new(*status)),
            Trouble::Lost => return Err(request.error(HttpErrorKind::Refused, "")),
            Trouble::Change => self.version += 1,
            _ => {}
        }
        let value = |name: &str| {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs
                .find(|(key, _)| *key == name)
                .map(|(_, value)| value.to_owned())
        };
        let number = |text: &str| text.parse::<usize>().expect("a number");
        let mut from = 0;
        if let Some(cursor) = value("cursor") {
            let (version, at) = cursor.split_once('.').expect("a cursor");
            if version != self.version.to_string() {
                return Ok(Response::new(410));
            }
            from = number(at);
        }
        if matches!(trouble, Trouble::Repeat) {
            from = self.served;
        }
        self.served = from;
        let to = (from + number(&value("limit").expect("a limit"))).min(self.rows.len());
        let rows: Vec<_> = self.rows[from..to]
            .iter()
            .map(|(time, id)| json!({ "id": id, "updated_at": time, "version": self.version }))
            .collect();
        Ok(Response::new(200).with_json(&json!({
            "version": self.version.to_string(),
            "total": self.rows.len(),
            "rows": rows,
            "next": (to < self.rows.len()).then(|| format!("{}.{to}", self.version)),
        })))
    }

    fn target(&mut self, method: &str, parts: &[&str], body: Value, trouble: &Trouble) -> Response {
        match (method, parts) {
            ("GET", ["aliases", _]) => {
                Response::new(200).with_json(&json!({ "index": self.alias }))
            }
            ("PUT", ["aliases", _]) => {
                let index = body["index"].as_str().expect("an index").to_owned();
                self.switches.push(index.clone());
                self.alias = Some(index);
                Response::new(200)
            }
            ("GET", ["indexes"]) => {
                let names: Vec<_> = self.indexes.keys().collect();
                Response::new(200).with_json(&json!({ "indexes": names }))
            }
            ("PUT", ["indexes", index]) => {
                self.indexes.entry((*index).to_owned()).or_default();
                self.writes.clear();
                Response::new(201)
            }
            ("DELETE", ["indexes", index]) if self.alias.as_deref() == Some(index) => {
                Response::new(409)
            }
            ("DELETE", ["indexes", index]) => {
                Response::new(if self.indexes.remove(*index).is_some() {
                    204
                } else {
                    404
                })
            }
            ("POST", ["indexes", index, "_bulk"]) => {
                let Some(documents) = self.indexes.get_mut(*index) else {
                    return Response::new(404);
                };
                let skip = usize::from(matches!(trouble, Trouble::DropRow));
                for item in body["documents"]
                    .as_array()
                    .expect("documents")
                    .iter()
                    .skip(skip)
                {
                    let id = item["id"].as_str().expect("an id").to_owned();
                    *self.writes.entry(id.clone()).or_default() += 1;
                    documents.insert(id, item["document"].clone());
                }
                Response::new(200)
            }
            ("GET", ["indexes", index, "_stats"]) => {
                let Some(documents) = self.indexes.get(*index) else {
                    return Response::new(404);
                };
                let mut checksum = Checksum::default();
                documents
                    .values()
                    .for_each(|document| checksum.add(document));
                let stats = json!({ "count": documents.len(), "checksum": checksum });
                Response::new(200).with_json(&stats)
            }
            other => panic!("no such request: {other:?}"),
        }
    }
}
