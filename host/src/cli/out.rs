//! Where a command's answer goes, and how a command fails.

use std::fmt::{self, Display};
use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;

use comfy_table::{Attribute, Cell, ContentArrangement, Table, presets};
use serde::Serialize;
use wasmcron_store::StoreError;

use crate::config::fault::ConfigError;

/// Why a command did not do what it was asked for.
#[derive(Debug)]
pub enum Failure {
    /// The command line, a file or an expression cannot be read: exit code 2.
    BadInput(String),
    /// It was tried and did not work: exit code 1.
    Failed(String),
    /// The store: exit code 1. Whoever knows the store's URL adds it.
    Store(StoreError),
    /// The answer has said it already: this exit code.
    Said(u8),
    /// Nobody reads the answer any more. No failure: `| head` ends like this.
    Closed,
}

impl Failure {
    /// An error of exit code 1.
    pub fn failed(message: impl Display) -> Self {
        Failure::Failed(message.to_string())
    }

    /// An error of exit code 2.
    pub fn bad_input(message: impl Display) -> Self {
        Failure::BadInput(message.to_string())
    }

    /// Says it on standard error and gives the exit code.
    pub fn exit(self) -> ExitCode {
        let message = self.to_string();
        let code = match self {
            Failure::BadInput(_) => 2,
            Failure::Failed(_) | Failure::Store(_) => 1,
            Failure::Said(code) => code,
            Failure::Closed => 0,
        };
        if !message.is_empty() {
            note(format!("error: {message}"));
        }
        ExitCode::from(code)
    }
}

impl Display for Failure {
    /// What there is left to say.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::BadInput(message) | Failure::Failed(message) => f.write_str(message),
            Failure::Store(error) => error.fmt(f),
            Failure::Said(_) | Failure::Closed => Ok(()),
        }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Failure::BadInput(error.to_string())
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Failure::Store(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Failure::Closed
        } else {
            Failure::failed(format!("cannot write the answer: {error}"))
        }
    }
}

/// What every command returns.
pub type Answer = Result<(), Failure>;

/// A line for people beside the answer, on standard error.
pub fn note(text: impl Display) {
    // Where standard error is closed too there is nobody left to tell.
    let _ = writeln!(io::stderr(), "{text}");
}

/// Standard output, in one of two forms.
#[derive(Clone, Copy, Debug)]
pub struct Out {
    /// One JSON value instead of text for people.
    pub json: bool,
}

impl Out {
    /// A line of text. The text may span several lines.
    pub fn line(self, text: impl Display) -> Answer {
        let mut stdout = io::stdout().lock();
        writeln!(stdout, "{text}")?;
        Ok(stdout.flush()?)
    }

    /// Bytes as they are.
    pub fn bytes(self, bytes: &[u8]) -> Answer {
        let mut stdout = io::stdout().lock();
        stdout.write_all(bytes)?;
        Ok(stdout.flush()?)
    }

    /// A JSON value, indented where a person looks at it.
    pub fn value(self, value: &impl Serialize) -> Answer {
        let text = if io::stdout().is_terminal() {
            serde_json::to_string_pretty(value)
        } else {
            serde_json::to_string(value)
        };
        self.line(text.map_err(|error| Failure::failed(format!("cannot write JSON: {error}")))?)
    }

    /// A table, or a sentence where it would be empty.
    pub fn table(self, heads: &[&str], rows: Vec<Vec<String>>, empty: &str) -> Answer {
        if rows.is_empty() {
            return self.line(empty);
        }
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_header(
            heads
                .iter()
                .map(|head| Cell::new(head).add_attribute(Attribute::Bold)),
        );
        if io::stdout().is_terminal() {
            table.set_content_arrangement(ContentArrangement::Dynamic);
        }
        if !io::stdout().is_terminal()
            || std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
        {
            table.force_no_tty();
        }
        for row in rows {
            table.add_row(row);
        }
        for column in table.column_iter_mut() {
            column.set_padding((0, 1));
        }
        let lines: Vec<String> = table
            .lines()
            .map(|line| line.trim_end().to_owned())
            .collect();
        self.line(lines.join("\n"))
    }

    /// Names with their values, one a line, aligned.
    pub fn pairs(self, pairs: &[(&str, String)]) -> Answer {
        let width = pairs
            .iter()
            .map(|(name, _)| name.chars().count())
            .max()
            .unwrap_or(0);
        for (name, value) in pairs {
            let mut lines = value.lines();
            self.line(format!("{name:<width$}  {}", lines.next().unwrap_or("")))?;
            for line in lines {
                self.line(format!("{:<width$}  {line}", ""))?;
            }
        }
        Ok(())
    }
}
