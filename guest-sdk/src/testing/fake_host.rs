//! The host of one run under test.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::panic;
use std::time::Duration;

use super::{Fault, LogLine, ProgressReport};
use crate::checkpoint::{SaveError, SavedCheckpoint};
use crate::context::StopReason;
use crate::host::Host;
use crate::http::{HttpError, HttpErrorKind, Request, Response};
use crate::log::Level;
use crate::secrets::SecretError;
use crate::state::{StateError, When};

/// What answers HTTP requests.
pub(super) type HttpScript = Box<dyn FnMut(&Request) -> Result<Response, HttpError>>;

/// Unwinds an attempt without a panic message: the process is gone, not in error.
pub(super) struct Killed;

/// Keys written in this attempt for the run's success; none means deleted.
type Pending = BTreeMap<String, Option<Vec<u8>>>;

#[derive(Default)]
pub(super) struct FakeHost {
    pub(super) schema: Cell<u32>,
    pub(super) attempt: Cell<u32>,
    pub(super) fault: RefCell<Option<Fault>>,
    pub(super) calls: Cell<u32>,
    pub(super) saves: Cell<u32>,
    pub(super) answered: Cell<u32>,
    pub(super) clock: Cell<Duration>,
    pub(super) tick: Cell<Duration>,
    pub(super) checkpoint: RefCell<Option<SavedCheckpoint>>,
    pub(super) offered: RefCell<Option<Vec<u8>>>,
    pub(super) state: RefCell<BTreeMap<String, Vec<u8>>>,
    pub(super) pending: RefCell<Pending>,
    pub(super) secrets: RefCell<BTreeMap<String, String>>,
    pub(super) http: RefCell<Option<HttpScript>>,
    pub(super) requests: RefCell<Vec<Request>>,
    pub(super) logs: RefCell<Vec<LogLine>>,
    pub(super) progress: RefCell<Vec<ProgressReport>>,
}

impl FakeHost {
    /// Forgets what belongs to one attempt.
    pub(super) fn begin(&self, attempt: u32, fault: Option<Fault>) {
        self.attempt.set(attempt);
        *self.fault.borrow_mut() = fault;
        self.calls.set(0);
        self.saves.set(0);
        self.answered.set(0);
        *self.offered.borrow_mut() = None;
        self.pending.borrow_mut().clear();
    }

    /// What a host does at the end of an attempt that it lives to see: it saves the newest offer.
    pub(super) fn flush_offer(&self) {
        if let Some(data) = self.offered.borrow_mut().take() {
            self.store(data);
        }
    }

    /// What a host does when the run succeeded: state takes effect, the checkpoint goes.
    pub(super) fn succeed(&self) {
        let mut state = self.state.borrow_mut();
        for (key, value) in std::mem::take(&mut *self.pending.borrow_mut()) {
            match value {
                Some(value) => state.insert(key, value),
                None => state.remove(&key),
            };
        }
        *self.offered.borrow_mut() = None;
        *self.checkpoint.borrow_mut() = None;
    }

    fn store(&self, data: Vec<u8>) {
        *self.checkpoint.borrow_mut() = Some(SavedCheckpoint {
            schema: self.schema.get(),
            data,
            attempt: self.attempt.get(),
        });
    }

    /// Every call passes here after it took effect.
    fn served<T>(&self, answer: T) -> T {
        self.calls.set(self.calls.get() + 1);
        self.clock.set(self.clock.get() + self.tick.get());
        let killed = match &*self.fault.borrow() {
            Some(Fault::KillAfterCalls(calls)) => self.calls.get() >= *calls,
            Some(Fault::KillAfterSaves(saves)) => self.saves.get() >= *saves,
            Some(Fault::KillAfterRequests(requests)) => self.answered.get() >= *requests,
            _ => false,
        };
        if killed {
            panic::resume_unwind(Box::new(Killed));
        }
        answer
    }

    fn write(&self, key: &str, value: Option<&[u8]>, when: When) -> Result<(), StateError> {
        match (when, value) {
            (When::OnSuccess, value) => {
                self.pending
                    .borrow_mut()
                    .insert(key.to_owned(), value.map(<[u8]>::to_vec));
            }
            (When::Now, Some(value)) => {
                self.pending.borrow_mut().remove(key);
                self.state
                    .borrow_mut()
                    .insert(key.to_owned(), value.to_vec());
            }
            (When::Now, None) => {
                self.pending.borrow_mut().remove(key);
                self.state.borrow_mut().remove(key);
            }
        }
        self.served(Ok(()))
    }
}

impl Host for FakeHost {
    fn checkpoint_load(&self) -> Option<SavedCheckpoint> {
        let saved = self.checkpoint.borrow().clone();
        self.served(saved)
    }

    fn checkpoint_save(&self, data: &[u8]) -> Result<(), SaveError> {
        if let Some(Fault::RefuseSaves(error)) = &*self.fault.borrow() {
            return Err(error.clone());
        }
        *self.offered.borrow_mut() = None;
        self.store(data.to_vec());
        self.saves.set(self.saves.get() + 1);
        self.served(Ok(()))
    }

    fn checkpoint_offer(&self, data: &[u8]) {
        *self.offered.borrow_mut() = Some(data.to_vec());
        self.served(());
    }

    fn state_get(&self, key: &str) -> Result<Option<Vec<u8>>, StateError> {
        let own = self.pending.borrow().get(key).cloned();
        let value = own.unwrap_or_else(|| self.state.borrow().get(key).cloned());
        self.served(Ok(value))
    }

    fn state_set(&self, key: &str, value: &[u8], when: When) -> Result<(), StateError> {
        self.write(key, Some(value), when)
    }

    fn state_delete(&self, key: &str, when: When) -> Result<(), StateError> {
        self.write(key, None, when)
    }

    fn stop_reason(&self) -> Option<StopReason> {
        let reason = match &*self.fault.borrow() {
            Some(Fault::StopAfterSaves(saves, reason)) => {
                (self.saves.get() >= *saves).then_some(*reason)
            }
            Some(Fault::StopAfterRequests(requests, reason)) => {
                (self.answered.get() >= *requests).then_some(*reason)
            }
            _ => None,
        };
        self.served(reason)
    }

    fn progress(&self, done: f64, total: Option<f64>, message: &str) {
        let report = ProgressReport {
            done,
            total,
            message: message.to_owned(),
        };
        self.progress.borrow_mut().push(report);
        self.served(());
    }

    fn log(&self, level: Level, message: &str, fields: &[(String, String)]) {
        let line = LogLine {
            level,
            message: message.to_owned(),
            fields: fields.to_vec(),
        };
        self.logs.borrow_mut().push(line);
        self.served(());
    }

    fn secret(&self, name: &str) -> Result<String, SecretError> {
        let value = self.secrets.borrow().get(name).cloned();
        self.served(value.ok_or_else(|| SecretError::NotGranted(name.to_owned())))
    }

    fn http(&self, request: &Request) -> Result<Response, HttpError> {
        self.requests.borrow_mut().push(request.clone());
        let answer = match &mut *self.http.borrow_mut() {
            Some(script) => script(request),
            None => Err(request.error(HttpErrorKind::Denied, "the harness has no HTTP script")),
        };
        self.answered.set(self.answered.get() + 1);
        self.served(answer)
    }

    fn monotonic(&self) -> Duration {
        // Reading a clock is no call that an attempt could die in.
        self.clock.get()
    }
}
