//! The paged source.

use serde::Deserialize;
use serde_json::Value;
use wasmcron_guest::{Call, Failure, http};

use crate::client::Client;
use crate::progress::Key;

/// One page, sorted by [`Key`].
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Page {
    /// Rises with every change of the rows.
    pub(crate) version: String,
    /// Rows of all pages together, if the source counts them.
    pub(crate) total: Option<u64>,
    /// The rows.
    pub(crate) rows: Vec<Row>,
    /// Where the next page begins; none: this is the last one.
    pub(crate) next: Option<String>,
}

/// One row: its key, and all of it as the document to write.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Value")]
pub(crate) struct Row {
    pub(crate) key: Key,
    pub(crate) document: Value,
}

impl TryFrom<Value> for Row {
    type Error = String;

    fn try_from(document: Value) -> Result<Self, String> {
        let text = |name: &str| {
            let value = document.get(name).and_then(Value::as_str);
            value
                .map(str::to_owned)
                .ok_or_else(|| format!("a row without the text `{name}`"))
        };
        let key = Key {
            updated_at: text("updated_at")?,
            id: text("id")?,
        };
        Ok(Self { key, document })
    }
}

/// What the source says.
pub(crate) enum Answer {
    /// The page that was asked for.
    Page(Page),
    /// The cursor is not valid any more, for this reason.
    Changed(String),
}

/// The source of one attempt.
pub(crate) struct Source {
    url: String,
    page_size: u32,
    client: Client,
}

impl Source {
    pub(crate) fn new(url: &str, page_size: u32, call: &Call) -> Self {
        Self {
            url: url.to_owned(),
            page_size,
            client: Client::new(call),
        }
    }

    /// The page at a cursor; none: the first one.
    pub(crate) fn page(&self, cursor: Option<&str>) -> Result<Answer, Failure> {
        let mut request = http::get(&self.url).query("limit", self.page_size);
        if let Some(cursor) = cursor {
            request = request.query("cursor", cursor);
        }
        let response = self.client.send(request)?;
        if cursor.is_some() && matches!(response.status, 409 | 410) {
            let reason = format!(
                "the source refused the cursor with status {}",
                response.status
            );
            return Ok(Answer::Changed(reason));
        }
        Ok(Answer::Page(response.error_for_status()?.json()?))
    }
}
