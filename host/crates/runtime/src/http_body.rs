//! Bodies of outbound requests, counted.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::SendRequest;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep};
use wasmtime_wasi_http::{Error, WasiBody};

use crate::control::AttemptControl;
use crate::grants::Origin;
use crate::http_client::Pool;

/// A request's body: stops at its limit, and when the lease has run out.
pub(crate) struct Outbound {
    body: WasiBody,
    control: AttemptControl,
    limit: u64,
    sent: u64,
}

impl Outbound {
    pub(crate) fn new(body: WasiBody, control: AttemptControl, limit: u64) -> Self {
        Self {
            body,
            control,
            limit,
            sent: 0,
        }
    }
}

impl Body for Outbound {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if self.control.lease_expired() {
            return Poll::Ready(Some(Err(Error::HttpRequestDenied)));
        }
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(data) = frame.data_ref()
        {
            self.sent += data.len() as u64;
            if self.sent > self.limit {
                let limit = Some(self.limit);
                return Poll::Ready(Some(Err(Error::HttpRequestBodySize(limit))));
            }
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A response's body: stops at its limit and when its server falls silent, and gives the connection
/// back to the pool once it has been read to its end.
pub(crate) struct Inbound {
    body: Incoming,
    limit: u64,
    received: u64,
    piece_time: Duration,
    silence: Pin<Box<Sleep>>,
    _permit: OwnedSemaphorePermit,
    back: Option<(Arc<Pool>, Origin, SendRequest<WasiBody>)>,
}

impl Inbound {
    pub(crate) fn new(
        body: Incoming,
        limit: u64,
        piece_time: Duration,
        permit: OwnedSemaphorePermit,
        back: (Arc<Pool>, Origin, SendRequest<WasiBody>),
    ) -> Self {
        Self {
            body,
            limit,
            received: 0,
            piece_time,
            silence: Box::pin(tokio::time::sleep(piece_time)),
            _permit: permit,
            back: Some(back),
        }
    }

    fn give_back(&mut self) {
        if let Some((pool, origin, sender)) = self.back.take() {
            pool.give_back(origin, sender);
        }
    }
}

impl Body for Inbound {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Pending => {
                if self.silence.as_mut().poll(cx).is_ready() {
                    self.back = None;
                    return Poll::Ready(Some(Err(Error::ConnectionReadTimeout)));
                }
                Poll::Pending
            }
            Poll::Ready(None) => {
                self.give_back();
                Poll::Ready(None)
            }
            Poll::Ready(Some(Err(error))) => {
                self.back = None;
                Poll::Ready(Some(Err(error.into())))
            }
            Poll::Ready(Some(Ok(frame))) => {
                let next = Instant::now() + self.piece_time;
                self.silence.as_mut().reset(next);
                self.received += frame.data_ref().map_or(0, Bytes::len) as u64;
                if self.received > self.limit {
                    self.back = None;
                    let limit = Some(self.limit);
                    return Poll::Ready(Some(Err(Error::HttpResponseBodySize(limit))));
                }
                Poll::Ready(Some(Ok(frame)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Inbound {
    fn drop(&mut self) {
        // A response without a body is at its end without having been read.
        if self.body.is_end_stream() {
            self.give_back();
        }
    }
}
