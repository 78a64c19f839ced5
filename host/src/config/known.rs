//! Which keys a file may have, taken from its JSON schema, and which are not among them.
//!
//! Serde stops at the first unknown key and knows one table only. This check names all of them, the
//! nearest known key, and the table where a misplaced key belongs.

use std::collections::BTreeMap;
use std::ops::Range;

use serde_json::Value;
use toml::de::{DeTable, DeValue};

/// What a value may contain.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// A value without keys of ours.
    Any,
    /// A table.
    Table {
        /// Known keys.
        known: BTreeMap<String, Shape>,
        /// What any other key may hold; none: there is no other key.
        rest: Option<Box<Shape>>,
    },
}

/// A key that is not known.
#[derive(Debug)]
pub struct Unknown {
    /// Where it stands.
    pub span: Range<usize>,
    /// It, with its tables.
    pub key: String,
    /// What is known instead.
    pub message: String,
}

impl Shape {
    /// The shape that a JSON schema describes.
    pub fn of(schema: &Value) -> Shape {
        let root = schema;
        shape(schema, root, 0)
    }

    /// Every dotted key that holds a value, in order.
    pub fn leaves(&self) -> Vec<String> {
        let mut found = Vec::new();
        self.collect("", &mut found);
        found
    }

    fn collect(&self, path: &str, found: &mut Vec<String>) {
        match self {
            Shape::Table { known, rest: None } => {
                for (key, inner) in known {
                    let path = if path.is_empty() {
                        key.clone()
                    } else {
                        format!("{path}.{key}")
                    };
                    inner.collect(&path, found);
                }
            }
            _ => found.push(path.to_owned()),
        }
    }
}

fn shape(schema: &Value, root: &Value, depth: u32) -> Shape {
    // Our schemas do not refer to themselves; the bound is for one that some day does.
    if depth > 16 {
        return Shape::Any;
    }
    if let Some(target) = schema.get("$ref").and_then(Value::as_str) {
        return match root.pointer(target.trim_start_matches('#')) {
            Some(target) => shape(target, root, depth + 1),
            None => Shape::Any,
        };
    }
    let mut known = BTreeMap::new();
    for (key, inner) in schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        known.insert(key.clone(), shape(inner, root, depth + 1));
    }
    for word in ["anyOf", "oneOf", "allOf"] {
        for part in schema
            .get(word)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            if let Shape::Table { known: more, .. } = shape(part, root, depth + 1) {
                known.extend(more);
            }
        }
    }
    match schema.get("additionalProperties") {
        None | Some(Value::Bool(false)) if !known.is_empty() => Shape::Table { known, rest: None },
        Some(inner @ Value::Object(_)) => Shape::Table {
            known,
            rest: Some(Box::new(shape(inner, root, depth + 1))),
        },
        _ => Shape::Any,
    }
}

/// Every key of the table that the shape does not know. `hint` may explain a key in its own words.
pub fn unknown_keys(
    table: &DeTable<'_>,
    shape: &Shape,
    hint: fn(&str) -> Option<&'static str>,
) -> Vec<Unknown> {
    let mut found = Vec::new();
    let leaves = shape.leaves();
    walk(table, shape, "", &mut |path, name, span, known| {
        let key = if path.is_empty() {
            name.to_owned()
        } else {
            format!("{path}.{name}")
        };
        let message = match hint(&key) {
            Some(hint) => hint.to_owned(),
            None => describe(name, path, known, &leaves),
        };
        found.push(Unknown { span, key, message });
    });
    found.sort_by_key(|unknown| unknown.span.start);
    found
}

type Report<'a> = dyn FnMut(&str, &str, Range<usize>, &BTreeMap<String, Shape>) + 'a;

fn walk(table: &DeTable<'_>, shape: &Shape, path: &str, report: &mut Report<'_>) {
    let Shape::Table { known, rest } = shape else {
        return;
    };
    for (name, value) in table {
        let name_text: &str = name.get_ref();
        match known.get(name_text).or(rest.as_deref()) {
            None => report(path, name_text, name.span(), known),
            Some(inner) => {
                if let DeValue::Table(table) = value.get_ref() {
                    let path = if path.is_empty() {
                        name_text.to_owned()
                    } else {
                        format!("{path}.{name_text}")
                    };
                    walk(table, inner, &path, report);
                }
            }
        }
    }
}

fn describe(name: &str, path: &str, known: &BTreeMap<String, Shape>, leaves: &[String]) -> String {
    let elsewhere = leaves.iter().find(|leaf| {
        let (table, last) = leaf.rsplit_once('.').unwrap_or(("", leaf));
        last == name && table != path
    });
    if let Some(leaf) = elsewhere {
        return match leaf.rsplit_once('.') {
            Some((table, _)) => format!("unknown key here; `{name}` belongs in [{table}]"),
            None => format!(
                "unknown key in [{path}]; `{name}` belongs at the top of the file, before the first [table]"
            ),
        };
    }
    if let Some(nearest) = nearest(name, known.keys().map(String::as_str)) {
        return format!("unknown key; did you mean `{nearest}`?");
    }
    let words: Vec<String> = known.keys().map(|key| format!("`{key}`")).collect();
    let place = if path.is_empty() {
        String::new()
    } else {
        format!(" in [{path}]")
    };
    format!("unknown key; known{place}: {}", words.join(", "))
}

/// The nearest of some words, if one is near enough to be meant.
pub fn nearest<'a>(found: &str, words: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let found = found.replace('-', "_").to_lowercase();
    let near = (found.chars().count() / 3).clamp(1, 3);
    words
        .map(|word| {
            (
                strsim::damerau_levenshtein(&found, &word.to_lowercase()),
                word,
            )
        })
        .filter(|(distance, _)| *distance <= near)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, word)| word)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tree() -> Shape {
        Shape::of(&json!({
            "$defs": { "Inner": { "type": "object", "properties": { "memory": { "type": "string" } }, "additionalProperties": false } },
            "type": "object",
            "properties": {
                "cron": { "type": "string" },
                "limits": { "$ref": "#/$defs/Inner" },
                "params": { "type": "object", "additionalProperties": true },
                "either": { "anyOf": [{ "type": "string" }, { "type": "object", "properties": { "max": {} }, "additionalProperties": false }] }
            },
            "additionalProperties": false
        }))
    }

    fn messages(text: &str) -> Vec<String> {
        let table = DeTable::parse(text).expect("toml");
        unknown_keys(table.get_ref(), &tree(), |_| None)
            .into_iter()
            .map(|u| format!("{}: {}", u.key, u.message))
            .collect()
    }

    #[test]
    fn c101_every_unknown_key_is_named_with_the_nearest_or_its_place() {
        let found = messages(
            "corn = 1\n[limits]\nmemroy = 1\ncron = 2\n[params]\nfree = 1\n[either]\nmin = 1\n",
        );
        assert_eq!(
            found,
            [
                "corn: unknown key; did you mean `cron`?",
                "limits.memroy: unknown key; did you mean `memory`?",
                "limits.cron: unknown key in [limits]; `cron` belongs at the top of the file, before the first [table]",
                "either.min: unknown key; known in [either]: `max`",
            ]
        );
    }

    #[test]
    fn leaves_are_the_keys_that_hold_values() {
        assert_eq!(
            tree().leaves(),
            ["cron", "either.max", "limits.memory", "params"]
        );
    }

    #[test]
    fn a_word_far_from_all_has_no_nearest() {
        assert_eq!(
            nearest("timezon", ["timezone", "timeout"].into_iter()),
            Some("timezone")
        );
        assert_eq!(nearest("x", ["timezone"].into_iter()), None);
    }
}
