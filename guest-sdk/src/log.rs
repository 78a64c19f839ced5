//! Structured log lines of a run. What a plugin prints is captured as well, without a level.
//!
//! The macros [`crate::trace!`] to [`crate::error!`] take a format string; [`with_fields`] adds fields.

use std::fmt::Display;

use crate::host;

/// How much a line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// For the author, while looking for a fault.
    Trace,
    /// For the author.
    Debug,
    /// For the operator: normal.
    Info,
    /// For the operator: unusual.
    Warn,
    /// For the operator: something failed.
    Error,
}

/// Writes one line.
pub fn write(level: Level, message: &str) {
    host::with(|host| host.log(level, message, &[]));
}

/// Writes one line with fields.
///
/// ```no_run
/// # use wasmcron_guest::log::{self, Level};
/// log::with_fields(Level::Info, "batch written", &[("rows", &200), ("index", &"merchants")]);
/// ```
pub fn with_fields(level: Level, message: &str, fields: &[(&str, &dyn Display)]) {
    let fields: Vec<_> = fields
        .iter()
        .map(|(key, value)| ((*key).to_owned(), value.to_string()))
        .collect();
    host::with(|host| host.log(level, message, &fields));
}

/// Writes a line for the operator: normal.
pub fn info(message: &str) {
    write(Level::Info, message);
}

/// Writes a line for the operator: unusual.
pub fn warn(message: &str) {
    write(Level::Warn, message);
}

/// Writes a line for the operator: something failed.
pub fn error(message: &str) {
    write(Level::Error, message);
}

/// Writes a trace line from a format string.
#[macro_export]
macro_rules! trace {
    ($($arg:tt)+) => { $crate::log::write($crate::log::Level::Trace, &format!($($arg)+)) };
}

/// Writes a debug line from a format string.
#[macro_export]
macro_rules! debug {
    ($($arg:tt)+) => { $crate::log::write($crate::log::Level::Debug, &format!($($arg)+)) };
}

/// Writes an info line from a format string.
#[macro_export]
macro_rules! info {
    ($($arg:tt)+) => { $crate::log::write($crate::log::Level::Info, &format!($($arg)+)) };
}

/// Writes a warning from a format string.
#[macro_export]
macro_rules! warn {
    ($($arg:tt)+) => { $crate::log::write($crate::log::Level::Warn, &format!($($arg)+)) };
}

/// Writes an error line from a format string.
#[macro_export]
macro_rules! error {
    ($($arg:tt)+) => { $crate::log::write($crate::log::Level::Error, &format!($($arg)+)) };
}
