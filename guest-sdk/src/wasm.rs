//! The sandbox's side: bindings generated from the WIT, and the host behind them.
//!
//! Not part of the API: [`crate::export!`] expands to uses of it.

mod http;

use std::time::Duration;

use crate::checkpoint::{SaveError, SavedCheckpoint};
use crate::context::{Call, Reason, StopReason};
use crate::host::Host;
use crate::http::{HttpError, Request, Response};
use crate::job::{FolderAccess, Job, Migrate, Outcome, Want};
use crate::log::Level;
use crate::secrets::SecretError;
use crate::state::{StateError, When};
use crate::{Context, Failure, Metadata, params};

// A world of our own that imports only what this crate calls: a component may import less than the
// world `job` offers, and the bindings of all of WASI need not be generated.
#[allow(
    unsafe_code,
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    clippy::all,
    clippy::pedantic,
    clippy::restriction,
    reason = "generated code; the canonical ABI passes raw memory"
)]
#[doc(hidden)]
pub mod bindings {
    wit_bindgen::generate!({
        path: "wit",
        inline: "
            package wasmcron:guest;
            world plugin {
                import wasi:clocks/monotonic-clock@0.2.12;
                import wasi:http/outgoing-handler@0.2.12;
                import wasmcron:job/checkpoint@0.1.0;
                import wasmcron:job/state@0.1.0;
                import wasmcron:job/control@0.1.0;
                import wasmcron:job/progress@0.1.0;
                import wasmcron:job/log@0.1.0;
                import wasmcron:job/secrets@0.1.0;
                export wasmcron:job/handler@0.1.0;
            }
        ",
        world: "wasmcron:guest/plugin",
        generate_all,
        pub_export_macro: true,
        export_macro_name: "export_handler",
        default_bindings_module: "wasmcron_guest::wasm::bindings",
    });
}

// A second world, since WIT has no optional exports. The linker unites the two.
#[allow(
    unsafe_code,
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    clippy::all,
    clippy::pedantic,
    clippy::restriction,
    reason = "generated code; the canonical ABI passes raw memory"
)]
#[doc(hidden)]
pub mod migrate_bindings {
    wit_bindgen::generate!({
        path: "wit",
        inline: "
            package wasmcron:guest;
            world migration {
                export wasmcron:job/migrate@0.1.0;
            }
        ",
        world: "wasmcron:guest/migration",
        generate_all,
        pub_export_macro: true,
        export_macro_name: "export_migrate",
        default_bindings_module: "wasmcron_guest::wasm::migrate_bindings",
    });
}

pub use bindings::export_handler;
pub use bindings::exports::wasmcron::job::handler::{
    Call as WitCall, Failure as WitFailure, Guest as HandlerGuest, Metadata as WitMetadata,
    Outcome as WitOutcome,
};
pub use migrate_bindings::export_migrate;
pub use migrate_bindings::exports::wasmcron::job::migrate::Guest as MigrateGuest;

use bindings::wasi::clocks::monotonic_clock;
use bindings::wasmcron::job::{checkpoint, control, log, progress, secrets, state, types};

/// `handler.describe`.
pub fn describe<J: Job>(name: &str, version: &str, description: &str) -> WitMetadata {
    let metadata = J::describe(Metadata::new(name, version, description));
    WitMetadata {
        name: metadata.name,
        version: metadata.version,
        description: metadata.description,
        parameter_schema: metadata.parameter_schema,
        checkpoint_schema: J::CHECKPOINT_SCHEMA,
        wants: metadata.wants.into_iter().map(want).collect(),
    }
}

/// `handler.run`.
///
/// # Errors
///
/// The job's own failure.
pub fn run<J: Job>(call: WitCall) -> Result<WitOutcome, WitFailure> {
    let call = Call {
        job: call.job,
        run_id: call.run_id,
        attempt: call.attempt,
        nominal_time: call.nominal_time,
        actual_time: call.actual_time,
        previous_success: call.previous_success,
        deadline: call.deadline,
        reason: reason(call.reason),
        parameters: call.parameters,
        fence: call.fence,
    };
    match run_job::<J>(call) {
        Ok(Outcome::Done(summary)) => Ok(WitOutcome::Done(summary)),
        Ok(Outcome::Yielded) => Ok(WitOutcome::Yielded),
        Err(Failure::Retry { message, after }) => Err(WitFailure::Retry(types::RetryFailure {
            message,
            after: after.map(|wait| u32::try_from(wait.as_millis()).unwrap_or(u32::MAX)),
        })),
        Err(Failure::Fatal(message)) => Err(WitFailure::Fatal(message)),
        Err(Failure::Cancelled) => Err(WitFailure::Cancelled),
    }
}

