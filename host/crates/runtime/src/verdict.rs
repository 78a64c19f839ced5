//! From what wasmtime says to what a person needs: which limit, which trap, which panic.

use std::time::Duration;

use wasmtime::{Trap as WasmTrap, WasmBacktrace};
use wasmtime_wasi::{I32Exit, ResourceTableError};

use crate::bindings::wasmcron::job::types::Failure;
use crate::execute::Stopped;
use crate::limiter::MEMORY_KEY;
use crate::report::{AttemptEnd, Trap};
use crate::sandbox::Sandbox;
use crate::spec::Limits;
use crate::text;
use crate::watchdog::Halt;

/// Bytes of a backtrace that are kept.
const BACKTRACE_MAX: usize = 8 << 10;
/// What wasmtime says when a guest hands over more than one call may carry.
const FUEL_TEXT: &str = "fuel allocated for hostcalls has been exhausted";
/// Where Rust's panic text begins.
const PANIC: &str = "panicked at ";

/// How far an attempt came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The instance was not complete.
    Instantiate,
    /// The guest's function was called.
    Call,
}

/// A guest that says it is done.
pub(crate) fn done(summary: &str) -> AttemptEnd {
    AttemptEnd::Done {
        summary: text::message(summary),
    }
}

/// A guest that says why it failed.
pub(crate) fn failure(failure: Failure) -> AttemptEnd {
    match failure {
        Failure::Retry(retry) => AttemptEnd::Retry {
            message: text::message(&retry.message),
            after: retry.after.map(|ms| Duration::from_millis(u64::from(ms))),
        },
        Failure::Fatal(message) => AttemptEnd::Fatal {
            message: text::message(&message),
        },
        Failure::Cancelled => AttemptEnd::Cancelled,
    }
}

/// A guest that did not return.
pub(crate) fn stopped(
    stopped: &Stopped,
    phase: Phase,
    limits: &Limits,
    sandbox: &Sandbox,
) -> AttemptEnd {
    let error = match stopped {
        Stopped::Halt(halt) => return halted(*halt),
        Stopped::Error(error) => error,
    };
    if let Some(halt) = error.downcast_ref::<Halt>() {
        return halted(*halt);
    }
    let stderr = sandbox.stderr.tail();
    let panic = panic_text(&stderr);
    let trap = describe_trap(error, panic.as_deref(), &stderr);
    if let Some(end) = limit_hit(error, &trap, limits, sandbox, panic.as_deref()) {
        return end;
    }
    let is_trap = error.is::<WasmTrap>() || error.is::<I32Exit>();
    match phase {
        // An instance that could not be made although the guest did nothing wrong.
        Phase::Instantiate if !is_trap => AttemptEnd::HostError {
            message: format!("cannot start the plugin: {}", chain(error)),
        },
        _ => AttemptEnd::Trap(trap),
    }
}

fn halted(halt: Halt) -> AttemptEnd {
    match halt {
        Halt::Interrupted(why) => AttemptEnd::Interrupted { why },
        Halt::LeaseLost => AttemptEnd::LeaseLost,
        Halt::TimedOut(limit) => AttemptEnd::TimedOut { limit },
    }
}

/// The limit behind a trap, if there is one.
fn limit_hit(
    error: &wasmtime::Error,
    trap: &Trap,
    limits: &Limits,
    sandbox: &Sandbox,
    panic: Option<&str>,
) -> Option<AttemptEnd> {
    let exceeded = |key, limit, found| {
        Some(AttemptEnd::LimitExceeded {
            key,
            limit,
            found,
            trap: trap.clone(),
        })
    };
    if let Some(refusal) = sandbox.limiter.refusal() {
        // A panic about something else, long after a refusal that the guest coped with, is a panic.
        let about_memory = panic.is_none_or(|text| {
            let text = text.to_ascii_lowercase();
            ["memory", "alloc", "reserve", "capacity"]
                .iter()
                .any(|word| text.contains(word))
        });
        if about_memory && trap.kind != "exit" {
            return exceeded(MEMORY_KEY, refusal.limit, refusal.wanted);
        }
    }
    if matches!(error.downcast_ref(), Some(ResourceTableError::Full)) {
        let limit = u64::from(limits.resources);
        return exceeded("limits.resources", limit, limit + 1);
    }
    if chain(error).contains(FUEL_TEXT) {
        let limit = limits.largest_payload();
        let mut trap = trap.clone();
        trap.message = format!(
            "one call may hand the host at most the larger of `limits.checkpoint` and `limits.state`, \
             and 1 MiB; {}",
            trap.message
        );
        return Some(AttemptEnd::LimitExceeded {
            key: "limits.checkpoint",
            limit,
            // Wasmtime does not say how much it was.
            found: limit + 1,
            trap,
        });
    }
    None
}

