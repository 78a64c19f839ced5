//! Which store the pods meet in, as its URL says.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The file of the store that is used where none is named.
pub const DEFAULT_STORE_FILE: &str = "wasmcron.db";

/// What may stand where a store is named.
const ACCEPTED: &str = "accepted are sqlite://FILE (sqlite:///FILE from the root), redis://HOST:PORT and rediss://HOST:PORT, redis+sentinel://HOST:PORT,…/NAME and redis+cluster://HOST:PORT,…";

/// The URL of a store. Shown with its password masked, everywhere.
#[derive(Clone, PartialEq, Eq)]
pub enum StoreUrl {
    /// A file of this machine: `sqlite://FILE`.
    Sqlite(PathBuf),
    /// A server: `redis://` or `rediss://`.
    Redis(RedisUrl),
}

/// The URL of a Redis or Valkey server, with its password.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisUrl(String);

impl RedisUrl {
    /// The URL with its password, for the client alone.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl StoreUrl {
    /// The same store with a relative path taken from this folder.
    #[must_use]
    pub fn below(self, base: &Path) -> StoreUrl {
        match self {
            StoreUrl::Sqlite(path) => StoreUrl::Sqlite(base.join(path)),
            server @ StoreUrl::Redis(_) => server,
        }
    }
}

impl Default for StoreUrl {
    fn default() -> Self {
        StoreUrl::Sqlite(DEFAULT_STORE_FILE.into())
    }
}

impl FromStr for StoreUrl {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once("://") {
            Some((
                "redis" | "rediss" | "redis+sentinel" | "rediss+sentinel" | "redis+cluster"
                | "rediss+cluster",
                _,
            )) => Ok(StoreUrl::Redis(RedisUrl(text.to_owned()))),
            Some(("sqlite", path)) => file(path),
            Some((scheme, _)) => {
                let found: String = scheme.chars().take(16).collect();
                Err(format!(
                    "found {found:?}, which is no kind of store; {ACCEPTED}"
                ))
            }
            None => Err(format!("found {}; {ACCEPTED}", without_scheme(text))),
        }
    }
}

/// What a text without `://` looks like. It may be a password, so only what surely is none is repeated.
fn without_scheme(text: &str) -> String {
    let is_host = |host: &str| {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
        !host.is_empty() && host.chars().all(fits)
    };
    let path = text.strip_prefix("sqlite:").unwrap_or(text);
    let ends = [".db", ".sqlite", ".sqlite3"]
        .iter()
        .any(|end| path.ends_with(end));
    if ends && !path.contains(['@', ':', ' ']) {
        return format!(
            "{text:?}, which does not say what kind of store it is; meant is perhaps sqlite://{path}"
        );
    }
    match text.split_once(':') {
        Some(("redis" | "rediss" | "sqlite", _)) => {
            "a kind of store without // behind its colon".to_owned()
        }
        Some((host, port)) if is_host(host) && port.parse::<u16>().is_ok() => {
            "a host and a port without the kind of store before it; meant is perhaps redis://HOST:PORT".to_owned()
        }
        _ if text.is_empty() => "nothing".to_owned(),
        _ => format!("{} characters without ://", text.chars().count()),
    }
}

fn file(path: &str) -> Result<StoreUrl, String> {
    let refuse = |why: &str| {
        Err(format!(
            "found \"sqlite://{path}\", {why}; accepted is the path of a file, such as sqlite://wasmcron.db or sqlite:///var/lib/wasmcron/wasmcron.db"
        ))
    };
    match path {
        "" => refuse("which names no file"),
        ":memory:" => refuse(
            "but a store in memory would be lost with its pod, and no other process could see it",
        ),
        _ if path.ends_with('/') => refuse("which is a folder"),
        _ if path.starts_with('~') => refuse("but ~ is not expanded"),
        _ if path.contains(['?', '#']) => refuse("but parameters are not taken"),
        _ => Ok(StoreUrl::Sqlite(path.into())),
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreUrl::Sqlite(path) => write!(f, "sqlite://{}", path.display()),
            StoreUrl::Redis(url) => masked(&url.0, f),
        }
    }
}

fn masked(url: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Some((scheme, rest)) = url.split_once("://") else {
        return f.write_str("***");
    };
    let Some((credentials, host)) = rest.rsplit_once('@') else {
        return f.write_str(url);
    };
    let user = credentials.split(':').next().unwrap_or("");
    write!(f, "{scheme}://{user}:***@{host}")
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        masked(&self.0, f)
    }
}

impl Serialize for StoreUrl {
    /// Masked, since a serialised setting is shown to people.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for StoreUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for StoreUrl {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "StoreUrl".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": "^(sqlite|rediss?(\\+(sentinel|cluster))?)://.",
            "examples": ["sqlite://wasmcron.db", "sqlite:///var/lib/wasmcron/wasmcron.db", "redis://127.0.0.1:6379"],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_masked_wherever_a_url_is_shown() {
        let url: StoreUrl = "rediss://ops:s3cr@t@host:6380/2".parse().expect("url");
        assert_eq!(url.to_string(), "rediss://ops:***@host:6380/2");
        let StoreUrl::Redis(server) = &url else {
            panic!("{url:?}")
        };
        assert!(!format!("{url:?}{server:?}").contains("s3cr"));
        for bad in ["http://x", "s3cret", "//s3cret@host"] {
            let refused = bad.parse::<StoreUrl>().expect_err(bad);
            assert!(!refused.contains("s3cr") && refused.contains("sqlite://FILE"));
        }
    }

    #[test]
    fn a_file_is_relative_to_a_base_or_absolute() {
        let parse = |text: &str| text.parse::<StoreUrl>().expect("url");
        let shown = |text: &str| parse(text).below(Path::new("/etc/w")).to_string();
        assert_eq!(shown("sqlite://a/b@c.db"), "sqlite:///etc/w/a/b@c.db");
        assert_eq!(shown("sqlite:///a/b.db"), "sqlite:///a/b.db");
        assert_eq!(shown("redis://h:1"), "redis://h:1");
        assert_eq!(StoreUrl::default(), parse("sqlite://wasmcron.db"));
    }

    #[test]
    fn what_is_no_file_is_refused_with_what_was_found() {
        for (bad, why) in [
            ("sqlite://", "names no file"),
            ("sqlite://:memory:", "in memory"),
            ("sqlite://data/", "a folder"),
            ("sqlite://~/w.db", "not expanded"),
            ("sqlite://w.db?mode=ro", "parameters"),
        ] {
            let refused = bad.parse::<StoreUrl>().expect_err(bad);
            assert!(
                refused.contains(bad) && refused.contains(why) && refused.contains("wasmcron.db"),
                "{refused}"
            );
        }
        for (bad, why) in [
            (
                "sqlite:w.db",
                "found \"sqlite:w.db\", which does not say what kind of store it is; meant is perhaps sqlite://w.db",
            ),
            ("/var/lib/w.db", "meant is perhaps sqlite:///var/lib/w.db"),
            ("redis:localhost", "a kind of store without //"),
            ("localhost:6379", "meant is perhaps redis://HOST:PORT"),
            ("", "found nothing"),
            ("s3cr:t@h.db", "found 11 characters without ://"),
            ("mysql://h", "found \"mysql\", which is no kind of store"),
        ] {
            let refused = bad.parse::<StoreUrl>().expect_err(bad);
            assert!(
                refused.contains(why) && refused.contains(ACCEPTED),
                "{refused}"
            );
            assert!(!refused.contains("s3cr"), "{refused}");
        }
    }
}
