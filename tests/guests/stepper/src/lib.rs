//! Does `steps` numbered steps. Each posts an effect to `target`, saves a checkpoint, and rests for
//! `step_ms`. `fail_at` makes the first attempt that reaches a step fail before it. With `once` the target
//! is told which step of which run an effect is, and makes it once.

use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use wasmcron_guest::{Context, Failure, Job, Outcome, http};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    target: String,
    steps: u32,
    #[serde(default)]
    step_ms: u64,
    #[serde(default)]
    fail_at: Option<u32>,
    #[serde(default)]
    once: bool,
}

struct Stepper;

impl Job for Stepper {
    type Params = Params;
    type Checkpoint = u32;

    const CHECKPOINT_SCHEMA: u32 = 1;

    fn run(ctx: &mut Context<Self>, params: Params) -> Result<Outcome, Failure> {
        let mut checkpoint = ctx.checkpointer().every(1);
        let mut next = checkpoint.load()?.unwrap_or(0);
        let started_at = next;
        while next < params.steps {
            if let Some(reason) = ctx.should_stop() {
                return checkpoint.stop(reason, &next);
            }
            if params.fail_at == Some(next) && started_at < next {
                return Err(Failure::retry(format!("asked to fail at step {next}")));
            }
            let effect = json!({
                "run": ctx.run_id(), "attempt": ctx.attempt(), "fence": ctx.fence(), "step": next,
            });
            let mut request = http::post(format!("{}/effects", params.target));
            if params.once {
                request = http::post(format!("{}/effects/once", params.target))
                    .header("idempotency-key", format!("{}/{next}", ctx.run_id()))
                    .header("x-run-id", ctx.run_id())
                    .header("x-attempt", ctx.attempt().to_string())
                    .header("x-fence", ctx.fence());
            }
            request.json(&effect)?.send()?.error_for_status()?;
            next += 1;
            checkpoint.record(&next)?;
            ctx.progress(f64::from(next), Some(f64::from(params.steps)), "stepping");
            std::thread::sleep(Duration::from_millis(params.step_ms));
        }
        Ok(Outcome::done(format!("{next} steps")))
    }
}

wasmcron_guest::export!(Stepper);
