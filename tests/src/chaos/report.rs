//! What a drill comes to, for people.

use std::fmt::Write as _;
use std::time::Duration;

use super::drill::Outcome;
use crate::history::{Harm, Percentiles, Wait};

/// Violations that are printed in full.
const SHOWN: usize = 10;

/// The figures of a drill, and what was broken.
#[must_use]
pub fn report(outcome: &Outcome) -> String {
    let counted = &outcome.verdict.counted;
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "  {name:32} {value}");
    };
    let faults = outcome.history.faults.len();
    line("faults injected", format!("{faults}, {}", by_harm(outcome)));
    line(
        "firings",
        format!(
            "{} runs, {} nominal times in gaps ({} too late)",
            counted.firings, counted.in_gaps, counted.misfired
        ),
    );
    line(
        "attempts",
        format!(
            "{} begun; {} runs had more than one",
            counted.attempts, counted.rerun
        ),
    );
    line("effects applied", counted.effects.to_string());
    line(
        "duplicates refused",
        format!(
            "{} ({} of overtaken attempts); {} rows written again",
            counted.duplicates_refused, counted.stragglers_refused, counted.rows_again
        ),
    );
    line(
        "writes the store refused",
        counted.fenced_writes.to_string(),
    );
    line("starts without a store", outcome.failed_starts.to_string());
    for (name, harm) in [
        ("kill", Harm::Killed),
        ("SIGTERM", Harm::Terminated),
        ("freeze", Harm::Frozen),
        ("cut", Harm::Cut),
    ] {
        for (what, waits) in [
            ("resume", &outcome.figures.resumes),
            ("leader takeover", &outcome.figures.takeovers),
        ] {
            let of = |alone: bool| {
                let fits = move |wait: &&Wait| wait.after == harm && (wait.alone || !alone);
                Percentiles::of(waits.iter().filter(fits).map(|wait| wait.length))
            };
            if let Some(all) = of(false) {
                line(&format!("{name} to {what}"), all.to_string());
            }
            if let Some(alone) = of(true) {
                line("  with no other fault", alone.to_string());
            }
        }
    }
    text + &violations(outcome)
}

fn by_harm(outcome: &Outcome) -> String {
    let kinds = [
        (Harm::Killed, "kills"),
        (Harm::Terminated, "terminations"),
        (Harm::Frozen, "freezes"),
        (Harm::Cut, "cuts"),
        (Harm::StoreAway, "outages of the store"),
        (Harm::Swapped, "plugin swaps"),
    ];
    let count = |harm| {
        let faults = outcome.history.faults.iter();
        faults.filter(|fault| fault.harm == harm).count()
    };
    let counts: Vec<String> = kinds
        .into_iter()
        .map(|(harm, name)| (count(harm), name))
        .filter(|(count, _)| *count > 0)
        .map(|(count, name)| format!("{count} {name}"))
        .collect();
    counts.join(", ")
}

fn violations(outcome: &Outcome) -> String {
    let violations = &outcome.verdict.violations;
    let mut text = String::new();
    for violation in violations.iter().take(SHOWN) {
        let _ = write!(text, "\n{violation}");
    }
    if violations.len() > SHOWN {
        let _ = writeln!(text, "\n… and {} more violations", violations.len() - SHOWN);
    }
    text
}

/// The verdict in one line.
#[must_use]
pub fn verdict(outcome: &Outcome) -> String {
    match outcome.verdict.violations.len() {
        0 => "VERDICT: every promise was kept.".into(),
        count => format!("VERDICT: {count} violations."),
    }
}

/// A time for the beginning of a line.
#[must_use]
pub fn stamp(since: Duration) -> String {
    format!("[{:6.1} s]", since.as_secs_f64())
}
