//! Write wasmcron plugins in Rust.
//!
//! A plugin is a type that implements [`Job`] and one line that exports it:
//!
//! ```
//! use wasmcron_guest::{Context, Failure, Job, NoParams, Outcome};
//!
//! struct Hello;
//!
//! impl Job for Hello {
//!     type Params = NoParams;
//!     type Checkpoint = ();
//!
//!     fn run(ctx: &mut Context<Self>, _: NoParams) -> Result<Outcome, Failure> {
//!         Ok(Outcome::done(format!("hello from attempt {}", ctx.attempt())))
//!     }
//! }
//!
//! wasmcron_guest::export!(Hello);
//! # fn main() {}
//! ```
//!
//! Built for `wasm32-wasip2` as a `cdylib`, that is a component a pod can load. The same type runs
//! natively under [`testing::Harness`], which is how a plugin is unit-tested.
//!
//! # Errors
//!
//! [`Failure`] says what the host should do: try again, or give up. `?` on any error makes a
//! failure that is tried again, unless the error itself says that trying again cannot help (a
//! denied HTTP origin, a secret that is not granted). A panic is not caught: the host ends the
//! attempt and reports the panic's text.
//!
//! # Effects
//!
//! A run may be attempted more than once, and an attempt may end between any two instructions.
//! Make effects idempotent with [`Context::run_id`], pass [`Context::fence`] to targets that can
//! refuse stragglers, and record progress with a [`Checkpointer`] *after* the effect.

mod checkpoint;
mod context;
mod failure;
mod host;
mod job;
mod params;

pub mod http;
pub mod log;
pub mod secrets;
pub mod state;

#[cfg(not(target_arch = "wasm32"))]
pub mod testing;

#[cfg(target_arch = "wasm32")]
#[doc(hidden)]
pub mod wasm;

pub use checkpoint::{Checkpointer, SaveError, SavedCheckpoint};
pub use context::{Call, Context, Reason, StopReason};
pub use failure::{Failure, ResultExt};
pub use host::Host;
pub use job::{FolderAccess, Job, Metadata, Migrate, Outcome, Want};
pub use params::NoParams;

#[cfg(feature = "schema")]
pub use schemars;
pub use serde;
pub use serde_json;

/// Exports a [`Job`] as the plugin of this crate.
///
/// Name, version and description are those of `Cargo.toml`; [`Job::describe`] can refine them.
/// `export!(MyJob, migrate)` also exports [`Migrate`], for a plugin that can read the checkpoints
/// of its older versions. Natively the macro only checks that the traits are implemented.
#[macro_export]
macro_rules! export {
    ($job:ty) => {
        $crate::__export!(@handler $job);
    };
    ($job:ty, migrate) => {
        $crate::__export!(@handler $job);
        $crate::__export!(@migrate $job);
    };
}

#[cfg(not(target_arch = "wasm32"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __export {
    (@handler $job:ty) => {
        const _: fn() = || {
            fn implements_job<J: $crate::Job>() {}
            implements_job::<$job>();
        };
    };
    (@migrate $job:ty) => {
        const _: fn() = || {
            fn implements_migrate<J: $crate::Migrate>() {}
            implements_migrate::<$job>();
        };
    };
}

#[cfg(target_arch = "wasm32")]
#[doc(hidden)]
#[macro_export]
macro_rules! __export {
    (@handler $job:ty) => {
        const _: () = {
            struct Handler;
            impl $crate::wasm::HandlerGuest for Handler {
                fn describe() -> $crate::wasm::WitMetadata {
                    $crate::wasm::describe::<$job>(
                        env!("CARGO_PKG_NAME"),
                        env!("CARGO_PKG_VERSION"),
                        env!("CARGO_PKG_DESCRIPTION"),
                    )
                }
                fn run(
                    call: $crate::wasm::WitCall,
                ) -> Result<$crate::wasm::WitOutcome, $crate::wasm::WitFailure> {
                    $crate::wasm::run::<$job>(call)
                }
            }
            $crate::wasm::export_handler!(Handler);
        };
    };
    (@migrate $job:ty) => {
        const _: () = {
            struct Migration;
            impl $crate::wasm::MigrateGuest for Migration {
                fn checkpoint(from_schema: u32, data: Vec<u8>) -> Result<Vec<u8>, String> {
                    $crate::wasm::migrate::<$job>(from_schema, &data)
                }
            }
            $crate::wasm::export_migrate!(Migration);
        };
    };
}