fn describe_trap(error: &wasmtime::Error, panic: Option<&str>, stderr: &str) -> Trap {
    let backtrace = error
        .downcast_ref::<WasmBacktrace>()
        .filter(|trace| !trace.frames().is_empty())
        .map(|trace| text::block(&trace.to_string(), BACKTRACE_MAX));
    let (kind, what) = if let Some(exit) = error.downcast_ref::<I32Exit>() {
        (
            "exit",
            format!("the plugin called exit with status {}", exit.0),
        )
    } else {
        match error.downcast_ref::<WasmTrap>() {
            Some(WasmTrap::UnreachableCodeReached) if panic.is_some() => ("panic", String::new()),
            Some(trap) => (trap_kind(*trap), trap.to_string()),
            None => ("host-call", chain(error)),
        }
    };
    let message = match panic {
        Some(panic) if what.is_empty() => panic.to_owned(),
        Some(panic) => format!("{what}; {panic}"),
        None => match last_lines(stderr) {
            Some(lines) => format!("{what}; standard error ends with: {lines}"),
            None => what,
        },
    };
    Trap {
        kind: kind.to_owned(),
        message: text::message(&message),
        backtrace,
    }
}

/// Root causes last, without the backtrace that wasmtime puts first.
fn chain(error: &wasmtime::Error) -> String {
    let texts: Vec<String> = error
        .chain()
        .map(ToString::to_string)
        .filter(|text| !text.starts_with("error while executing"))
        .collect();
    text::message(&texts.join(": "))
}

/// The text of a Rust panic at the end of standard error, on one line.
fn panic_text(stderr: &str) -> Option<String> {
    let text = &stderr[stderr.rfind(PANIC)?..];
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with("note: run with"))
        .collect();
    Some(lines.join(" "))
}

/// The last few lines, on one line.
fn last_lines(stderr: &str) -> Option<String> {
    let mut lines: Vec<&str> = stderr
        .lines()
        .rev()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .take(5)
        .collect();
    lines.reverse();
    (!lines.is_empty()).then(|| lines.join(" | "))
}

fn trap_kind(trap: WasmTrap) -> &'static str {
    match trap {
        WasmTrap::StackOverflow => "stack-overflow",
        WasmTrap::MemoryOutOfBounds => "memory-out-of-bounds",
        WasmTrap::TableOutOfBounds => "table-out-of-bounds",
        WasmTrap::IndirectCallToNull => "null-call",
        WasmTrap::BadSignature => "bad-signature",
        WasmTrap::IntegerOverflow => "integer-overflow",
        WasmTrap::IntegerDivisionByZero => "division-by-zero",
        WasmTrap::BadConversionToInteger => "bad-conversion",
        WasmTrap::UnreachableCodeReached => "unreachable",
        WasmTrap::AllocationTooLarge => "allocation-too-large",
        WasmTrap::CannotEnterComponent => "cannot-enter",
        _ => "trap",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_panic_text_is_found_behind_chatter() {
        let stderr = "chatter\nthread 'main' (1) panicked at src/lib.rs:53:73:\nboom: index 3\nnote: run with `RUST_BACKTRACE=1` environment variable to display a backtrace\n";
        assert_eq!(
            panic_text(stderr).as_deref(),
            Some("panicked at src/lib.rs:53:73: boom: index 3")
        );
        assert_eq!(panic_text("nothing"), None);
    }

    #[test]
    fn the_last_lines_of_other_languages_are_kept() {
        assert_eq!(
            last_lines("a\nb\n\nc\nd\ne\nf\n").as_deref(),
            Some("b | c | d | e | f")
        );
        assert_eq!(last_lines("\n"), None);
    }
}
