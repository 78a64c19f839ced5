//! What happens in a folder, as `dev` tells it: to people as lines, to programs as JSON.

use std::time::Duration;

use serde::Serialize;
use wasmcron_core::run::{Progress, RunRecord};
use wasmcron_store::runs::LogLine;

use crate::cli::text;
use crate::cli::views::LogLineView;

/// One thing that happened.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// The pod serves.
    Ready {
        /// The folder.
        folder: String,
        /// Where plugins are read from.
        plugins: String,
        /// Where job files are read from.
        jobs: String,
        /// The store, its password masked.
        store: String,
        /// What it promises.
        promise: &'static str,
        /// Where metrics and health are.
        http: String,
        /// How another terminal asks for a run.
        trigger: String,
    },
    /// The jobs in force, whenever they change.
    Jobs {
        /// All of them, by name.
        jobs: Vec<JobEntry>,
    },
    /// An attempt began.
    Started {
        /// The run.
        run: String,
        /// Number of the attempt.
        attempt: u32,
        /// Sequence of the checkpoint it goes on from.
        resumed_from: Option<u64>,
    },
    /// The guest logged a line.
    Log {
        /// The run.
        run: String,
        /// What it logged.
        #[serde(flatten)]
        line: LogLineView,
    },
    /// A run is further than before.
    Progress {
        /// The run.
        run: String,
        /// Units done.
        done: f64,
        /// Units in all, if known.
        total: Option<f64>,
        /// For people.
        message: String,
    },
    /// A run is not over and does not execute.
    Waits {
        /// The run.
        run: String,
        /// `delayed` or `parked`.
        state: &'static str,
        /// Why.
        why: String,
    },
    /// A run is over.
    Ended {
        /// The run.
        run: String,
        /// How.
        state: &'static str,
        /// From its first attempt's begin to its end.
        took_ms: Option<u64>,
        /// What it says for itself, or why it ended so.
        message: Option<String>,
    },
}

/// A job in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JobEntry {
    /// Its name.
    pub name: String,
    /// When it fires, for people.
    pub schedule: String,
}

/// How a line is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// Nothing special.
    Plain,
    /// Beside the point.
    Dim,
    /// It went well.
    Good,
    /// Worth a look.
    Odd,
    /// It went wrong.
    Bad,
}

impl Event {
    /// Something a guest logged.
    pub fn log(record: &RunRecord, line: &LogLine) -> Event {
        Event::Log {
            run: record.run.to_string(),
            line: LogLineView::from(line),
        }
    }

    /// How far a run has come.
    pub fn progress(record: &RunRecord, progress: &Progress) -> Event {
        Event::Progress {
            run: record.run.to_string(),
            done: progress.done,
            total: progress.total,
            message: progress.message.clone(),
        }
    }

    /// The event in lines for people: of which job, how it is meant, and the text.
    pub fn lines(&self) -> Vec<(&str, Tone, String)> {
        let (tone, text) = match self {
            Event::Ready { .. } => return self.opening(),
            Event::Jobs { jobs } => {
                return jobs
                    .iter()
                    .map(|job| {
                        (
                            job.name.as_str(),
                            Tone::Dim,
                            format!("job, {}", job.schedule),
                        )
                    })
                    .collect();
            }
            Event::Started {
                run,
                attempt,
                resumed_from,
            } => {
                let from = resumed_from
                    .map(|seq| format!(", goes on from checkpoint {seq}"))
                    .unwrap_or_default();
                (
                    Tone::Plain,
                    format!("started {run}, attempt {attempt}{from}"),
                )
            }
            Event::Log { line, .. } => logged(line),
            Event::Progress { .. } => (Tone::Dim, self.standing()),
            Event::Waits { state, why, .. } => (Tone::Odd, format!("{state}: {why}")),
            Event::Ended {
                run,
                state,
                took_ms,
                message,
            } => {
                let took = took_ms
                    .map(|ms| format!(" in {}", text::span(Duration::from_millis(ms))))
                    .unwrap_or_default();
                let message = message
                    .as_deref()
                    .map(|m| format!(": {m}"))
                    .unwrap_or_default();
                let tone = match *state {
                    "succeeded" => Tone::Good,
                    "skipped" | "cancelled" => Tone::Odd,
                    _ => Tone::Bad,
                };
                (tone, format!("{state} {run}{took}{message}"))
            }
        };
        vec![(self.job(), tone, text)]
    }

    fn opening(&self) -> Vec<(&str, Tone, String)> {
        let Event::Ready {
            folder,
            plugins,
            jobs,
            store,
            promise,
            http,
            trigger,
        } = self
        else {
            return Vec::new();
        };
        vec![
            ("", Tone::Plain, format!("wasmcron dev serves {folder}")),
            ("", Tone::Dim, format!("plugins  {plugins}/*.wasm")),
            (
                "",
                Tone::Dim,
                format!("jobs     {jobs}/*.toml; a plugin without one runs by hand"),
            ),
            ("", Tone::Dim, format!("store    {store}: {promise}")),
            ("", Tone::Dim, format!("http     http://{http}/metrics")),
            (
                "",
                Tone::Plain,
                format!("one run from elsewhere: {trigger}"),
            ),
        ]
    }

    /// How far a run has come: `30 of 100 rows`.
    pub fn standing(&self) -> String {
        match self {
            Event::Progress {
                done,
                total,
                message,
                ..
            } => {
                let of = total
                    .map(|total| format!(" of {total}"))
                    .unwrap_or_default();
                text::brief(&format!("{done}{of} {message}"), 200)
            }
            _ => String::new(),
        }
    }

    /// The run it is about.
    pub fn run(&self) -> Option<&str> {
        match self {
            Event::Ready { .. } | Event::Jobs { .. } => None,
            Event::Started { run, .. }
            | Event::Log { run, .. }
            | Event::Progress { run, .. }
            | Event::Waits { run, .. }
            | Event::Ended { run, .. } => Some(run),
        }
    }

    /// The job it is about.
    pub fn job(&self) -> &str {
        self.run()
            .and_then(|run| run.split('@').next())
            .unwrap_or("")
    }
}

fn logged(line: &LogLineView) -> (Tone, String) {
    let fields: String = line
        .fields
        .iter()
        .map(|(name, value)| format!(" {name}={value}"))
        .collect();
    let tone = match line.level.as_str() {
        "error" | "stderr" => Tone::Bad,
        "warn" => Tone::Odd,
        "debug" | "trace" => Tone::Dim,
        _ => Tone::Plain,
    };
    (tone, format!("{:<5} {}{fields}", line.level, line.message))
}
