//! One attempt, from the empty store to the report.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use wasmtime::Store;

use crate::attempt_host::AttemptHost;
use crate::bindings::wasmcron::job::types as wit;
use crate::control::{AttemptControl, Why};
use crate::engine::Shared;
use crate::plugin::Plugin;
use crate::report::{AttemptEnd, AttemptReport};
use crate::sandbox::{Sandbox, SandboxSpec};
use crate::spec::{AttemptSpec, Call, CallReason, Grants, Limits};
use crate::verdict::{self, Phase};
use crate::watchdog::{Halt, Watchdog};

/// Why a checkpoint of an older format was not translated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MigrateError {
    /// The plugin exports no `migrate`.
    #[error("the plugin cannot read checkpoints of other formats: it exports no `migrate`")]
    Unsupported,
    /// The plugin says no, and why.
    #[error("the plugin refused the checkpoint: {0}")]
    Refused(String),
    /// The plugin broke, used up a limit or answered more than `limits.checkpoint` allows.
    #[error("the plugin failed while it translated the checkpoint: {0}")]
    Failed(String),
}

/// Runs a guest's call until it returns or the watchdog ends it. Where it got to is in the phase.
pub(crate) async fn guarded<T>(
    watchdog: &Watchdog,
    call: impl Future<Output = wasmtime::Result<T>>,
) -> Result<T, Stopped> {
    if let Some(halt) = watchdog.check() {
        return Err(Stopped::Halt(halt));
    }
    tokio::select! {
        // A guest that returned in time has returned in time.
        biased;
        result = call => result.map_err(Stopped::Error),
        halt = watchdog.wait() => Err(Stopped::Halt(halt)),
    }
}

/// A call that did not return.
pub(crate) enum Stopped {
    /// The watchdog's timer ended it while it waited.
    Halt(Halt),
    /// It failed, perhaps because the watchdog ended it while it computed.
    Error(wasmtime::Error),
}

/// Makes one attempt on the guest runtime.
pub(crate) async fn attempt(
    shared: Arc<Shared>,
    plugin: Arc<Plugin>,
    spec: AttemptSpec,
    host: Arc<dyn AttemptHost>,
    started: Instant,
) -> AttemptReport {
    let AttemptSpec {
        call,
        limits,
        grants,
        checkpoint,
        control,
    } = spec;
    let sandbox = Sandbox::new(SandboxSpec {
        config: &shared.config,
        client: shared.client.clone(),
        host,
        control,
        grants,
        limits: &limits,
        checkpoint,
        schema: plugin.metadata.checkpoint_schema,
        attempt: call.attempt,
    });
    let (mut store, watchdog) = sandbox.into_store(&shared.engine, &limits, started);
    let mut start = None;
    let call = wit_call(call);
    let result = guarded(&watchdog, async {
        let job = plugin.pre.instantiate_async(&mut store).await?;
        start = Some(started.elapsed());
        job.wasmcron_job_handler().call_run(&mut store, &call).await
    })
    .await;
    let phase = match start {
        None => Phase::Instantiate,
        Some(_) => Phase::Call,
    };
    let end = match result {
        Ok(Ok(wit::Outcome::Done(summary))) => verdict::done(&summary),
        Ok(Ok(wit::Outcome::Yielded)) => AttemptEnd::Yielded,
        Ok(Err(failure)) => verdict::failure(failure),
        Err(stopped) => verdict::stopped(&stopped, phase, &limits, store.data()),
    };
    let start = start.unwrap_or_else(|| started.elapsed());
    settle(&shared, store, end, start, started).await
}

