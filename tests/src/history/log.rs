//! Reads pods' logs.

use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::Value;
use wasmcron_core::ids::RunId;
use wasmcron_core::time::Timestamp;

use super::{Attempt, Event, Kind};

/// Fields that a line has whatever it says.
const COMMON: [&str; 4] = ["timestamp", "level", "message", "target"];

/// The lines of one pod's log file, over all its sessions.
///
/// # Errors
/// When the file cannot be read.
pub fn read(pod: &str, file: &Path) -> Result<Vec<Event>> {
    let text =
        std::fs::read(file).with_context(|| format!("cannot read the log {}", file.display()))?;
    // A killed pod may leave half a line, in the middle of a character.
    let text = String::from_utf8_lossy(&text);
    Ok(text.lines().filter_map(|line| event(pod, line)).collect())
}

/// One line; none if it is no JSON object with a time.
#[must_use]
pub fn event(pod: &str, line: &str) -> Option<Event> {
    let line: Value = serde_json::from_str(line).ok()?;
    let at: Timestamp = line["timestamp"].as_str()?.parse().ok()?;
    let message = line["message"].as_str().unwrap_or_default();
    let kind = kind(message, &Line(&line)).unwrap_or(Kind::Other);
    Some(Event {
        at,
        pod: pod.to_owned(),
        kind,
        text: said(message, &line),
    })
}

/// A line as people read it.
fn said(message: &str, line: &Value) -> String {
    let fields = line.as_object().into_iter().flatten();
    let fields: Vec<String> = fields
        .filter(|(name, _)| !COMMON.contains(&name.as_str()))
        .map(|(name, value)| match value.as_str() {
            Some(text) => format!("{name}={text}"),
            None => format!("{name}={value}"),
        })
        .collect();
    format!("{message} {}", fields.join(" "))
}

struct Line<'a>(&'a Value);

impl Line<'_> {
    fn text(&self, name: &str) -> Option<String> {
        Some(self.0[name].as_str()?.to_owned())
    }

    /// Counters stand as text where they may not fit a float.
    fn number(&self, name: &str) -> Option<u64> {
        let value = &self.0[name];
        value.as_u64().or_else(|| value.as_str()?.parse().ok())
    }

    fn run(&self) -> Option<RunId> {
        self.0["run"].as_str()?.parse().ok()
    }

    fn attempt(&self) -> Option<Attempt> {
        Some(Attempt {
            run: self.run()?,
            number: u32::try_from(self.number("attempt")?).ok()?,
            fence: self.number("fence")?,
        })
    }
}

fn kind(message: &str, line: &Line) -> Option<Kind> {
    let term = || line.number("term");
    let led = |recovered| {
        Some(Kind::Led {
            run: line.run(),
            term: term()?,
            recovered,
        })
    };
    match message {
        "pod.started" => Some(Kind::PodStarted),
        "pod.stopped" => Some(Kind::PodStopped),
        "leader.won" => Some(Kind::Won { term: term()? }),
        "leader.lost" | "leader.resigned" => Some(Kind::Deposed { term: term()? }),
        "run.published" if line.text("was").is_some() => led(false),
        "run.published" => Some(Kind::Published {
            run: line.run()?,
            term: term()?,
        }),
        "firing.gap" => led(false),
        "run.recovered" => led(true),
        "run.lost" => Some(Kind::Lost {
            run: line.run()?,
            term: term()?,
        }),
        "run.claimed" => Some(Kind::Claimed(line.attempt()?)),
        "run.started" => Some(Kind::Started {
            attempt: line.attempt()?,
            from: line.number("from")?,
        }),
        "checkpoint.saved" => Some(Kind::Saved {
            run: line.run()?,
            fence: line.number("fence")?,
            seq: line.number("seq")?,
        }),
        "run.finished" => Some(Kind::Finished {
            attempt: line.attempt()?,
            next: line.text("next")?,
            answer: line.text("answer")?,
        }),
        "run.fenced" => Some(Kind::Fenced { run: line.run()? }),
        "run.handed_back" => Some(Kind::HandedBack {
            run: line.run()?,
            fence: line.number("fence"),
        }),
        _ => Some(Kind::About { run: line.run()? }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_pods_write_them() {
        let line = r#"{"timestamp":"2026-11-29T21:00:00.123456Z","level":"INFO","message":"run.finished","run":"a@2026-11-29T21:00:00Z","attempt":2,"fence":"1764444444123","outcome":"succeeded","next":"succeeded","answer":"finished","seconds":0.5,"target":"wasmcron::services::executor"}"#;
        let read = event("pod-a", line).expect("an event");
        assert_eq!(read.at.as_millis() % 1000, 123);
        let attempt = Attempt {
            run: "a@2026-11-29T21:00:00Z".parse().expect("a run"),
            number: 2,
            fence: 1_764_444_444_123,
        };
        let finished = Kind::Finished {
            attempt,
            next: "succeeded".into(),
            answer: "finished".into(),
        };
        assert_eq!(read.kind, finished);
        assert!(
            read.text
                .starts_with("run.finished run=a@2026-11-29T21:00:00Z attempt=2"),
            "{}",
            read.text
        );
    }

    #[test]
    fn a_firing_and_a_promotion_differ() {
        let line = |more: &str| {
            format!(
                r#"{{"timestamp":"2026-11-29T21:00:00Z","message":"run.published","run":"a@2026-11-29T21:00:00Z","term":"7"{more}}}"#
            )
        };
        let kind = |text: &str| event("pod-a", text).expect("an event").kind;
        assert!(matches!(kind(&line("")), Kind::Published { term: 7, .. }));
        let promoted = kind(&line(r#","was":"delayed""#));
        assert!(matches!(
            promoted,
            Kind::Led {
                term: 7,
                recovered: false,
                ..
            }
        ));
    }

    #[test]
    fn half_a_line_is_passed_over() {
        assert_eq!(event("pod-a", r#"{"timestamp":"2026-11"#), None);
    }
}
