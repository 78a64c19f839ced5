//! Values that must not be written down.

use std::fmt;

use crate::host;

/// A secret. It has no `Display`, and its `Debug` hides the value, so that it cannot reach a log
/// by accident.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// The value itself, for the one place that needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(hidden)")
    }
}

/// Why there is no value. Each carries the secret's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretError {
    /// The job file does not grant this name.
    NotGranted(String),
    /// It is granted, but the executing pod has no value for it.
    Unavailable {
        /// The secret's name.
        name: String,
        /// Why.
        reason: String,
    },
}

impl fmt::Display for SecretError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotGranted(name) => {
                write!(
                    f,
                    "secret `{name}` is not granted: add it to `[allow] secrets`"
                )
            }
            Self::Unavailable { name, reason } => {
                write!(f, "secret `{name}` has no value on this pod: {reason}")
            }
        }
    }
}

impl std::error::Error for SecretError {}

/// The value of a granted secret.
///
/// # Errors
///
/// If the name is not granted, or the executing pod has no value for it.
pub fn get(name: &str) -> Result<Secret, SecretError> {
    host::with(|host| host.secret(name)).map(Secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_hides_the_value() {
        assert_eq!(
            format!("{:?}", Secret("s3cret".to_owned())),
            "Secret(hidden)"
        );
    }
}
