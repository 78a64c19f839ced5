//! A plugin's parameter schema and the check of a job's parameters against it.

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;
use wasmcron_core::json::kind;

use crate::text;

/// Faults reported at once; more would hide the first.
const FAULTS_MAX: usize = 10;
/// Largest schema text, in bytes.
const SCHEMA_MAX: usize = 64 << 10;

/// A compiled schema, or none: any object is accepted.
#[derive(Debug)]
pub(crate) struct ParameterSchema {
    text: Option<Value>,
    validator: Option<Validator>,
}

impl ParameterSchema {
    /// Reads and compiles a schema; empty text stands for none.
    ///
    /// # Errors
    ///
    /// What is wrong with the schema, after "its parameter schema …".
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Ok(Self {
                text: None,
                validator: None,
            });
        }
        if text.len() > SCHEMA_MAX {
            return Err(format!(
                "has {} bytes; at most {SCHEMA_MAX} are accepted",
                text.len()
            ));
        }
        let schema: Value =
            serde_json::from_str(text).map_err(|error| format!("is not JSON: {error}"))?;
        if !schema.is_object() && !schema.is_boolean() {
            return Err(format!("is {}, not a JSON Schema object", kind(&schema)));
        }
        // The schema comes from a plugin: its patterns must run in linear time.
        let validator = jsonschema::options()
            .with_pattern_options(PatternOptions::regex())
            .build(&schema)
            .map_err(|error| {
                format!(
                    "is not a JSON Schema: {}",
                    text::message(&error.to_string())
                )
            })?;
        Ok(Self {
            text: Some(schema),
            validator: Some(validator),
        })
    }

    /// The schema as JSON.
    pub(crate) fn value(&self) -> Option<&Value> {
        self.text.as_ref()
    }

    /// Checks parameters; one sentence for each fault.
    pub(crate) fn check(&self, parameters: &Value) -> Result<(), Vec<String>> {
        if !parameters.is_object() {
            return Err(vec![format!(
                "parameters: found {}, accepted is an object",
                kind(parameters)
            )]);
        }
        let Some(validator) = &self.validator else {
            return Ok(());
        };
        let mut faults: Vec<String> = validator
            .iter_errors(parameters)
            .take(FAULTS_MAX + 1)
            .map(|error| {
                let pointer = error.instance_path().to_string();
                let pointer = if pointer.is_empty() { "/" } else { &pointer };
                text::one_line(&format!("`{pointer}`: {error}"), 500).0
            })
            .collect();
        if faults.is_empty() {
            return Ok(());
        }
        if faults.len() > FAULTS_MAX {
            faults.truncate(FAULTS_MAX);
            faults.push("and more".to_owned());
        }
        Err(faults)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema(value: &Value) -> ParameterSchema {
        ParameterSchema::parse(&value.to_string()).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn faults_name_pointer_found_and_accepted() {
        let schema = schema(&json!({
            "type": "object",
            "properties": { "url": {}, "pages": { "type": "object", "properties": { "size": { "type": "integer", "minimum": 1 } } } },
            "required": ["url"],
            "additionalProperties": false
        }));
        assert!(
            schema
                .check(&json!({ "url": "x", "pages": { "size": 3 } }))
                .is_ok()
        );
        let faults = schema
            .check(&json!({ "pages": { "size": "many" }, "colour": 1 }))
            .err()
            .unwrap_or_default();
        let all = faults.join("\n");
        assert!(
            all.contains("`/pages/size`") && all.contains("\"many\"") && all.contains("integer"),
            "{all}"
        );
        assert!(all.contains("colour"), "{all}");
        assert!(all.contains("\"url\""), "{all}");
    }

    #[test]
    fn no_schema_accepts_any_object_and_nothing_else() {
        let none = ParameterSchema::parse(" ").unwrap_or_else(|error| panic!("{error}"));
        assert!(none.check(&json!({ "x": 1 })).is_ok());
        let faults = none.check(&json!([1])).err().unwrap_or_default().join("");
        assert!(faults.contains("an array"), "{faults}");
    }

    #[test]
    fn what_is_no_schema_is_refused() {
        for (text, word) in [
            ("{", "not JSON"),
            ("[]", "an array"),
            (r#"{"type": "integr"}"#, "integr"),
            (r#"{"$ref": "https://example.com/x.json"}"#, "example.com"),
        ] {
            let error = ParameterSchema::parse(text).err().unwrap_or_default();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
