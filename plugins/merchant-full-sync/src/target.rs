//! The target: indexes that are filled in bulk and put in service by an alias.

use serde::Deserialize;
use serde_json::{Value, json};
use wasmcron_guest::http::{self, Request, Response};
use wasmcron_guest::{Call, Failure};

use crate::checksum::{Checksum, fnv1a};
use crate::client::Client;
use crate::source::Row;

/// The longest part of an index name that stands for the run.
const MAX_SLUG: usize = 60;

/// What an index holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Stats {
    pub(crate) count: u64,
    pub(crate) checksum: Checksum,
}

/// What became of an index that should be empty.
pub(crate) enum Created {
    /// It is there and empty.
    Empty,
    /// The alias points to it: an earlier end of this run went as far as the switch.
    InService,
}

/// What became of a bulk write.
pub(crate) enum Written {
    /// Every row is in the index.
    All,
    /// Somebody removed the index.
    NoIndex,
}

/// The target of one attempt.
pub(crate) struct Target {
    url: String,
    alias: String,
    slug: String,
    client: Client,
}

impl Target {
    pub(crate) fn new(url: &str, alias: &str, call: &Call) -> Self {
        Self {
            url: url.trim_end_matches('/').to_owned(),
            alias: alias.to_owned(),
            slug: slug(&call.run_id),
            client: Client::new(call),
        }
    }

    /// The index of a scan: the same for every attempt of the run.
    pub(crate) fn index(&self, scan: u32) -> String {
        format!("{}.{}.{scan}", self.alias, self.slug)
    }

    /// Makes an index that holds nothing, whatever an attempt without a checkpoint left in it.
    pub(crate) fn create_empty(&self, index: &str) -> Result<Created, Failure> {
        let response = self.send(http::delete(self.path(index)))?;
        match response.status {
            404 => {}
            409 => return Ok(Created::InService),
            _ => drop(response.error_for_status()?),
        }
        self.send(http::put(self.path(index)))?.error_for_status()?;
        Ok(Created::Empty)
    }

    /// Writes rows under their ids: writing them again changes nothing.
    pub(crate) fn write(&self, index: &str, rows: Vec<Row>) -> Result<Written, Failure> {
        if rows.is_empty() {
            return Ok(Written::All);
        }
        let documents: Vec<_> = rows
            .into_iter()
            .map(|row| json!({ "id": row.key.id, "document": row.document }))
            .collect();
        let request = http::post(format!("{}/_bulk", self.path(index)))
            .json(&json!({ "documents": documents }))?;
        let response = self.send(request)?;
        if response.status == 404 {
            return Ok(Written::NoIndex);
        }
        response.error_for_status()?;
        Ok(Written::All)
    }

    /// What the index holds.
    pub(crate) fn stats(&self, index: &str) -> Result<Stats, Failure> {
        let response = self.send(http::get(format!("{}/_stats", self.path(index))))?;
        Ok(response.error_for_status()?.json()?)
    }

    /// Points the alias to the index, unless it does already.
    pub(crate) fn switch(&self, index: &str) -> Result<(), Failure> {
        let url = format!("{}/aliases/{}", self.url, self.alias);
        let current: Value = self.send(http::get(&url))?.error_for_status()?.json()?;
        if current["index"] != index {
            let request = http::put(&url).json(&json!({ "index": index }))?;
            self.send(request)?.error_for_status()?;
        }
        Ok(())
    }

    /// Removes the alias's other indexes: the one that was in service before, and what runs left
    /// that did not end well. Returns how many there were.
    pub(crate) fn remove_others(&self, index: &str) -> Result<usize, Failure> {
        #[derive(Deserialize)]
        struct List {
            indexes: Vec<String>,
        }
        let request =
            http::get(format!("{}/indexes", self.url)).query("prefix", format!("{}.", self.alias));
        let list: List = self.send(request)?.error_for_status()?.json()?;
        let others: Vec<_> = list
            .indexes
            .into_iter()
            .filter(|other| other != index)
            .collect();
        for other in &others {
            let response = self.send(http::delete(self.path(other)))?;
            if response.status != 404 {
                response.error_for_status()?;
            }
        }
        Ok(others.len())
    }

    fn path(&self, index: &str) -> String {
        format!("{}/indexes/{index}", self.url)
    }

    /// Sends a request; a refused fence means that a later attempt is at work.
    fn send(&self, request: Request) -> Result<Response, Failure> {
        let response = self.client.send(request)?;
        if response.status == 409
            && response
                .json::<Value>()
                .is_ok_and(|body| body["fenced"] == true)
        {
            let text = response.text();
            return Err(Failure::retry(format!(
                "another attempt writes to the target: {text}"
            )));
        }
        Ok(response)
    }
}

/// A run id as part of an index name. The hash keeps two ids apart that differ only in characters
/// that a name cannot have.
fn slug(run_id: &str) -> String {
    let plain: String = run_id
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() {
                c.to_ascii_lowercase()
            } else {
                '-'
            }
        })
        .take(MAX_SLUG)
        .collect();
    format!("{plain}-{:08x}", fnv1a(run_id.as_bytes()) >> 32)
}