fn run_job<J: Job>(call: Call) -> Result<Outcome, Failure> {
    let params = params::parse(&call.parameters)?;
    J::run(&mut Context::new(call), params)
}

/// `migrate.checkpoint`.
///
/// # Errors
///
/// The job's own refusal.
pub fn migrate<J: Migrate>(from_schema: u32, data: &[u8]) -> Result<Vec<u8>, String> {
    let checkpoint = J::checkpoint(from_schema, data)?;
    crate::checkpoint::encode(&checkpoint).map_err(|failure| failure.to_string())
}

fn want(want: Want) -> types::Want {
    match want {
        Want::Http(origin) => types::Want::Http(origin),
        Want::Tcp(endpoint) => types::Want::Tcp(endpoint),
        Want::Folder { path, access } => types::Want::Folder(types::FolderWant {
            path,
            access: match access {
                FolderAccess::Read => types::FolderAccess::Read,
                FolderAccess::Write => types::FolderAccess::Write,
            },
        }),
        Want::Env(name) => types::Want::Env(name),
        Want::Secret(name) => types::Want::Secret(name),
    }
}

fn reason(reason: types::Reason) -> Reason {
    match reason {
        types::Reason::Scheduled => Reason::Scheduled,
        types::Reason::Manual => Reason::Manual,
        types::Reason::Retry => Reason::Retry,
        types::Reason::Resume => Reason::Resume,
        types::Reason::CatchUp => Reason::CatchUp,
        types::Reason::Backfill => Reason::Backfill,
    }
}

fn when(when: When) -> state::When {
    match when {
        When::OnSuccess => state::When::OnSuccess,
        When::Now => state::When::Now,
    }
}

fn state_error(error: state::StateError) -> StateError {
    match error {
        state::StateError::Fenced => StateError::Fenced,
        state::StateError::TooLarge(limit) => StateError::TooLarge { limit },
        state::StateError::Unavailable(reason) => StateError::Unavailable(reason),
    }
}

/// The host behind the WIT imports.
pub(crate) struct WasmHost;

impl Host for WasmHost {
    fn checkpoint_load(&self) -> Option<SavedCheckpoint> {
        checkpoint::load().map(|saved| SavedCheckpoint {
            schema: saved.schema,
            data: saved.data,
            attempt: saved.attempt,
        })
    }

    fn checkpoint_save(&self, data: &[u8]) -> Result<(), SaveError> {
        checkpoint::save(data).map_err(|error| match error {
            checkpoint::SaveError::Fenced => SaveError::Fenced,
            checkpoint::SaveError::TooLarge(limit) => SaveError::TooLarge { limit },
            checkpoint::SaveError::Unavailable(reason) => SaveError::Unavailable(reason),
        })
    }

    fn checkpoint_offer(&self, data: &[u8]) {
        checkpoint::offer(data);
    }

    fn state_get(&self, key: &str) -> Result<Option<Vec<u8>>, StateError> {
        state::get(key).map_err(state_error)
    }

    fn state_set(&self, key: &str, value: &[u8], at: When) -> Result<(), StateError> {
        state::set(key, value, when(at)).map_err(state_error)
    }

    fn state_delete(&self, key: &str, at: When) -> Result<(), StateError> {
        state::delete(key, when(at)).map_err(state_error)
    }

    fn stop_reason(&self) -> Option<StopReason> {
        control::should_stop().map(|reason| match reason {
            control::StopReason::Draining => StopReason::Draining,
            control::StopReason::Cancelled => StopReason::Cancelled,
            control::StopReason::TimeOutNear => StopReason::TimeOutNear,
            control::StopReason::Reload => StopReason::Reload,
            control::StopReason::LockLost => StopReason::LockLost,
        })
    }

    fn progress(&self, done: f64, total: Option<f64>, message: &str) {
        progress::report(done, total, message);
    }

    fn log(&self, level: Level, message: &str, fields: &[(String, String)]) {
        let level = match level {
            Level::Trace => log::Level::Trace,
            Level::Debug => log::Level::Debug,
            Level::Info => log::Level::Info,
            Level::Warn => log::Level::Warn,
            Level::Error => log::Level::Error,
        };
        log::log(level, message, fields);
    }

    fn secret(&self, name: &str) -> Result<String, SecretError> {
        secrets::get(name).map_err(|error| match error {
            secrets::SecretError::NotGranted => SecretError::NotGranted(name.to_owned()),
            secrets::SecretError::Unavailable(reason) => SecretError::Unavailable {
                name: name.to_owned(),
                reason,
            },
        })
    }

    fn http(&self, request: &Request) -> Result<Response, HttpError> {
        http::send(request)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_nanos(monotonic_clock::now())
    }
}
