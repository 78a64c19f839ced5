//! One run of a job, attempt by attempt.

use std::marker::PhantomData;
use std::panic::{self, AssertUnwindSafe};
use std::rc::Rc;
use std::time::Duration;

use serde::Serialize;

use super::fake_host::{FakeHost, Killed};
use super::{Attempt, Ended, Fault, LogLine, ProgressReport};
use crate::checkpoint::SavedCheckpoint;
use crate::context::{Call, Context, Reason};
use crate::http::{HttpError, Request, Response};
use crate::{Job, params};

/// One run of a job, attempt by attempt, against a fake host.
///
/// Without an HTTP script every origin is denied, as it is without a grant.
pub struct Harness<J> {
    host: Rc<FakeHost>,
    call: Call,
    fence: u64,
    job: PhantomData<fn() -> J>,
}

impl<J: Job> Default for Harness<J> {
    fn default() -> Self {
        Self::new()
    }
}

impl<J: Job> Harness<J> {
    /// A fresh run without parameters, of job `job` at 2026-01-01 00:00 UTC.
    pub fn new() -> Self {
        let host = FakeHost::default();
        host.schema.set(J::CHECKPOINT_SCHEMA);
        let nominal = "2026-01-01T00:00:00Z".to_owned();
        Self {
            host: Rc::new(host),
            call: Call {
                job: "job".to_owned(),
                run_id: format!("job@{nominal}"),
                attempt: 0,
                actual_time: nominal.clone(),
                nominal_time: nominal,
                previous_success: None,
                deadline: None,
                reason: Reason::Scheduled,
                parameters: "{}".to_owned(),
                fence: String::new(),
            },
            fence: 0,
            job: PhantomData,
        }
    }

    /// Sets the parameters.
    ///
    /// # Panics
    ///
    /// If they cannot be written as JSON.
    #[must_use]
    pub fn params<P: Serialize + ?Sized>(mut self, params: &P) -> Self {
        #[allow(clippy::expect_used, reason = "an error of the test's author")]
        let json = serde_json::to_string(params).expect("parameters that can be JSON");
        self.call.parameters = json;
        self
    }

    /// Changes what the host says of the attempt; number and fence are set with each attempt.
    #[must_use]
    pub fn call(mut self, change: impl FnOnce(&mut Call)) -> Self {
        change(&mut self.call);
        self
    }

    /// Answers HTTP requests.
    #[must_use]
    pub fn http(
        self,
        script: impl FnMut(&Request) -> Result<Response, HttpError> + 'static,
    ) -> Self {
        *self.host.http.borrow_mut() = Some(Box::new(script));
        self
    }

    /// Grants a secret.
    #[must_use]
    pub fn secret(self, name: &str, value: &str) -> Self {
        self.host
            .secrets
            .borrow_mut()
            .insert(name.to_owned(), value.to_owned());
        self
    }

    /// Lets every host call take this long by the fake clock, which otherwise stands still.
    #[must_use]
    pub fn tick(self, tick: Duration) -> Self {
        self.host.tick.set(tick);
        self
    }

    /// Leaves a checkpoint as if an earlier attempt had saved it.
    #[must_use]
    pub fn saved(self, schema: u32, data: impl Into<Vec<u8>>) -> Self {
        let attempt = self.call.attempt;
        *self.host.checkpoint.borrow_mut() = Some(SavedCheckpoint {
            schema,
            data: data.into(),
            attempt,
        });
        self
    }

    /// Makes the next attempt of the run.
    pub fn attempt(&mut self) -> Attempt {
        self.run(None)
    }

    /// Makes the next attempt of the run and lets something go wrong in it.
    pub fn attempt_with(&mut self, fault: Fault) -> Attempt {
        self.run(Some(fault))
    }

