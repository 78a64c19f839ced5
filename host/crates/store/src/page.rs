//! Where a page of a list begins.

/// Where the next page begins, in the backend's own words: only the store that gave it can read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageCursor(String);

impl PageCursor {
    /// What a backend needs to know to go on.
    #[must_use]
    pub fn new(text: impl Into<String>) -> PageCursor {
        PageCursor(text.into())
    }

    /// What it was made of.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}
