//! Names and numbers that identify things across pods.
//!
//! `|`, `@`, `#`, `{` and `}` separate parts of keys and entries, so no name contains them.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};
use ulid::Ulid;

use crate::time::Timestamp;

/// A name that was refused: what it was to name, what was found and what is accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{found:?} is not {what}; accepted: {accepted}")]
pub struct IdError {
    what: &'static str,
    found: String,
    accepted: &'static str,
}

/// A string newtype with one rule for its text; cheap to clone.
macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $what:literal, $accepted:literal, $valid:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $type(Arc<str>);

        impl $type {
            /// Checks and takes the text.
            ///
            /// # Errors
            /// When the text breaks the rule of this name; the message says which is accepted.
            pub fn new(text: &str) -> Result<Self, IdError> {
                let valid: fn(&str) -> bool = $valid;
                if valid(text) {
                    Ok(Self(text.into()))
                } else {
                    let found = text.chars().take(80).collect();
                    Err(IdError { what: $what, found, accepted: $accepted })
                }
            }

            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }

        impl FromStr for $type {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                Self::new(text)
            }
        }

        impl AsRef<str> for $type {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl std::borrow::Borrow<str> for $type {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                Self::new(&text).map_err(serde::de::Error::custom)
            }
        }
    };
}

fn is_lower_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    let starts = bytes
        .first()
        .is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let rest =
        |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'_' | b'-');
    starts && bytes.len() <= 63 && bytes.iter().all(rest)
}

fn is_address(text: &str) -> bool {
    let allowed = |b: u8| {
        b.is_ascii_graphic() && !matches!(b, b'|' | b'@' | b'#' | b'{' | b'}' | b'"' | b'\\')
    };
    !text.is_empty() && text.len() <= 255 && text.bytes().all(allowed)
}

name!(
    /// Name of a job.
    JobName, "a job name", "1 to 63 of a-z 0-9 . _ -, beginning with a letter or digit", is_lower_name
);
name!(
    /// Name of a plugin, that of its file without `.wasm`.
    PluginName, "a plugin name", "1 to 63 of a-z 0-9 . _ -, beginning with a letter or digit", is_lower_name
);
name!(
    /// Address of a pod, such as `10.0.0.7:8080` or `pod-a`. Two live pods never share one.
    PodAddress, "a pod address", "1 to 255 printable ASCII characters without | @ # { } \" \\", is_address
);
name!(
    /// One start of a pod: a restarted pod must never be taken for its dead self. A ULID.
    SessionId, "a session id", "a ULID", |text| Ulid::from_string(text).is_ok()
);
name!(
    /// Random value of one take of a task, so that a repeated claim is known as a repeat.
    Token, "a token", "1 to 64 of a-z A-Z 0-9", |text| {
        !text.is_empty() && text.len() <= 64 && text.bytes().all(|b| b.is_ascii_alphanumeric())
    }
);
name!(
    /// Hash of a job definition as pods report it: 64 hexadecimal digits.
    DefinitionHash, "a definition hash", "64 hexadecimal digits", is_hex64
);
name!(
    /// SHA-256 of a plugin's bytes: 64 lower-case hexadecimal digits.
    Digest, "a digest", "64 lower-case hexadecimal digits", is_hex64
);

fn is_hex64(text: &str) -> bool {
    text.len() == 64
        && text
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

fn sha256_hex(bytes: &[u8]) -> Arc<str> {
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect::<String>()
        .into()
}

impl Digest {
    /// The digest of some bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Digest {
        Digest(sha256_hex(bytes))
    }

    /// The first twelve digits, for people.
    #[must_use]
    pub fn short(&self) -> &str {
        self.0.get(..12).unwrap_or(&self.0)
    }
}

impl DefinitionHash {
    /// The hash of a definition's canonical bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> DefinitionHash {
        DefinitionHash(sha256_hex(bytes))
    }
}

/// A counter that only grows; written as decimal text in JSON, since not every reader keeps 64 bits.
macro_rules! number {
    ($(#[$doc:meta])* $type:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $type(pub u64);

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $type {
            type Err = std::num::ParseIntError;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                text.parse().map(Self)
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map(Self).map_err(serde::de::Error::custom)
            }
        }
    };
}

number!(
    /// Number of one pod's period of leadership.
    Term
);
number!(
    /// The number every write of an attempt carries. A later attempt's is larger.
    Fence
);
number!(
    /// Number of one delivery of a task into a pod's queue; copies with another number are inert.
    Delivery
);

impl Fence {
    /// As guests see it: 20 digits, so that text order is number order.
    #[must_use]
    pub fn padded(self) -> String {
        format!("{:020}", self.0)
    }
}

/// A pod and the start of it that acts.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PodRef {
    /// Its address.
    pub address: PodAddress,
    /// This start of it.
    pub session: SessionId,
}

