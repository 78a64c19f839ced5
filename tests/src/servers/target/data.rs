//! What the target holds, and its rules.

use std::collections::{BTreeMap, BTreeSet};

use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::servers::checksum;
use crate::servers::requests::Caller;

/// Effects that are kept; further ones are refused.
const MAX_EFFECTS: usize = 200_000;

/// Everything the target holds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Data {
    /// Indexes by name.
    pub indexes: BTreeMap<String, Index>,
    /// The index behind each alias.
    pub aliases: BTreeMap<String, String>,
    /// Every switch of an alias so far, oldest first.
    pub switches: Vec<Switch>,
    /// Reports by idempotency key.
    pub reports: BTreeMap<String, Report>,
    /// Effects in the order they came.
    pub effects: Vec<Value>,
    /// Keys of the effects that took place once.
    pub once: BTreeSet<String>,
    /// The largest fence seen for each `index/NAME`, `alias/NAME`, `report/KEY` and `job/NAME`.
    pub fences: BTreeMap<String, String>,
}

/// What came into service by one switch of an alias.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Switch {
    /// The alias.
    pub alias: String,
    /// The index it points to from then on.
    pub index: String,
    /// The run that asked for it.
    pub run: Option<String>,
    /// How many documents the index held at that moment.
    pub count: usize,
    /// Their checksum.
    pub checksum: String,
}

/// One index.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Index {
    /// Documents by id.
    pub documents: BTreeMap<String, Document>,
}

/// One document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// Its content.
    pub document: Value,
    /// How often it was written.
    pub writes: u32,
    /// The attempt that wrote it last.
    pub attempt: Option<u32>,
}

/// One report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Its content, as it came first.
    pub report: Value,
    /// How often it came.
    pub posts: u32,
}

/// A document of a bulk request.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct BulkItem {
    id: String,
    document: Value,
}

/// What an answer says: status, body, rows sent, rows rewritten.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: Value,
    pub(super) rows: usize,
    pub(super) rewritten: usize,
}

impl Answer {
    pub(super) fn new(status: StatusCode, body: Value) -> Self {
        Self {
            status,
            body,
            rows: 0,
            rewritten: 0,
        }
    }

    fn refuse(status: StatusCode, error: impl Into<String>) -> Self {
        Self::new(status, json!({ "error": error.into() }))
    }
}

impl Data {
    /// Refuses a straggler, and remembers the fence otherwise.
    fn fenced(&mut self, what: &str, caller: &Caller) -> Option<Answer> {
        let fence = caller.fence.as_deref()?;
        let largest = self.fences.entry(what.to_owned()).or_default();
        if fence < largest.as_str() {
            let error = format!("fence {fence} is below {largest}, the largest seen");
            let body = json!({ "error": error, "fenced": true });
            return Some(Answer::new(StatusCode::CONFLICT, body));
        }
        fence.clone_into(largest);
        None
    }

    pub(super) fn create(&mut self, name: &str, caller: &Caller) -> Answer {
        if let Some(refused) = self.fenced(&format!("index/{name}"), caller) {
            return refused;
        }
        let there = self.indexes.contains_key(name);
        self.indexes.entry(name.to_owned()).or_default();
        let status = if there {
            StatusCode::OK
        } else {
            StatusCode::CREATED
        };
        Answer::new(status, json!({ "index": name }))
    }

    pub(super) fn list(&self, prefix: &str) -> Answer {
        let names: Vec<_> = self
            .indexes
            .keys()
            .filter(|name| name.starts_with(prefix))
            .collect();
        Answer::new(StatusCode::OK, json!({ "indexes": names }))
    }

    pub(super) fn bulk(&mut self, name: &str, items: Vec<BulkItem>, caller: &Caller) -> Answer {
        if !self.indexes.contains_key(name) {
            return Answer::refuse(StatusCode::NOT_FOUND, format!("no index `{name}`"));
        }
        if let Some(refused) = self.fenced(&format!("index/{name}"), caller) {
            return refused;
        }
        let index = self.indexes.entry(name.to_owned()).or_default();
        let rows = items.len();
        let mut rewritten = 0;
        for BulkItem { id, document } in items {
            let writes = index.documents.get(&id).map_or(0, |before| before.writes);
            rewritten += usize::from(writes > 0);
            let document = Document {
                document,
                writes: writes + 1,
                attempt: caller.attempt,
            };
            index.documents.insert(id, document);
        }
        let body = json!({ "created": rows - rewritten, "rewritten": rewritten });
        Answer {
            status: StatusCode::OK,
            body,
            rows,
            rewritten,
        }
    }

