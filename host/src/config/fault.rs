//! What is wrong with a configuration, for the person who wrote it.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;

/// One thing that is wrong: where, under which key, what was found and what is accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// The file; none for an environment variable or an option.
    pub file: Option<PathBuf>,
    /// Line, counted from 1.
    pub line: Option<usize>,
    /// Column in characters, counted from 1.
    pub column: Option<usize>,
    /// The key with its tables, such as `limits.memory`, or the variable's name.
    pub key: Option<String>,
    /// What was found and what is accepted.
    pub message: String,
}

impl Fault {
    /// A fault that no file is to blame for.
    pub fn of_key(key: &str, message: impl Into<String>) -> Self {
        Fault {
            file: None,
            line: None,
            column: None,
            key: Some(key.to_owned()),
            message: message.into(),
        }
    }

    /// A fault of a file as a whole.
    pub fn of_file(file: &Path, message: impl Into<String>) -> Self {
        let file = Some(file.to_owned());
        Fault {
            file,
            line: None,
            column: None,
            key: None,
            message: message.into(),
        }
    }
}

impl fmt::Display for Fault {
    /// `FILE:LINE:COLUMN: KEY: MESSAGE`, which editors and terminals know how to jump to.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{}", file.display())?;
            if let Some(line) = self.line {
                write!(f, ":{line}")?;
                if let Some(column) = self.column {
                    write!(f, ":{column}")?;
                }
            }
            f.write_str(": ")?;
        }
        if let Some(key) = &self.key {
            write!(f, "{key}: ")?;
        }
        f.write_str(&self.message)
    }
}

/// Everything that is wrong with a configuration or a job file, one line each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// At least one.
    pub faults: Vec<Fault>,
}

impl From<Fault> for ConfigError {
    fn from(fault: Fault) -> Self {
        ConfigError {
            faults: vec![fault],
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, fault) in self.faults.iter().enumerate() {
            if n > 0 {
                f.write_str("\n")?;
            }
            fault.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}
