//! The smallest plugin.

use wasmcron_guest::{Context, Failure, Job, NoParams, Outcome};

struct Hello;

impl Job for Hello {
    type Params = NoParams;
    type Checkpoint = ();

    fn run(ctx: &mut Context<Self>, _: NoParams) -> Result<Outcome, Failure> {
        Ok(Outcome::done(format!(
            "hello from {}, attempt {}",
            ctx.job(),
            ctx.attempt()
        )))
    }
}

wasmcron_guest::export!(Hello);
