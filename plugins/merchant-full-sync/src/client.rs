//! What both sides share: headers that say who is asking, and a few tries.

use std::time::Duration;

use wasmcron_guest::http::{HttpError, Request, Response};
use wasmcron_guest::{Call, Failure, warn};

/// Tries of one request within an attempt. Without a pause between them: they are for a connection
/// that broke; a server that needs time gets it by [`PAUSE`] and another attempt.
const TRIES: u32 = 3;
/// The least wait before the next attempt, unless the server asks for another.
const PAUSE: Duration = Duration::from_secs(5);
/// The time one request may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Says with every request whose it is.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    run: String,
    attempt: u32,
    fence: String,
}

impl Client {
    pub(crate) fn new(call: &Call) -> Self {
        Self {
            run: call.run_id.clone(),
            attempt: call.attempt,
            fence: call.fence.clone(),
        }
    }

    /// Sends a request that may be repeated, and returns the first answer for which there is no
    /// hope that it passes: success, or a status that means something to the caller.
    pub(crate) fn send(&self, request: Request) -> Result<Response, Failure> {
        let request = request
            .timeout(TIMEOUT)
            .header("x-run-id", &self.run)
            .header("x-attempt", self.attempt.to_string())
            .header("x-fence", &self.fence);
        let mut tries = 0;
        loop {
            let error = match request.send() {
                Ok(response) => match passing(&response) {
                    None => return Ok(response),
                    Some(error) => error,
                },
                Err(error) => error,
            };
            tries += 1;
            if tries == TRIES || !error.is_retryable() || error.retry_after().is_some() {
                return Err(failure(error));
            }
            warn!("{error}; trying again");
        }
    }
}

/// The error of a status that may pass.
fn passing(response: &Response) -> Option<HttpError> {
    if response.is_success() {
        return None;
    }
    response
        .clone()
        .error_for_status()
        .err()
        .filter(HttpError::is_retryable)
}

/// A failure that says how long to wait.
fn failure(error: HttpError) -> Failure {
    let wait = error.retry_after().unwrap_or(PAUSE);
    Failure::from(error).after(wait)
}