/// Ends the desks and writes the report.
async fn settle(
    shared: &Shared,
    mut store: Store<Sandbox>,
    end: AttemptEnd,
    start: Duration,
    started: Instant,
) -> AttemptReport {
    // A success deletes the checkpoint anyway, and without the right to the run nothing may be written.
    let flush = !matches!(
        end,
        AttemptEnd::Done { .. }
            | AttemptEnd::LeaseLost
            | AttemptEnd::Interrupted { why: Why::LockLost }
    );
    let sandbox = store.data_mut();
    sandbox.stdout.finish();
    sandbox.stderr.finish();
    sandbox.progress.finish();
    let on_success_state = match end {
        AttemptEnd::Done { .. } => sandbox.state.take(),
        _ => Vec::new(),
    };
    let peak_memory = sandbox.limiter.peak();
    let (checkpoint, log) = (sandbox.checkpoint.clone(), sandbox.log.clone());
    // The guest's memory goes before the wait for the last save.
    drop(store);
    let offer_lost = checkpoint.finish(flush, shared.config.flush_time).await;
    let dropped = log.finish();
    AttemptReport {
        end,
        wall: started.elapsed(),
        start,
        peak_memory,
        log_dropped_lines: dropped.lines,
        log_dropped_bytes: dropped.bytes,
        checkpoints_saved: checkpoint.saved(),
        offer_lost,
        on_success_state,
    }
}

/// The report of an attempt that never began or whose task was lost.
pub(crate) fn host_error(message: String, started: Instant) -> AttemptReport {
    AttemptReport {
        end: AttemptEnd::HostError { message },
        wall: started.elapsed(),
        start: started.elapsed(),
        peak_memory: 0,
        log_dropped_lines: 0,
        log_dropped_bytes: 0,
        checkpoints_saved: 0,
        offer_lost: None,
        on_success_state: Vec::new(),
    }
}

fn wit_call(call: Call) -> wit::Call {
    wit::Call {
        job: call.job,
        run_id: call.run_id,
        attempt: call.attempt,
        nominal_time: call.nominal_time,
        actual_time: call.actual_time,
        previous_success: call.previous_success,
        deadline: call.deadline,
        reason: match call.reason {
            CallReason::Scheduled => wit::Reason::Scheduled,
            CallReason::Manual => wit::Reason::Manual,
            CallReason::Retry => wit::Reason::Retry,
            CallReason::Resume => wit::Reason::Resume,
            CallReason::CatchUp => wit::Reason::CatchUp,
            CallReason::Backfill => wit::Reason::Backfill,
        },
        parameters: call.parameters,
        fence: format!("{:020}", call.fence),
    }
}

/// Asks a plugin to translate a checkpoint, in a sandbox without grants.
pub(crate) async fn migrate(
    shared: Arc<Shared>,
    plugin: Arc<Plugin>,
    from_schema: u32,
    data: Bytes,
    limits: Limits,
) -> Result<Bytes, MigrateError> {
    let Some(pre) = &plugin.migrate else {
        return Err(MigrateError::Unsupported);
    };
    let started = Instant::now();
    let sandbox = Sandbox::new(SandboxSpec {
        config: &shared.config,
        client: shared.client.clone(),
        host: Arc::new(crate::null_host::NullHost),
        control: AttemptControl::new(),
        grants: Arc::new(Grants::default()),
        limits: &limits,
        checkpoint: None,
        schema: plugin.metadata.checkpoint_schema,
        attempt: 0,
    });
    let (mut store, watchdog) = sandbox.into_store(&shared.engine, &limits, started);
    let mut phase = Phase::Instantiate;
    let result = guarded(&watchdog, async {
        let migrator = pre.instantiate_async(&mut store).await?;
        phase = Phase::Call;
        migrator
            .wasmcron_job_migrate()
            .call_checkpoint(&mut store, from_schema, &data)
            .await
    })
    .await;
    match result {
        Ok(Ok(data)) if data.len() > limits.checkpoint as usize => {
            Err(MigrateError::Failed(format!(
                "it answered {} bytes where `limits.checkpoint` allows {}",
                data.len(),
                limits.checkpoint
            )))
        }
        Ok(Ok(data)) => Ok(data.into()),
        Ok(Err(why)) => Err(MigrateError::Refused(crate::text::message(&why))),
        Err(stopped) => Err(MigrateError::Failed(
            verdict::stopped(&stopped, phase, &limits, store.data()).message(),
        )),
    }
}