    /// Makes attempts until the run is complete, failed for good or cancelled, at most `limit`.
    ///
    /// # Panics
    ///
    /// If the run is not over by then.
    pub fn finish(&mut self, limit: u32) -> Attempt {
        let mut ended = None;
        for _ in 0..limit {
            let attempt = self.attempt();
            if matches!(
                attempt.ended,
                Ended::Done(_) | Ended::Fatal(_) | Ended::Cancelled
            ) {
                return attempt;
            }
            ended = Some(attempt.ended);
        }
        #[allow(clippy::panic, reason = "the assertion of this function")]
        {
            panic!("the run is not over after {limit} attempts; the last ended as {ended:?}");
        }
    }

    /// Begins another run of the same job: it keeps the state and has no checkpoint.
    pub fn next_run(&mut self, run_id: &str) {
        run_id.clone_into(&mut self.call.run_id);
        self.call.attempt = 0;
        self.call.reason = Reason::Scheduled;
        *self.host.checkpoint.borrow_mut() = None;
    }

    /// The current checkpoint; none after success.
    ///
    /// # Panics
    ///
    /// If its bytes are not of the job's type.
    pub fn checkpoint(&self) -> Option<J::Checkpoint> {
        #[allow(clippy::expect_used, reason = "an error of the test's author")]
        self.saved_checkpoint()
            .map(|saved| serde_json::from_slice(&saved.data).expect("a checkpoint of the job"))
    }

    /// The current checkpoint as the host keeps it.
    pub fn saved_checkpoint(&self) -> Option<SavedCheckpoint> {
        self.host.checkpoint.borrow().clone()
    }

    /// The value of a key of the job's state.
    pub fn state(&self, key: &str) -> Option<Vec<u8>> {
        self.host.state.borrow().get(key).cloned()
    }

    /// All HTTP requests so far.
    pub fn requests(&self) -> Vec<Request> {
        self.host.requests.borrow().clone()
    }

    /// All log lines so far.
    pub fn logs(&self) -> Vec<LogLine> {
        self.host.logs.borrow().clone()
    }

    /// All progress reports so far.
    pub fn progress(&self) -> Vec<ProgressReport> {
        self.host.progress.borrow().clone()
    }

    fn run(&mut self, fault: Option<Fault>) -> Attempt {
        self.call.attempt += 1;
        self.fence += 1;
        self.call.fence = format!("{:020}", self.fence);
        if self.call.attempt > 1 {
            self.call.reason = Reason::Resume;
        }
        self.host.begin(self.call.attempt, fault);
        let call = self.call.clone();
        let ended = super::with_host(self.host.clone(), || {
            panic::catch_unwind(AssertUnwindSafe(|| {
                let params = params::parse(&call.parameters)?;
                J::run(&mut Context::new(call), params)
            }))
        });
        let ended = match ended {
            Ok(result) => Ended::from(result),
            Err(cause) if cause.is::<Killed>() => Ended::Killed,
            Err(cause) => Ended::Panicked(panic_text(&*cause)),
        };
        match ended {
            Ended::Killed => {}
            Ended::Done(_) => self.host.succeed(),
            _ => self.host.flush_offer(),
        }
        Attempt {
            ended,
            number: self.call.attempt,
            calls: self.host.calls.get(),
            saves: self.host.saves.get(),
            requests: self.host.answered.get(),
        }
    }
}

/// Kills a run at its first host call, another at its second, and so on until one is not killed
/// any more; finishes each and hands it to `check`. Returns how many runs were killed.
///
/// `make` makes a fresh run with a fresh world behind its HTTP script each time.
///
/// # Panics
///
/// If a run is not over three attempts after it was killed.
pub fn kill_everywhere<J: Job>(
    mut make: impl FnMut() -> Harness<J>,
    mut check: impl FnMut(&Harness<J>, &Attempt),
) -> u32 {
    let mut killed = 0;
    loop {
        let mut harness = make();
        let first = harness.attempt_with(Fault::KillAfterCalls(killed + 1));
        if first.ended != Ended::Killed {
            check(&harness, &first);
            return killed;
        }
        let last = harness.finish(3);
        check(&harness, &last);
        killed += 1;
    }
}

fn panic_text(cause: &(dyn std::any::Any + Send)) -> String {
    if let Some(text) = cause.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = cause.downcast_ref::<String>() {
        text.clone()
    } else {
        "a panic without text".to_owned()
    }
}
