//! One text for what means the same in every store.

use std::collections::HashMap;
use std::fmt::{Debug, Write as _};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use wasmcron_store::{Result, StoreError};

/// Between the last nominal time of the steps and any store's clock, in milliseconds.
pub(super) const NOMINAL_MAX: u64 = 1_780_000_000_000;
/// What lies further ahead than this is long, where everything else passed or passes at once.
const SOON: Duration = Duration::from_secs(120);
/// Words whose numbers are names: equal numbers are one thing, and how large they are tells nothing.
const NAMES: [&str; 4] = ["fence", "delivery", "term", "viewversion"];
/// Facts that hang on how fast a machine is.
const BLANKED: [&str; 2] = ["expires_in: ", "average: "];

/// The numbers that a store gave, each by the order in which they came to light.
#[derive(Default)]
pub(super) struct Symbols(HashMap<(String, u64), usize>);

/// An answer as text; of errors only what the caller can do.
pub(super) fn said<T: Debug>(answer: &Result<T>) -> String {
    match answer {
        Ok(answer) => format!("{answer:?}"),
        Err(error) => match error {
            StoreError::Unavailable { .. } => panic!("{error}"),
            StoreError::Full { .. } => "error: full".into(),
            StoreError::Refused { .. } => "error: refused".into(),
            StoreError::Corrupt { .. } => "error: corrupt".into(),
            StoreError::TooLarge { .. } => "error: too large".into(),
        },
    }
}

impl Symbols {
    /// The text of a debug form with all numbers that stores give replaced.
    pub(super) fn canonical(&mut self, text: &str) -> String {
        let text = without_namespace(&blanked(text));
        let (mut out, mut word, mut last) = (String::new(), String::new(), String::new());
        for c in text.chars().chain([' ']) {
            if c.is_ascii_alphanumeric() || c == '_' {
                word.push(c);
                continue;
            }
            if !word.is_empty() {
                out.push_str(&self.word(&last, &word));
                last = std::mem::take(&mut word);
            }
            out.push(c);
        }
        out.pop();
        out
    }

    fn word(&mut self, before: &str, word: &str) -> String {
        let number = (word.len() >= 13)
            .then(|| word.parse::<u64>().ok())
            .flatten();
        let Some(number) = number else {
            return word.to_owned();
        };
        let kind = before.to_lowercase();
        if NAMES.contains(&kind.as_str()) {
            let next = self.0.len() + 1;
            let symbol = *self.0.entry((kind.clone(), number)).or_insert(next);
            return format!("<{kind} {symbol}>");
        }
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let soon = u64::try_from((now + SOON).as_millis()).unwrap_or(u64::MAX);
        match number {
            0..NOMINAL_MAX => word.to_owned(),
            _ if number <= soon => "<now>".into(),
            _ => "<later>".into(),
        }
    }
}

fn blanked(text: &str) -> String {
    let mut text = text.to_owned();
    for name in BLANKED {
        let mut parts = text.split(name);
        let mut out = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let rest = part.find([' ', ',', '}']).map_or("", |end| &part[end..]);
            let _ = write!(out, "{name}~{rest}");
        }
        text = out;
    }
    text
}

/// A queue's name, without what a store puts before it.
fn without_namespace(text: &str) -> String {
    let mut parts = text.split("subscriber_queue: Some(\"");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let name = part.find("tasks:").map_or(part, |at| &part[at..]);
        let _ = write!(out, "subscriber_queue: Some(\"{name}");
    }
    out
}
