//! Reads the clock and ends: its summary is when it began, in nanoseconds since 1970.

use std::time::{SystemTime, UNIX_EPOCH};

use wasmcron_guest::{Context, Failure, Job, NoParams, Outcome};

struct Stopwatch;

impl Job for Stopwatch {
    type Params = NoParams;
    type Checkpoint = ();

    fn run(_: &mut Context<Self>, _: NoParams) -> Result<Outcome, Failure> {
        let began = SystemTime::now().duration_since(UNIX_EPOCH)?;
        Ok(Outcome::done(began.as_nanos().to_string()))
    }
}

wasmcron_guest::export!(Stopwatch);