impl fmt::Display for PodRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}|{}", self.address, self.session)
    }
}

/// What a run stands for within its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RunKey {
    /// A nominal time of the schedule.
    Nominal(Timestamp),
    /// A manual run.
    Manual(Ulid),
}

/// One firing of a job: `job@2026-11-29T01:00:00Z`, `job@01J…` for a manual run, and
/// `…#2` for a new run that an operator made of an ended one.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(Arc<str>);

impl RunId {
    /// The run of a job's nominal time.
    #[must_use]
    pub fn nominal(job: &JobName, nominal: Timestamp) -> RunId {
        RunId(format!("{job}@{nominal}").into())
    }

    /// A manual run.
    #[must_use]
    pub fn manual(job: &JobName, id: Ulid) -> RunId {
        RunId(format!("{job}@{id}").into())
    }

    /// The `n`-th run made of this one by hand; counts from 2.
    #[must_use]
    pub fn again(&self, n: u32) -> RunId {
        let base = self.0.split('#').next().unwrap_or(&self.0);
        RunId(format!("{base}#{n}").into())
    }

    /// Checks and takes the text.
    ///
    /// # Errors
    /// When it is not `job@time`, `job@ulid` or one of these with `#n`.
    pub fn new(text: &str) -> Result<RunId, IdError> {
        let found = || text.chars().take(160).collect();
        let refuse = || IdError {
            what: "a run id",
            found: found(),
            accepted: "job@time (as 2026-01-31T01:00:00Z) or job@ulid, with #n behind it for a run made again",
        };
        let (job, rest) = text.split_once('@').ok_or_else(refuse)?;
        JobName::new(job).map_err(|_| refuse())?;
        let (key, again) = rest
            .split_once('#')
            .map_or((rest, None), |(key, n)| (key, Some(n)));
        let canonical = match parse_key(key).ok_or_else(refuse)? {
            RunKey::Nominal(at) => at.to_string() == key,
            RunKey::Manual(id) => id.to_string() == key,
        };
        let again_ok =
            again.is_none_or(|n| n.parse::<u32>().is_ok_and(|v| v >= 2 && v.to_string() == n));
        if canonical && again_ok {
            Ok(RunId(text.into()))
        } else {
            Err(refuse())
        }
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The job's name.
    #[must_use]
    pub fn job(&self) -> JobName {
        JobName(self.0.split('@').next().unwrap_or(&self.0).into())
    }

    /// What the run stands for.
    #[must_use]
    pub fn key(&self) -> RunKey {
        let key = self
            .0
            .split('@')
            .nth(1)
            .and_then(|rest| rest.split('#').next())
            .unwrap_or("");
        parse_key(key).unwrap_or(RunKey::Nominal(Timestamp::EPOCH))
    }
}

fn parse_key(key: &str) -> Option<RunKey> {
    if let Ok(id) = Ulid::from_string(key) {
        return Some(RunKey::Manual(id));
    }
    key.parse().ok().map(RunKey::Nominal)
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl FromStr for RunId {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        RunId::new(text)
    }
}

impl Serialize for RunId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for RunId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        RunId::new(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_names_keep_separators_out_of_keys() {
        for good in ["a", "merchant-full-sync", "0.x_y", &"a".repeat(63)] {
            assert!(JobName::new(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "-a",
            "A",
            "a|b",
            "a@b",
            "a#b",
            "{a}",
            "ä",
            &"a".repeat(64),
        ] {
            assert!(JobName::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn addresses_may_be_ip6_but_carry_no_braces() {
        assert!(PodAddress::new("[fd00::1]:8080").is_ok());
        for bad in ["", "a b", "{x}", "a|b", "a\nb"] {
            assert!(PodAddress::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_run_id_tells_its_job_and_key() {
        let job = JobName::new("sync").expect("name");
        let at: Timestamp = "2026-11-29T01:00:00Z".parse().expect("time");
        let run = RunId::nominal(&job, at);
        assert_eq!(run.as_str(), "sync@2026-11-29T01:00:00Z");
        assert_eq!((run.job(), run.key()), (job, RunKey::Nominal(at)));
        let second = run.again(2);
        assert_eq!(second.again(3).as_str(), "sync@2026-11-29T01:00:00Z#3");
        assert_eq!(RunId::new(second.as_str()), Ok(second.clone()));
        assert_eq!(second.key(), RunKey::Nominal(at));
        for bad in [
            "sync",
            "sync@",
            "sync@x",
            "sync@2026-11-29T02:00:00+01:00",
            "sync@2026-11-29T01:00:00Z#1",
        ] {
            assert!(RunId::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn fences_sort_as_text() {
        assert!(Fence(9).padded() < Fence(10).padded());
        assert_eq!(Fence(u64::MAX).padded().len(), 20);
    }
}
