//! A TOML file with the means to say where in it something stands.

use std::io::Read as _;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::fault::{ConfigError, Fault};
use super::known::{self, Shape};

/// The largest configuration or job file, in bytes.
pub const FILE_MAX_BYTES: u64 = 1 << 20;

/// Syntax errors of one file that are shown; the first explains most of the others.
const SYNTAX_FAULTS_MAX: usize = 5;

/// Values of one file that are named when they do not fit.
const VALUE_FAULTS_MAX: usize = 20;

/// The text of a file.
#[derive(Debug)]
pub struct Source {
    /// Its path, as given.
    pub file: PathBuf,
    text: String,
}

impl Source {
    /// Reads a file: UTF-8, with or without byte order mark, any line ends.
    ///
    /// # Errors
    /// When it cannot be read, is too large or is not UTF-8.
    pub fn read(file: &Path) -> Result<Source, ConfigError> {
        let refuse = |message: String| ConfigError::from(Fault::of_file(file, message));
        // Opening a pipe would wait for somebody to write to it.
        let kind = std::fs::metadata(file).map_err(|e| refuse(format!("cannot be read: {e}")))?;
        if !kind.is_file() {
            return Err(refuse("is not a regular file".into()));
        }
        let opened =
            std::fs::File::open(file).map_err(|e| refuse(format!("cannot be read: {e}")))?;
        let mut bytes = Vec::new();
        opened
            .take(FILE_MAX_BYTES + 1)
            .read_to_end(&mut bytes)
            .map_err(|e| refuse(format!("cannot be read: {e}")))?;
        if bytes.len() as u64 > FILE_MAX_BYTES {
            return Err(refuse(format!(
                "has more than {FILE_MAX_BYTES} bytes, which is the limit"
            )));
        }
        let text = String::from_utf8(bytes).map_err(|error| {
            let line = 1 + error
                .as_bytes()
                .iter()
                .take(error.utf8_error().valid_up_to())
                .filter(|b| **b == b'\n')
                .count();
            let mut fault = Fault::of_file(file, "not UTF-8 text; save the file as UTF-8");
            fault.line = Some(line);
            ConfigError::from(fault)
        })?;
        Ok(Source::from_text(file, text))
    }

    /// Takes a text as if it had been read from a file.
    pub fn from_text(file: &Path, text: impl Into<String>) -> Source {
        let mut text = text.into();
        if text.starts_with('\u{feff}') {
            text.remove(0);
        }
        Source {
            file: file.to_owned(),
            text,
        }
    }

    /// The text as a TOML table.
    ///
    /// # Errors
    /// The first syntax errors with their places; a key that stands twice is one.
    pub fn table(&self) -> Result<Spanned<DeTable<'_>>, ConfigError> {
        let (table, errors) = DeTable::parse_recoverable(&self.text);
        if errors.is_empty() {
            return Ok(table);
        }
        let faults = errors.iter().take(SYNTAX_FAULTS_MAX).map(|error| {
            let key = error
                .span()
                .filter(|_| error.message().contains("duplicate key"))
                .and_then(|span| self.text.get(span));
            self.fault(
                error.span(),
                key.map(str::to_owned),
                error.message().to_owned(),
            )
        });
        Err(ConfigError {
            faults: faults.collect(),
        })
    }

    /// Reads the table into a type, after a check that names every unknown key.
    ///
    /// # Errors
    /// Unknown keys, or the values that do not fit.
    pub fn read_into<T: DeserializeOwned>(
        &self,
        table: &Spanned<DeTable<'_>>,
        shape: &Shape,
        hint: fn(&str) -> Option<&'static str>,
    ) -> Result<T, ConfigError> {
        let faults: Vec<Fault> = known::unknown_keys(table.get_ref(), shape, hint)
            .into_iter()
            .map(|unknown| self.fault(Some(unknown.span), Some(unknown.key), unknown.message))
            .collect();
        if !faults.is_empty() {
            return Err(ConfigError { faults });
        }
        self.values_of(table.clone())
    }

    /// Reads values. One that does not fit is taken out and the rest read again, so that whoever wrote
    /// the file hears of all of them.
    fn values_of<T: DeserializeOwned>(
        &self,
        mut table: Spanned<DeTable<'_>>,
    ) -> Result<T, ConfigError> {
        let mut faults = Vec::new();
        loop {
            let error = match T::deserialize(toml::de::Deserializer::from(table.clone())) {
                Ok(value) if faults.is_empty() => return Ok(value),
                Ok(_) => break,
                Err(error) => error,
            };
            let span = error.span();
            let mut key = span.as_ref().and_then(|span| key_at(table.get_ref(), span));
            let missing = error.message().starts_with("missing field");
            if missing && !faults.is_empty() {
                // It may be what was taken out.
                break;
            }
            if missing {
                // What is missing is missing from a table, not from the key that stands first in it.
                key = key.filter(|key| holds_table(table.get_ref(), key));
            }
            let again = !missing
                && faults.len() + 1 < VALUE_FAULTS_MAX
                && key
                    .as_ref()
                    .is_some_and(|key| take_out(table.get_mut(), key));
            faults.push(self.fault(span, key, reword(error.message())));
            if !again {
                break;
            }
        }
        // Tables are read in the order of their names.
        faults.sort_by_key(|fault| (fault.line, fault.column));
        Err(ConfigError { faults })
    }

    /// A fault at a place of this file.
    pub fn fault(&self, span: Option<Range<usize>>, key: Option<String>, message: String) -> Fault {
        let place = span.map(|span| self.place(span.start));
        Fault {
            file: Some(self.file.clone()),
            line: place.map(|p| p.0),
            column: place.map(|p| p.1),
            key,
            message,
        }
    }

    /// A fault of a key, at its value if the file has it.
    pub fn fault_of(&self, table: &DeTable<'_>, key: &str, message: String) -> Fault {
        self.fault(span_of(table, key), Some(key.to_owned()), message)
    }

    /// The line of a key's value, if the file has the key.
    pub fn line_of(&self, table: &DeTable<'_>, key: &str) -> Option<usize> {
        span_of(table, key).map(|span| self.place(span.start).0)
    }

    /// Line and column of a byte.
    fn place(&self, byte: usize) -> (usize, usize) {
        let before = self
            .text
            .get(..byte.min(self.text.len()))
            .unwrap_or(&self.text);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let line = before.matches('\n').count() + 1;
        let column = before
            .get(line_start..)
            .map_or(0, |text| text.chars().count())
            + 1;
        (line, column)
    }
}

