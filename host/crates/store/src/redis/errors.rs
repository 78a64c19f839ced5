//! Redis' errors, grouped by what the caller can do.

use redis::RedisError;

use super::connect::Connection;
use super::keys::Keys;
use crate::error::StoreError;

/// Longest error text that is passed on, in characters.
const MESSAGE_MAX: usize = 300;

/// Codes that say "not now".
const NOT_NOW: &[&str] = &[
    "LOADING",
    "READONLY",
    "MASTERDOWN",
    "BUSY",
    "CLUSTERDOWN",
    "TRYAGAIN",
    "MOVED",
    "ASK",
    "NOREPLICAS",
    "MISCONF",
    "NOTBUSY",
    "NOSCRIPT",
    "UNBLOCKED",
];
/// Codes that a person has to act on.
const NEVER: &[&str] = &[
    "NOAUTH",
    "WRONGPASS",
    "NOPERM",
    "WRONGTYPE",
    "CROSSSLOT",
    "DENIED",
];

fn cut(text: &str) -> String {
    text.chars().take(MESSAGE_MAX).collect()
}

/// An answer that should not exist.
pub(super) fn broken(verb: &'static str, message: impl Into<String>) -> StoreError {
    StoreError::Corrupt {
        key: format!("the answer to {verb}"),
        what: "one of its answers",
        message: message.into(),
    }
}

/// No answer within the time.
pub(super) fn timed_out(verb: &'static str) -> StoreError {
    StoreError::Unavailable {
        verb,
        message: "timed out".to_owned(),
    }
}

/// What a person has to do about a failed handshake, if that is why the connection failed: a certificate
/// that nobody vouches for does not become a better one.
fn tls_refusal(message: &str) -> Option<String> {
    let hint = if message.contains("UnknownIssuer") {
        "; the authority that signed it is none of the trusted ones, which store_ca names if not the system"
    } else if message.contains("CertificateRequired") {
        "; the server asks for a client certificate, which pods have none of: `tls-auth-clients no` or `optional` accepts them"
    } else if message.contains("InvalidContentType") {
        "; nobody speaks TLS there: redis:// is without it"
    } else if message.contains("certificate") || message.contains("failed to read PEM") {
        ""
    } else {
        return None;
    };
    Some(format!("{message}{hint}"))
}

/// No connection within the time, to this URL.
pub(super) fn no_connection(url: &str) -> StoreError {
    let message = if url.starts_with("rediss") {
        // It waits for the end of a line that never comes.
        "timed out; a server that speaks no TLS there is silent as well: redis:// is without it"
    } else {
        "timed out"
    };
    StoreError::Unavailable {
        verb: "connect",
        message: message.to_owned(),
    }
}

/// Maps an error of the client or the server. Neither puts secrets into its text.
pub(super) fn map(verb: &'static str, error: &RedisError) -> StoreError {
    use redis::ErrorKind as Kind;
    let message = cut(&error.to_string());
    let code = error.code().unwrap_or("");
    // Redis 6 wraps what a script's command was told into a message of its own.
    let says = |word: &str| code == word || message.contains(word);
    if says("OOM") {
        return StoreError::Full { verb, message };
    }
    if error.is_io_error()
        && let Some(message) = tls_refusal(&message)
    {
        return StoreError::Refused { verb, message };
    }
    // What several commands were told comes as one text, with each code in quotes.
    let not_now = |word: &&str| code == *word || message.contains(&format!("\"{word}\":"));
    if NOT_NOW.iter().any(not_now) || error.is_io_error() || error.is_connection_dropped() {
        return StoreError::Unavailable { verb, message };
    }
    if NEVER.iter().any(|word| says(word)) {
        return StoreError::Refused { verb, message };
    }
    if says("READONLY") || says("MASTERDOWN") || says("NOREPLICAS") {
        return StoreError::Unavailable { verb, message };
    }
    match error.kind() {
        Kind::AuthenticationFailed | Kind::InvalidClientConfig | Kind::Client => {
            StoreError::Refused { verb, message }
        }
        Kind::UnexpectedReturnType => broken(verb, message),
        Kind::Parse | Kind::Io => StoreError::Unavailable { verb, message },
        _ => StoreError::Refused { verb, message },
    }
}

/// Adds to a complaint about a key's type which key it is; the server does not say.
pub(super) async fn name_wrong_key(
    error: StoreError,
    connection: &Connection,
    keys: &Keys,
    used: &[String],
) -> StoreError {
    let StoreError::Refused { verb, message } = error else {
        return error;
    };
    if !message.contains("WRONGTYPE") && !message.contains("wrong kind") {
        return StoreError::Refused { verb, message };
    }
    let mut pipe = redis::pipe();
    let ours: Vec<(&String, &str)> = used
        .iter()
        .filter_map(|key| Some((key, keys.kind_of(key)?)))
        .take(1_000)
        .collect();
    for (key, _) in &ours {
        pipe.cmd("TYPE").arg(key);
    }
    let found = connection.send_all(&pipe).await.unwrap_or_default();
    for ((key, wanted), found) in ours.iter().zip(found) {
        let found: String = redis::from_redis_value(found).unwrap_or_default();
        if found != *wanted && found != "none" && !found.is_empty() {
            return StoreError::Refused {
                verb,
                message: format!("{key} is a {found}, not a {wanted} ({message})"),
            };
        }
    }
    StoreError::Refused { verb, message }
}
