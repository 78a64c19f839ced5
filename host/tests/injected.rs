//! What the simulation of a fleet rests on: a pod takes clocks, chance and tasks from its machine alone,
//! and does the same again when it is told the same again.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may panic"
)]

use std::path::{Path, PathBuf};

/// What a service asks its [`Machine`](wasmcron_host::services::Machine) for, or must not have.
const FORBIDDEN: [(&str, &str); 14] = [
    ("SystemTime", "ask the machine for `wall`"),
    ("boot_millis()", "ask the machine for `boot`"),
    (
        "std::time::Instant",
        "use tokio's, which a simulation pauses",
    ),
    ("fastrand", "ask the machine for `random` or `jitter`"),
    ("getrandom", "ask the machine for `random` or `jitter`"),
    ("ulid::", "ask the machine for `ulid`"),
    ("tokio::spawn", "let the machine `spawn`"),
    ("tokio::task::spawn", "let the machine `spawn`"),
    ("JoinSet", "let the machine `spawn`"),
    ("Handle::current", "let the machine `spawn`"),
    ("thread::spawn", "let the machine `spawn_apart`"),
    ("thread::Builder", "let the machine `spawn_apart`"),
    (
        "HashMap",
        "its order differs from one start to the next: use BTreeMap",
    ),
    (
        "HashSet",
        "its order differs from one start to the next: use BTreeSet",
    ),
];

/// Files that may: what stands between the services and the real computer.
const EXEMPT: [(&str, &[&str]); 2] = [
    (
        "machine.rs",
        &[
            "SystemTime",
            "boot_millis()",
            "fastrand",
            "getrandom",
            "ulid::",
            "tokio::spawn",
            "thread::Builder",
        ],
    ),
    // Reads the disk; a simulation puts jobs into the book of jobs instead.
    ("reloader.rs", &["tokio::task::spawn"]),
];

fn services() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/services");
    let entries = std::fs::read_dir(directory).expect("the services");
    let files: Vec<PathBuf> = entries.map(|entry| entry.expect("a file").path()).collect();
    assert!(files.len() > 20, "the services are elsewhere: {files:?}");
    files
}

/// The file's name and code, without comments and tests.
fn code(path: &Path) -> (String, String) {
    let name = path.file_name().expect("a name").to_string_lossy();
    let text = std::fs::read_to_string(path).expect("text");
    let product = text.split("#[cfg(test)]").next().expect("a beginning");
    let lines = product.lines().map(|line| match line.find("//") {
        Some(at) => &line[..at],
        None => line,
    });
    (name.into_owned(), lines.collect::<Vec<_>>().join("\n"))
}

#[test]
fn services_ask_their_machine_and_nobody_else() {
    let mut found = Vec::new();
    for path in services() {
        let (name, code) = code(&path);
        let may = EXEMPT.iter().find(|(file, _)| *file == name);
        for (word, instead) in FORBIDDEN {
            let exempt = may.is_some_and(|(_, words)| words.contains(&word));
            if !exempt && code.contains(word) {
                found.push(format!("{name} uses {word}: {instead}"));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// A field of that name hides the event's own in the pod's JSON log: no line said `run.finished` of an
/// attempt that failed.
#[test]
fn no_event_has_a_field_called_message() {
    let mut found = Vec::new();
    for path in services() {
        let (name, code) = code(&path);
        for event in code.split("tracing::").skip(1) {
            let (fields, _) = event.split_once(';').unwrap_or((event, ""));
            let outside: String = fields.split('"').step_by(2).collect();
            let mut names = outside
                .split([',', '('])
                .map(|field| field.split('=').next().unwrap_or_default().trim());
            if names.any(|name| matches!(name, "message" | "%message" | "?message")) {
                found.push(format!("{name}: {}", fields.trim()));
            }
        }
    }
    assert!(
        found.is_empty(),
        "call it `why` or `note`:\n{}",
        found.join("\n")
    );
}

#[test]
fn every_select_has_an_order() {
    let mut found = Vec::new();
    for path in services() {
        let (name, code) = code(&path);
        for select in code.split("select! {").skip(1) {
            if !select.trim_start().starts_with("biased;") {
                let first = select.trim_start().lines().next().unwrap_or_default();
                found.push(format!("{name}: {first}"));
            }
        }
    }
    assert!(
        found.is_empty(),
        "tokio draws the branch that is looked at first; say `biased;` and give them an order:\n{}",
        found.join("\n")
    );
}
