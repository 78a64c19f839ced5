//! Verbs on their way to the thread that runs them, and their answers on the way back.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

use super::errors::{Kind, Trouble};
use super::tx::SqliteTx;
use crate::error::{Result, StoreError};

/// Verbs that wait for a thread; further callers wait for a place, as long as for an answer.
pub(super) const QUEUE_MAX: usize = 1_024;
/// What a caller waits longer than a verb may, so that it hears from the thread what is wrong.
const MARGIN: Duration = Duration::from_millis(250);

/// A verb with its caller.
pub(super) trait Job: Send {
    /// Its name.
    fn verb(&self) -> &'static str;

    /// Whether it may write.
    fn may_write(&self) -> bool;

    /// Whether its caller still waits.
    fn is_wanted(&self) -> bool;

    /// Runs it; whether what it wrote may be kept.
    fn run(&mut self, tx: &mut SqliteTx<'_>) -> bool;

    /// Answers the caller: with the trouble that kept its writes from being kept, else as it ran.
    fn answer(self: Box<Self>, trouble: Option<&Trouble>);
}

struct Call<T, F> {
    verb: &'static str,
    may_write: bool,
    body: Option<F>,
    outcome: Option<Result<T>>,
    caller: oneshot::Sender<Result<T>>,
}

impl<T, F> Job for Call<T, F>
where
    T: Send,
    F: for<'a, 'b> FnOnce(&'a mut SqliteTx<'b>) -> Result<T> + Send,
{
    fn verb(&self) -> &'static str {
        self.verb
    }

    fn may_write(&self) -> bool {
        self.may_write
    }

    fn is_wanted(&self) -> bool {
        !self.caller.is_closed()
    }

    fn run(&mut self, tx: &mut SqliteTx<'_>) -> bool {
        let Some(body) = self.body.take() else {
            return false;
        };
        // A fault in one verb must not end the thread that serves all.
        let outcome = catch_unwind(AssertUnwindSafe(|| body(tx))).unwrap_or_else(|_| {
            Err(StoreError::Refused {
                verb: self.verb,
                message: "it panicked; nothing of it was kept".to_owned(),
            })
        });
        let good = outcome.is_ok();
        self.outcome = Some(outcome);
        good
    }

    fn answer(self: Box<Self>, trouble: Option<&Trouble>) {
        let answer = match (self.outcome, trouble) {
            // Its own error says more than what happened to the others.
            (Some(Err(error)), _) => Err(error),
            (_, Some(trouble)) => Err(trouble.error(self.verb)),
            (Some(answer), None) => answer,
            (None, None) => Err(StoreError::Unavailable {
                verb: self.verb,
                message: "it was not run".to_owned(),
            }),
        };
        // A caller who is gone asks again.
        let _ = self.caller.send(answer);
    }
}

/// Where callers hand in their verbs.
pub(super) type Sender = mpsc::Sender<Box<dyn Job>>;

/// Has a verb run by whoever receives it; waits for its answer.
pub(super) async fn call<T, F>(
    jobs: &Sender,
    limit: Duration,
    verb: &'static str,
    may_write: bool,
    body: F,
) -> Result<T>
where
    T: Send + 'static,
    F: for<'a, 'b> FnOnce(&'a mut SqliteTx<'b>) -> Result<T> + Send + 'static,
{
    let unavailable = |message: String| Trouble::new(Kind::Unavailable, message).error(verb);
    let until = Instant::now() + limit + MARGIN;
    let (caller, answer) = oneshot::channel();
    let job = Box::new(Call {
        verb,
        may_write,
        body: Some(body),
        outcome: None,
        caller,
    });
    match timeout_at(until, jobs.send(job)).await {
        Ok(Ok(())) => {}
        Ok(Err(_)) => return Err(unavailable("the store is closed".to_owned())),
        Err(_) => {
            return Err(unavailable(format!(
                "{QUEUE_MAX} verbs wait already, and none was done within {limit:?}"
            )));
        }
    }
    match timeout_at(until, answer).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) => Err(unavailable("the store was closed meanwhile".to_owned())),
        Err(_) => Err(unavailable(format!("no answer within {limit:?}"))),
    }
}