/// Where the value of a dotted key stands; `a.1` is the second element of the array `a`.
fn span_of(table: &DeTable<'_>, key: &str) -> Option<Range<usize>> {
    value_of(table, key).map(Spanned::span)
}

fn value_of<'a, 'i>(table: &'a DeTable<'i>, key: &str) -> Option<&'a Spanned<DeValue<'i>>> {
    let mut parts = key.split('.');
    let mut value = table.get(parts.next()?)?;
    for part in parts {
        value = match value.get_ref() {
            DeValue::Table(table) => table.get(part)?,
            DeValue::Array(array) => array.get(part.parse::<usize>().ok()?)?,
            _ => return None,
        };
    }
    Some(value)
}

/// Removes the value of a dotted key; whether there was one.
fn take_out(table: &mut DeTable<'_>, key: &str) -> bool {
    let Some((first, rest)) = key.split_once('.') else {
        return table.remove(key).is_some();
    };
    match table.get_mut(first).map(Spanned::get_mut) {
        Some(DeValue::Table(inner)) => take_out(inner, rest),
        _ => false,
    }
}

fn holds_table(table: &DeTable<'_>, key: &str) -> bool {
    value_of(table, key).is_some_and(|value| value.get_ref().is_table())
}

/// The dotted key whose name or value encloses a place most closely.
fn key_at(table: &DeTable<'_>, place: &Range<usize>) -> Option<String> {
    let mut best: Option<(usize, String)> = None;
    let mut open: Vec<(String, &DeTable<'_>)> = vec![(String::new(), table)];
    while let Some((path, table)) = open.pop() {
        for (name, value) in table {
            let key = format!("{path}{}", name.get_ref());
            for span in [name.span(), value.span()] {
                let encloses = span.start <= place.start && place.end <= span.end;
                if encloses && best.as_ref().is_none_or(|(length, _)| span.len() < *length) {
                    best = Some((span.len(), key.clone()));
                }
            }
            if let DeValue::Table(inner) = value.get_ref() {
                open.push((format!("{key}."), inner));
            }
        }
    }
    best.map(|(_, key)| key)
}

/// Puts the deserializer's words in the form of all our messages: found, then accepted.
fn reword(message: &str) -> String {
    let message = message.trim_end();
    for prefix in ["invalid type: ", "invalid value: ", "invalid length "] {
        if let Some((found, accepted)) = message
            .strip_prefix(prefix)
            .and_then(|rest| rest.rsplit_once(", expected "))
        {
            return format!("found {found}, accepted is {accepted}");
        }
    }
    if let Some(field) = message.strip_prefix("missing field ") {
        return format!("the key {field} is missing");
    }
    if let Some((found, accepted)) = message
        .strip_prefix("unknown variant ")
        .and_then(|rest| rest.split_once(", expected "))
    {
        let accepted = accepted.trim_start_matches("one of ");
        let words: Vec<&str> = accepted.split('`').skip(1).step_by(2).collect();
        let nearest = known::nearest(found.trim_matches('`'), words.iter().copied())
            .map(|word| format!(" (did you mean `{word}`?)"))
            .unwrap_or_default();
        return format!("found {found}{nearest}, accepted: {accepted}");
    }
    message.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_from_one_and_columns_in_characters() {
        let source = Source::from_text(Path::new("x.toml"), "\u{feff}a = 1\r\nä = 2\r\n");
        assert_eq!(source.place(0), (1, 1));
        assert_eq!(source.place(source.text.find('2').unwrap_or(0)), (2, 5));
    }

    #[test]
    fn a_key_is_found_by_its_place() {
        let source = Source::from_text(Path::new("x.toml"), "[a]\nb = { c = 1 }\nd = [1, 2]\n");
        let table = source.table().expect("toml");
        let at = source.text.find('1').expect("digit");
        assert_eq!(
            key_at(table.get_ref(), &(at..at + 1)).as_deref(),
            Some("a.b.c")
        );
        assert_eq!(
            span_of(table.get_ref(), "a.d.1").map(|s| source.place(s.start)),
            Some((3, 9))
        );
    }

    #[test]
    fn the_deserializers_words_say_found_and_accepted() {
        assert_eq!(
            reword("unknown variant `skp`, expected one of `skip`, `queue`, `replace`"),
            "found `skp` (did you mean `skip`?), accepted: `skip`, `queue`, `replace`"
        );
        assert_eq!(
            reword("invalid type: integer `1`, expected a boolean"),
            "found integer `1`, accepted is a boolean"
        );
    }
}
