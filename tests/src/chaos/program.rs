//! What the programs behind `cargo xtask chaos` and `load` end with.

use std::io::Write as _;
use std::process::ExitCode;

/// Exit code of a run that came to no verdict.
const NO_VERDICT: u8 = 2;

/// Ends a program: 0 if every promise was kept, 1 if not, 2 if that could not be found out.
#[must_use]
pub fn exit(judged: anyhow::Result<bool>) -> ExitCode {
    match judged {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            say(&format!("no verdict: {error:#}"));
            ExitCode::from(NO_VERDICT)
        }
    }
}

/// Says a line to whoever watches.
pub fn say(line: &str) {
    // Whoever read it may be gone; the verdict is in the exit code too.
    let _ = writeln!(std::io::stdout(), "{line}");
}
