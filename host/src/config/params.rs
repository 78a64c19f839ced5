//! Parameters of a job: from TOML to JSON text, with references to the environment kept open.
//!
//! `token = { env = "API_TOKEN" }` in a job file stands in the stored definition as
//! `{"env": "API_TOKEN"}`. The value itself never leaves the pod that executes the run: that pod
//! puts it in with [`resolve`] just before the guest starts.

use std::collections::BTreeSet;

use serde_json::{Map, Value};
use toml::de::{DeTable, DeValue};
use wasmcron_core::job::Job;
use wasmcron_core::json::kind;

/// The largest parameters of a job as they travel inside a task, in bytes.
pub const PARAMS_MAX_BYTES: usize = 48 << 10;

/// What is wrong with one parameter: its dotted key and the reason.
pub type ParamFault = (String, String);

/// A `[params]` table as JSON text. Keys are sorted, so that pods with the same file agree.
///
/// # Errors
/// Values that JSON cannot hold, references with a bad name, and a text over the limit.
pub fn to_json(table: &DeTable<'_>) -> Result<String, Vec<ParamFault>> {
    let mut faults = Vec::new();
    let value = table_to_json(table, "params", &mut faults);
    let text = value.to_string();
    // Inside a task the text is a JSON string itself, with its quotes escaped.
    let carried = Value::String(text.clone()).to_string().len();
    if carried > PARAMS_MAX_BYTES {
        faults.push((
            "params".into(),
            format!("{carried} bytes as JSON, at most {PARAMS_MAX_BYTES} are accepted"),
        ));
    }
    if faults.is_empty() {
        Ok(text)
    } else {
        Err(faults)
    }
}

fn table_to_json(table: &DeTable<'_>, path: &str, faults: &mut Vec<ParamFault>) -> Value {
    let mut entries: Vec<(&str, &DeValue<'_>)> = table
        .iter()
        .map(|(k, v)| (&**k.get_ref(), v.get_ref()))
        .collect();
    entries.sort_unstable_by_key(|(key, _)| *key);
    let object: Map<String, Value> = entries
        .into_iter()
        .map(|(key, value)| {
            (
                key.to_owned(),
                to_value(value, &format!("{path}.{key}"), faults),
            )
        })
        .collect();
    let value = Value::Object(object);
    if let Some(name) = reference(&value)
        && let Err(reason) = check_env_name(name)
    {
        faults.push((format!("{path}.env"), reason));
    }
    value
}

fn to_value(value: &DeValue<'_>, path: &str, faults: &mut Vec<ParamFault>) -> Value {
    let mut refuse = |reason: String| {
        faults.push((path.to_owned(), reason));
        Value::Null
    };
    match value {
        DeValue::String(text) => Value::String(text.to_string()),
        DeValue::Boolean(value) => Value::Bool(*value),
        DeValue::Datetime(value) => Value::String(value.to_string()),
        DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => number.into(),
            Err(_) => refuse(format!(
                "the number {} does not fit 64 bits; write it as text",
                number.as_str()
            )),
        },
        DeValue::Float(number) => {
            match number
                .as_str()
                .parse()
                .ok()
                .and_then(serde_json::Number::from_f64)
            {
                Some(number) => Value::Number(number),
                None => refuse(format!("JSON has no number {}", number.as_str())),
            }
        }
        DeValue::Array(array) => {
            let items = array.iter().enumerate();
            Value::Array(
                items
                    .map(|(n, item)| to_value(item.get_ref(), &format!("{path}.{n}"), faults))
                    .collect(),
            )
        }
        DeValue::Table(table) => table_to_json(table, path, faults),
    }
}

/// The variable that a value refers to: an object of nothing but `env` with a text.
fn reference(value: &Value) -> Option<&str> {
    let object = value.as_object()?;
    match object.get("env") {
        Some(Value::String(name)) if object.len() == 1 => Some(name),
        _ => None,
    }
}

/// Whether a text can name an environment variable.
///
/// # Errors
/// The reason, with what is accepted.
pub fn check_env_name(name: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if !name.is_empty()
        && name.len() <= 128
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(plain)
    {
        Ok(())
    } else {
        let found: String = name.chars().take(40).collect();
        Err(format!(
            "{found:?} is not a variable's name; accepted are 1 to 128 letters, digits and _, not beginning with a digit"
        ))
    }
}

/// The environment of this pod as far as its own file of a job names it, in `[params]` or in
/// `[allow] env`. A task's parameters come from the store or from a person's hand: a reference that
/// stands only there must not read any variable of the pod into a guest.
pub fn own_environment(job: &Job) -> impl Fn(&str) -> Option<String> + use<> {
    let mut named = references(&job.definition.params);
    named.extend(job.allow.env.iter().cloned());
    move |name| named.contains(name).then(|| std::env::var(name).ok())?
}

/// The environment variables that parameters refer to.
fn references(json_text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    if let Ok(value) = serde_json::from_str::<Value>(json_text) {
        collect(&value, &mut found);
    }
    found
}

fn collect(value: &Value, found: &mut BTreeSet<String>) {
    if let Some(name) = reference(value) {
        found.insert(name.to_owned());
        return;
    }
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect(item, found)),
        Value::Object(object) => object.values().for_each(|item| collect(item, found)),
        _ => {}
    }
}

