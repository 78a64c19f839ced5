//! `wasmcron:job/log`, and the desk through which every line of an attempt goes.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::lock;
use crate::attempt_host::{AttemptHost, LogLevel, LogLine, LogSource};
use crate::bindings::wasmcron::job::log::{self, Level};
use crate::sandbox::Sandbox;
use crate::spec::Limits;
use crate::text;

/// Fields of one line that are kept, and the longest name of one in bytes.
const FIELDS_MAX: usize = 32;
const FIELD_NAME_MAX: usize = 64;

/// Applies the log limits of one attempt and counts what they drop.
pub(crate) struct LogDesk {
    host: Arc<dyn AttemptHost>,
    line_max: usize,
    rate: f64,
    budget: Mutex<Budget>,
}

struct Budget {
    /// Bytes left for the attempt.
    bytes: u64,
    /// Lines that may pass now; refilled by time.
    lines: f64,
    refilled: Instant,
    dropped: Dropped,
}

/// What the limits dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dropped {
    pub(crate) lines: u64,
    pub(crate) bytes: u64,
}

impl LogDesk {
    pub(crate) fn new(host: Arc<dyn AttemptHost>, limits: &Limits) -> Arc<Self> {
        let rate = f64::from(limits.log_rate);
        Arc::new(Self {
            host,
            line_max: limits.log_line as usize,
            rate,
            budget: Mutex::new(Budget {
                bytes: limits.log,
                lines: rate * 2.0,
                refilled: Instant::now(),
                dropped: Dropped::default(),
            }),
        })
    }

    /// Hands a guest's line on, if its limits allow.
    pub(crate) fn line(
        &self,
        level: LogLevel,
        source: LogSource,
        message: &str,
        fields: &[(String, String)],
    ) {
        let mut budget = lock(&self.budget);
        let raw: usize =
            message.len() + fields.iter().map(|(k, v)| k.len() + v.len()).sum::<usize>();
        budget.refill(self.rate);
        if budget.lines < 1.0 || budget.bytes == 0 {
            budget.dropped.lines += 1;
            budget.dropped.bytes += raw as u64;
            return;
        }
        budget.lines -= 1.0;
        let (message, mut cut) = text::one_line(message, self.line_max);
        let mut size = message.len();
        let mut kept = Vec::with_capacity(fields.len().min(FIELDS_MAX));
        for (index, (name, value)) in fields.iter().enumerate() {
            let room = self.line_max.saturating_sub(size);
            if index >= FIELDS_MAX || room == 0 {
                cut += name.len() + value.len();
                continue;
            }
            let (name, cut_name) = text::one_line(name, FIELD_NAME_MAX);
            let (value, cut_value) = text::one_line(value, room);
            cut += cut_name + cut_value;
            size += name.len() + value.len();
            kept.push((name, value));
        }
        budget.dropped.bytes += cut as u64;
        budget.bytes = budget.bytes.saturating_sub(size.max(1) as u64);
        // Within the lock, so that lines keep their order.
        self.host.log(LogLine {
            level,
            source,
            message,
            fields: kept,
        });
    }

    /// A line of the runtime's own; not limited, so use it once per fact.
    pub(crate) fn host_line(&self, level: LogLevel, message: &str) {
        self.host.log(LogLine {
            level,
            source: LogSource::Host,
            message: text::message(message),
            fields: Vec::new(),
        });
    }

    /// Ends the desk with one line that says what was dropped, if anything was.
    pub(crate) fn finish(&self) -> Dropped {
        let dropped = lock(&self.budget).dropped;
        if dropped.lines > 0 {
            self.host_line(
                LogLevel::Warn,
                &format!(
                    "{} log lines ({} bytes) were dropped by `limits.log` and `limits.log_rate`",
                    dropped.lines, dropped.bytes
                ),
            );
        }
        dropped
    }
}

impl Budget {
    fn refill(&mut self, rate: f64) {
        let now = Instant::now();
        let passed = now.duration_since(self.refilled).as_secs_f64();
        self.lines = (self.lines + passed * rate).min(rate * 2.0);
        self.refilled = now;
    }
}

impl log::Host for Sandbox {
    fn log(
        &mut self,
        level: Level,
        message: String,
        fields: Vec<(String, String)>,
    ) -> wasmtime::Result<()> {
        let level = match level {
            Level::Trace => LogLevel::Trace,
            Level::Debug => LogLevel::Debug,
            Level::Info => LogLevel::Info,
            Level::Warn => LogLevel::Warn,
            Level::Error => LogLevel::Error,
        };
        self.log.line(level, LogSource::Guest, &message, &fields);
        Ok(())
    }
}