    pub(super) fn stats(&self, name: &str) -> Answer {
        if !self.indexes.contains_key(name) {
            return Answer::refuse(StatusCode::NOT_FOUND, format!("no index `{name}`"));
        }
        let (count, checksum) = self.held(name);
        Answer::new(
            StatusCode::OK,
            json!({ "count": count, "checksum": checksum }),
        )
    }

    /// Count and checksum of what an index holds; nothing for one that is not there.
    pub fn held(&self, name: &str) -> (usize, String) {
        let documents = self.indexes.get(name).map(|index| &index.documents);
        let count = documents.map_or(0, BTreeMap::len);
        let all = documents.into_iter().flat_map(BTreeMap::values);
        let sum = checksum::of_all(all.map(|document| &document.document));
        (count, checksum::to_text(sum))
    }

    pub(super) fn delete(&mut self, name: &str, caller: &Caller) -> Answer {
        if !self.indexes.contains_key(name) {
            return Answer::refuse(StatusCode::NOT_FOUND, format!("no index `{name}`"));
        }
        if let Some((alias, _)) = self.aliases.iter().find(|(_, index)| *index == name) {
            let error = format!("alias `{alias}` points to `{name}`");
            return Answer::refuse(StatusCode::CONFLICT, error);
        }
        if let Some(refused) = self.fenced(&format!("index/{name}"), caller) {
            return refused;
        }
        self.indexes.remove(name);
        Answer::new(StatusCode::NO_CONTENT, Value::Null)
    }

    pub(super) fn alias(&self, alias: &str) -> Answer {
        Answer::new(StatusCode::OK, json!({ "index": self.aliases.get(alias) }))
    }

    pub(super) fn switch(&mut self, alias: &str, index: &str, caller: &Caller) -> Answer {
        if !self.indexes.contains_key(index) {
            return Answer::refuse(StatusCode::NOT_FOUND, format!("no index `{index}`"));
        }
        if let Some(refused) = self.fenced(&format!("alias/{alias}"), caller) {
            return refused;
        }
        let previous = self.aliases.insert(alias.to_owned(), index.to_owned());
        let (count, checksum) = self.held(index);
        self.switches.push(Switch {
            alias: alias.to_owned(),
            index: index.to_owned(),
            run: caller.run.clone(),
            count,
            checksum,
        });
        Answer::new(
            StatusCode::OK,
            json!({ "index": index, "previous": previous }),
        )
    }

    pub(super) fn report(&mut self, key: &str, report: Value, caller: &Caller) -> Answer {
        if let Some(refused) = self.fenced(&format!("report/{key}"), caller) {
            return refused;
        }
        let kept = self
            .reports
            .entry(key.to_owned())
            .and_modify(|kept| kept.posts += 1)
            .or_insert(Report { report, posts: 1 });
        let status = if kept.posts == 1 {
            StatusCode::CREATED
        } else {
            StatusCode::OK
        };
        Answer::new(status, json!({ "key": key, "posts": kept.posts }))
    }

    /// An effect that takes place once a key, and not for a straggler of its job.
    pub(super) fn effect_once(&mut self, key: &str, effect: Value, caller: &Caller) -> Answer {
        let job = caller.run.as_deref().and_then(|run| run.split('@').next());
        if let Some(refused) = job.and_then(|job| self.fenced(&format!("job/{job}"), caller)) {
            return refused;
        }
        let rewritten = usize::from(self.once.contains(key));
        let mut answer = if rewritten == 0 {
            self.effect(effect)
        } else {
            Answer::new(StatusCode::OK, json!({ "duplicate": true }))
        };
        if answer.status.is_success() {
            self.once.insert(key.to_owned());
            (answer.rows, answer.rewritten) = (1, rewritten);
        }
        answer
    }

    pub(super) fn effect(&mut self, effect: Value) -> Answer {
        if self.effects.len() >= MAX_EFFECTS {
            let error = format!("{MAX_EFFECTS} effects are kept already");
            return Answer::refuse(StatusCode::INSUFFICIENT_STORAGE, error);
        }
        self.effects.push(effect);
        Answer::new(
            StatusCode::CREATED,
            json!({ "effects": self.effects.len() }),
        )
    }
}
