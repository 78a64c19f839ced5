//! The one door to the host. In the sandbox it is the WIT imports; natively it is the fake host
//! that [`crate::testing::Harness`] installs for the thread.

use std::time::Duration;

use crate::checkpoint::{SaveError, SavedCheckpoint};
use crate::context::StopReason;
use crate::http::{HttpError, Request, Response};
use crate::log::Level;
use crate::secrets::SecretError;
use crate::state::{StateError, When};

/// Every call that a job makes to its host. Authors use the typed functions of this crate; the
/// trait is public so that a test can bring a host of its own.
pub trait Host {
    /// The latest acknowledged checkpoint of this run.
    fn checkpoint_load(&self) -> Option<SavedCheckpoint>;
    /// Saves a checkpoint durably.
    ///
    /// # Errors
    ///
    /// Nothing was changed; [`SaveError`] says why.
    fn checkpoint_save(&self, data: &[u8]) -> Result<(), SaveError>;
    /// Offers a checkpoint that the host may save later.
    fn checkpoint_offer(&self, data: &[u8]);
    /// Reads a key of the job's state.
    ///
    /// # Errors
    ///
    /// See [`StateError`].
    fn state_get(&self, key: &str) -> Result<Option<Vec<u8>>, StateError>;
    /// Writes a key of the job's state.
    ///
    /// # Errors
    ///
    /// See [`StateError`].
    fn state_set(&self, key: &str, value: &[u8], when: When) -> Result<(), StateError>;
    /// Removes a key of the job's state.
    ///
    /// # Errors
    ///
    /// See [`StateError`].
    fn state_delete(&self, key: &str, when: When) -> Result<(), StateError>;
    /// The reason to stop, if there is one.
    fn stop_reason(&self) -> Option<StopReason>;
    /// Reports progress.
    fn progress(&self, done: f64, total: Option<f64>, message: &str);
    /// Writes a log line.
    fn log(&self, level: Level, message: &str, fields: &[(String, String)]);
    /// The value of a granted secret.
    ///
    /// # Errors
    ///
    /// See [`SecretError`].
    fn secret(&self, name: &str) -> Result<String, SecretError>;
    /// Sends an HTTP request and reads the whole response.
    ///
    /// # Errors
    ///
    /// There is no response; [`HttpError`] says why.
    fn http(&self, request: &Request) -> Result<Response, HttpError>;
    /// Time since some fixed moment, never running backwards.
    fn monotonic(&self) -> Duration;
}

/// Calls the host.
#[cfg(target_arch = "wasm32")]
pub(crate) fn with<R>(call: impl FnOnce(&dyn Host) -> R) -> R {
    call(&crate::wasm::WasmHost)
}

/// Calls the host of this thread.
#[cfg(not(target_arch = "wasm32"))]
pub(crate) fn with<R>(call: impl FnOnce(&dyn Host) -> R) -> R {
    // The clone ends the borrow before the call: a fake host may itself run job code.
    let host = native::CURRENT.with_borrow(Clone::clone);
    #[allow(
        clippy::panic,
        reason = "a test without a harness is an error of the test's author"
    )]
    let Some(host) = host else {
        panic!(
            "no host on this thread: run the job through wasmcron_guest::testing::Harness, \
             or install a host of your own with wasmcron_guest::testing::with_host"
        );
    };
    call(&*host)
}

#[cfg(not(target_arch = "wasm32"))]
pub(crate) mod native {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::Host;

    thread_local! {
        pub(super) static CURRENT: RefCell<Option<Rc<dyn Host>>> = const { RefCell::new(None) };
    }

    /// Puts the thread's earlier host back, also when the job panics.
    struct Restore(Option<Rc<dyn Host>>);

    impl Drop for Restore {
        fn drop(&mut self) {
            CURRENT.set(self.0.take());
        }
    }

    /// Runs `body` with `host` as the host of this thread.
    pub(crate) fn with_host<R>(host: Rc<dyn Host>, body: impl FnOnce() -> R) -> R {
        let _restore = Restore(CURRENT.replace(Some(host)));
        body()
    }
}