/// Puts the values of environment variables in the place of `{"env": "NAME"}`.
///
/// # Errors
/// When the text is not JSON, or naming every reference that `lookup` has no value for; never a value.
pub fn resolve(json_text: &str, lookup: impl Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut value: Value = serde_json::from_str(json_text)
        .map_err(|error| format!("the parameters are not JSON: {error}"))?;
    let mut missing = Vec::new();
    replace(&mut value, "", &lookup, &mut missing);
    if missing.is_empty() {
        Ok(value.to_string())
    } else {
        Err(missing.join("; "))
    }
}

fn replace(
    value: &mut Value,
    path: &str,
    lookup: &impl Fn(&str) -> Option<String>,
    missing: &mut Vec<String>,
) {
    if let Some(name) = reference(value) {
        match lookup(name) {
            Some(text) => *value = Value::String(text),
            None => missing.push(format!(
                "parameter {} needs the environment variable {name:?}, which is not set on this pod or which its job file does not name",
                if path.is_empty() { "/" } else { path }
            )),
        }
        return;
    }
    match value {
        Value::Array(items) => {
            for (n, item) in items.iter_mut().enumerate() {
                replace(item, &format!("{path}/{n}"), lookup, missing);
            }
        }
        Value::Object(object) => {
            for (key, item) in object.iter_mut() {
                replace(item, &format!("{path}/{key}"), lookup, missing);
            }
        }
        _ => {}
    }
}

/// The parameters of a run by hand: each key given takes the place of the job's own.
///
/// # Errors
/// When `given` is not a JSON object, or the result exceeds [`PARAMS_MAX_BYTES`].
pub fn overlay(own: &str, given: &str) -> Result<String, String> {
    let given: Value = serde_json::from_str(given)
        .map_err(|error| format!("the parameters are not JSON: {error}"))?;
    let Value::Object(given) = given else {
        return Err(format!(
            "the parameters are {}, accepted is a JSON object such as {{\"key\": 1}}",
            kind(&given)
        ));
    };
    let mut merged = match serde_json::from_str(own) {
        Ok(Value::Object(own)) => own,
        _ => Map::new(),
    };
    merged.extend(given);
    let text = Value::Object(merged).to_string();
    let carried = Value::String(text.clone()).to_string().len();
    if carried > PARAMS_MAX_BYTES {
        return Err(format!(
            "the parameters have {carried} bytes, at most {PARAMS_MAX_BYTES} are accepted"
        ));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Result<String, Vec<ParamFault>> {
        to_json(DeTable::parse(text).expect("toml").get_ref())
    }

    #[test]
    fn toml_becomes_sorted_json_with_references_kept() {
        let text = json(
            "z = 1\na = { env = \"TOKEN\" }\nb = [1.5, true]\nd = 2026-01-01T00:00:00Z\nx = 0xff\n",
        )
        .expect("json");
        assert_eq!(
            text,
            r#"{"a":{"env":"TOKEN"},"b":[1.5,true],"d":"2026-01-01T00:00:00Z","x":255,"z":1}"#
        );
        assert_eq!(references(&text), BTreeSet::from(["TOKEN".to_owned()]));
    }

    #[test]
    fn what_json_cannot_hold_is_refused_by_key() {
        let faults = json("a = nan\nb = { env = \"NO-DASH\" }\nc = [99999999999999999999]\n")
            .expect_err("faults");
        let keys: Vec<&str> = faults.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(keys, ["params.a", "params.b.env", "params.c.0"]);
        let large = format!("a = \"{}\"", "x".repeat(PARAMS_MAX_BYTES));
        assert!(json(&large).is_err());
    }

    #[test]
    fn references_are_resolved_or_named() {
        let text =
            r#"{"a":{"env":"A"},"list":[{"env":"B"}],"plain":{"env":1},"both":{"env":"C","x":1}}"#;
        let known = |name: &str| (name != "B").then(|| format!("<{name}>"));
        let error = resolve(text, known).expect_err("missing");
        assert!(
            error.contains("/list/0") && error.contains("\"B\"") && !error.contains('<'),
            "{error}"
        );
        let resolved = resolve(text, |name| Some(name.to_lowercase())).expect("resolved");
        assert_eq!(
            resolved,
            r#"{"a":"a","list":["b"],"plain":{"env":1},"both":{"env":"C","x":1}}"#
        );
    }

    #[test]
    fn only_variables_that_the_own_job_file_names_are_read() {
        use crate::config::document::Source;
        use crate::config::{job_file, settings::LimitSettings};
        let text = "name = \"a\"\n[params]\nx = { env = \"PATH\" }\n";
        let source = Source::from_text(std::path::Path::new("a.toml"), text);
        let file = job_file::from_source(&source, &LimitSettings::default());
        let own = own_environment(&file.result.expect("a job"));
        assert!(own("PATH").is_some());
        let foreign = r#"{"x":{"env":"CARGO_MANIFEST_DIR"}}"#;
        assert!(std::env::var("CARGO_MANIFEST_DIR").is_ok());
        assert!(resolve(foreign, own).is_err());
    }

    #[test]
    fn given_parameters_take_the_place_of_the_jobs_own() {
        assert_eq!(
            overlay(r#"{"a":1,"b":2}"#, r#"{"b":3,"c":4}"#).as_deref(),
            Ok(r#"{"a":1,"b":3,"c":4}"#)
        );
        for bad in ["[1]", "1", "{", "\"x\""] {
            assert!(overlay("{}", bad).is_err(), "{bad}");
        }
    }
}
