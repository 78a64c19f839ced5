//! HTTP/1 connections within limits: whoever reaches the port, the pod keeps its file descriptors for
//! its store and its folders, and ends when it is told to.

use std::io::ErrorKind;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// How soon the port accepts again after the process had no file descriptor left.
const ACCEPT_AGAIN: Duration = Duration::from_secs(1);

/// What clients may take of a pod.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    /// How long a connection may be without a whole request head: before its first one, in the middle
    /// of one, and after an answer. Answers may take as long as they like.
    pub header_read: Duration,
    /// Connections at a time; further ones are closed at once.
    pub connections: usize,
    /// How long requests in progress have when the pod ends.
    pub last_answers: Duration,
}

/// Those of a pod.
pub(super) const LIMITS: Limits = Limits {
    header_read: Duration::from_secs(10),
    connections: 64,
    last_answers: Duration::from_secs(1),
};

/// Serves until it is told to stop, and [`Limits::last_answers`] longer at most.
pub(super) async fn serve(
    listener: TcpListener,
    app: Router,
    limits: Limits,
    stopped: CancellationToken,
) {
    let mut connections = JoinSet::new();
    // Each trouble is told when it begins.
    let (mut full, mut failing) = (false, false);
    loop {
        let accepted = tokio::select! {
            biased;
            () = stopped.cancelled() => break,
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok(_) if connections.len() >= limits.connections => {
                if !std::mem::replace(&mut full, true) {
                    let open = connections.len();
                    tracing::warn!(open, "http.full: further connections are closed");
                }
            }
            Ok((socket, _)) => {
                failing = false;
                // Places that are taken again as soon as they are free are no end of it.
                full &= connections.len() > limits.connections / 2;
                let serving = connection(socket, app.clone(), limits, stopped.clone());
                connections.spawn(serving);
            }
            Err(error) if is_of_client(error.kind()) => {}
            Err(error) => {
                if !std::mem::replace(&mut failing, true) {
                    tracing::warn!(%error, "http.accept");
                }
                let _ = tokio::time::timeout(ACCEPT_AGAIN, stopped.cancelled()).await;
            }
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// Whether it says nothing of the port that a connection was not accepted.
fn is_of_client(kind: ErrorKind) -> bool {
    use ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(
        kind,
        ConnectionAborted | ConnectionRefused | ConnectionReset
    )
}

/// Serves one connection.
async fn connection(socket: TcpStream, app: Router, limits: Limits, stopped: CancellationToken) {
    let requests = TaskTracker::new();
    let app = TowerToHyperService::new(app);
    let counted = requests.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let (answer, token) = (app.call(request), counted.token());
        async move {
            let answer: Response<Body> = answer.await?;
            Ok::<_, std::convert::Infallible>(answer.map(|body| Answer {
                body,
                _in_progress: token,
            }))
        }
    });
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.header_read)
            .serve_connection(TokioIo::new(socket), service)
    );
    tokio::select! {
        biased;
        // What ends a connection early is its client's affair.
        _ = connection.as_mut() => return,
        () = stopped.cancelled() => {}
    }
    connection.as_mut().graceful_shutdown();
    // Half a request would be waited for; without a request in progress one look is enough, which writes
    // out the rest of an answer as far as the socket takes it.
    let left = if requests.is_empty() {
        Duration::ZERO
    } else {
        limits.last_answers
    };
    let _ = tokio::time::timeout(left, connection).await;
}

/// The body of an answer: its request is in progress until all of it is taken.
struct Answer {
    body: Body,
    _in_progress: TaskTrackerToken,
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
