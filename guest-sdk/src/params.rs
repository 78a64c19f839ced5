//! Parameters: from the job file's JSON to the job's own type.

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::Failure;

/// The parameters of a job that has none. Any key is refused.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoParams {}

/// Reads the parameters. A value that does not fit cannot fit the next time either, so the
/// failure is fatal; its message names the key, what was found and what is accepted.
pub(crate) fn parse<P: DeserializeOwned>(json: &str) -> Result<P, Failure> {
    let json = if json.trim().is_empty() { "{}" } else { json };
    let mut reader = serde_json::Deserializer::from_str(json);
    serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        let reason = without_position(&error.into_inner().to_string());
        // A missing or unknown key is named by the reason itself; its path is the enclosing object.
        if path == "." {
            Failure::fatal(format!("parameters: {reason}"))
        } else {
            Failure::fatal(format!("parameter `{path}`: {reason}"))
        }
    })
}

/// The parameters were TOML when a person wrote them: the line and column of their JSON form
/// would send that person to the wrong place.
fn without_position(message: &str) -> String {
    match message.rfind(" at line ") {
        Some(at) => message[..at].to_owned(),
        None => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Params {
        source: String,
        #[serde(default)]
        page: Page,
    }

    #[derive(Debug, Default, Deserialize)]
    struct Page {
        size: u32,
    }

    fn refusal(json: &str) -> String {
        match parse::<Params>(json) {
            Err(Failure::Fatal(message)) => message,
            other => panic!("expected a fatal failure, found {other:?}"),
        }
    }

    #[test]
    fn a_fitting_value_is_read() {
        let params: Params =
            parse(r#"{"source":"s","page":{"size":7}}"#).expect("fitting parameters");
        assert_eq!((params.source.as_str(), params.page.size), ("s", 7));
    }

    #[test]
    fn a_wrong_type_names_the_path_and_what_is_accepted() {
        assert_eq!(
            refusal(r#"{"source":"s","page":{"size":"big"}}"#),
            "parameter `page.size`: invalid type: string \"big\", expected u32"
        );
    }

    #[test]
    fn a_missing_key_is_named() {
        assert_eq!(refusal("{}"), "parameters: missing field `source`");
    }

    #[test]
    fn an_unknown_key_is_named_with_the_known_ones() {
        assert_eq!(
            refusal(r#"{"source":"s","pge":1}"#),
            "parameter `pge`: unknown field `pge`, expected `source` or `page`"
        );
    }

    #[test]
    fn empty_text_is_an_empty_object() {
        assert!(parse::<NoParams>("").is_ok());
    }
}
