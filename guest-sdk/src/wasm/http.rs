//! HTTP over `wasi:http/outgoing-handler`, blocking on pollables.

use std::time::Duration;

use super::bindings::wasi::clocks::monotonic_clock;
use super::bindings::wasi::http::outgoing_handler;
use super::bindings::wasi::http::types::{
    ErrorCode, Fields, FutureIncomingResponse, IncomingResponse, Method, OutgoingBody,
    OutgoingRequest, RequestOptions, Scheme, http_error_code,
};
use super::bindings::wasi::io::poll::{Pollable, poll};
use super::bindings::wasi::io::streams::StreamError;
use crate::http::{HttpError, HttpErrorKind, Request, Response};

/// How much is read from or written to a stream at once.
const CHUNK: u64 = 64 << 10;

/// Sends a request and reads the whole response.
pub(super) fn send(request: &Request) -> Result<Response, HttpError> {
    let timer = Timer::new(request.timeout);
    let outgoing = outgoing(request)?;
    let body = if request.body.is_empty() {
        None
    } else {
        Some(outgoing.body().map_err(|()| invalid(request, "a body"))?)
    };
    let future = outgoing_handler::handle(outgoing, Some(options(request.timeout)))
        .map_err(|code| error(request, &code))?;
    if let Some(body) = body {
        write_body(request, &timer, &future, body)?;
    }
    let response = await_response(request, &timer, &future)?;
    read_response(request, &timer, &response)
}

/// The end of the whole request, beside the host's own limits for its parts.
struct Timer(Pollable);

impl Timer {
    fn new(timeout: Duration) -> Self {
        Self(monotonic_clock::subscribe_duration(nanos(timeout)))
    }

    /// Waits for any of `sources`.
    fn wait(&self, request: &Request, sources: &[&Pollable]) -> Result<(), HttpError> {
        let mut all = sources.to_vec();
        all.push(&self.0);
        let ready = poll(&all);
        // The time is over only if nothing else is ready: progress counts.
        if ready.iter().all(|index| *index as usize == sources.len()) {
            let detail = format!("after {} ms", request.timeout.as_millis());
            return Err(request.error(HttpErrorKind::TimedOut, detail));
        }
        Ok(())
    }
}

fn outgoing(request: &Request) -> Result<OutgoingRequest, HttpError> {
    let target = request.target()?;
    let headers = Fields::new();
    for (name, value) in &request.headers {
        headers
            .append(name, value.as_bytes())
            .map_err(|_| invalid(request, &format!("header `{name}`")))?;
    }
    let length_is_said = request
        .headers
        .iter()
        .any(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    if !request.body.is_empty() && !length_is_said {
        headers
            .append("content-length", request.body.len().to_string().as_bytes())
            .map_err(|_| invalid(request, "header `content-length`"))?;
    }
    let outgoing = OutgoingRequest::new(headers);
    let scheme = if target.tls {
        Scheme::Https
    } else {
        Scheme::Http
    };
    outgoing
        .set_method(&method(&request.method))
        .and_then(|()| outgoing.set_scheme(Some(&scheme)))
        .and_then(|()| outgoing.set_authority(Some(&target.authority)))
        .and_then(|()| outgoing.set_path_with_query(Some(&target.path_and_query)))
        .map_err(|()| invalid(request, "method, host or path"))?;
    Ok(outgoing)
}

fn options(timeout: Duration) -> RequestOptions {
    let options = RequestOptions::new();
    // A host that knows no such limits may refuse them; the timer bounds the request anyway.
    let _ = options.set_connect_timeout(Some(nanos(timeout)));
    let _ = options.set_first_byte_timeout(Some(nanos(timeout)));
    let _ = options.set_between_bytes_timeout(Some(nanos(timeout)));
    options
}

fn method(method: &str) -> Method {
    match method {
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        "POST" => Method::Post,
        "PUT" => Method::Put,
        "DELETE" => Method::Delete,
        "OPTIONS" => Method::Options,
        "PATCH" => Method::Patch,
        other => Method::Other(other.to_owned()),
    }
}

/// Writes the body as far as the server takes it. A failed write is no error of its own: the
/// response, or why there is none, comes from the future.
fn write_body(
    request: &Request,
    timer: &Timer,
    future: &FutureIncomingResponse,
    body: OutgoingBody,
) -> Result<(), HttpError> {
    let stream = body.write().map_err(|()| invalid(request, "a body"))?;
    let answered = future.subscribe();
    let writable = stream.subscribe();
    let mut rest = request.body.as_slice();
    while !rest.is_empty() {
        match stream.check_write() {
            Ok(0) if answered.ready() => return Ok(()),
            Ok(0) => timer.wait(request, &[&writable, &answered])?,
            Ok(room) => {
                let room = usize::try_from(room.min(CHUNK)).unwrap_or(usize::MAX);
                let (now, later) = rest.split_at(rest.len().min(room));
                if stream.write(now).is_err() {
                    return Ok(());
                }
                rest = later;
            }
            Err(_) => return Ok(()),
        }
    }
    if stream.flush().is_ok() {
        while matches!(stream.check_write(), Ok(0)) && !answered.ready() {
            timer.wait(request, &[&writable, &answered])?;
        }
    }
    // A stream has to be gone before its body can end, and a pollable before its stream.
    drop(writable);
    drop(stream);
    let _ = OutgoingBody::finish(body, None);
    Ok(())
}

fn await_response(
    request: &Request,
    timer: &Timer,
    future: &FutureIncomingResponse,
) -> Result<IncomingResponse, HttpError> {
    let answered = future.subscribe();
    loop {
        match future.get() {
            Some(Ok(Ok(response))) => return Ok(response),
            Some(Ok(Err(code))) => return Err(error(request, &code)),
            Some(Err(())) => {
                return Err(request.error(HttpErrorKind::Other, "the response was taken twice"));
            }
            None => timer.wait(request, &[&answered])?,
        }
    }
}

fn read_response(
    request: &Request,
    timer: &Timer,
    incoming: &IncomingResponse,
) -> Result<Response, HttpError> {
    let mut response = Response::new(incoming.status());
    for (name, value) in incoming.headers().entries() {
        response = response.with_header(&name, String::from_utf8_lossy(&value));
    }
    let broken = |()| request.error(HttpErrorKind::Interrupted, "the response has no body");
    let body = incoming.consume().map_err(broken)?;
    let stream = body.stream().map_err(broken)?;
    let readable = stream.subscribe();
    loop {
        match stream.read(CHUNK) {
            Ok(bytes) if bytes.is_empty() => timer.wait(request, &[&readable])?,
            Ok(bytes) => {
                if response.body.len() + bytes.len() > request.max_response {
                    let detail = format!("the limit is {} bytes", request.max_response);
                    return Err(request.error(HttpErrorKind::TooLarge, detail));
                }
                response.body.extend_from_slice(&bytes);
            }
            Err(StreamError::Closed) => return Ok(response),
            Err(StreamError::LastOperationFailed(cause)) => {
                return Err(match http_error_code(&cause) {
                    Some(code) => error(request, &code),
                    None => request.error(HttpErrorKind::Interrupted, cause.to_debug_string()),
                });
            }
        }
    }
}

fn invalid(request: &Request, what: &str) -> HttpError {
    request.error(HttpErrorKind::Invalid, format!("the host refused {what}"))
}

fn error(request: &Request, code: &ErrorCode) -> HttpError {
    let kind = match code {
        ErrorCode::HttpRequestDenied | ErrorCode::DestinationIpProhibited => HttpErrorKind::Denied,
        ErrorCode::ConnectionRefused => HttpErrorKind::Refused,
        ErrorCode::DnsError(_)
        | ErrorCode::DestinationNotFound
        | ErrorCode::DestinationUnavailable
        | ErrorCode::DestinationIpUnroutable => HttpErrorKind::Unreachable,
        ErrorCode::DnsTimeout
        | ErrorCode::ConnectionTimeout
        | ErrorCode::ConnectionReadTimeout
        | ErrorCode::ConnectionWriteTimeout
        | ErrorCode::HttpResponseTimeout => HttpErrorKind::TimedOut,
        ErrorCode::ConnectionTerminated | ErrorCode::HttpResponseIncomplete => {
            HttpErrorKind::Interrupted
        }
        ErrorCode::TlsProtocolError
        | ErrorCode::TlsCertificateError
        | ErrorCode::TlsAlertReceived(_) => HttpErrorKind::Tls,
        ErrorCode::HttpRequestLengthRequired
        | ErrorCode::HttpRequestBodySize(_)
        | ErrorCode::HttpRequestMethodInvalid
        | ErrorCode::HttpRequestUriInvalid
        | ErrorCode::HttpRequestUriTooLong
        | ErrorCode::HttpRequestHeaderSectionSize(_)
        | ErrorCode::HttpRequestHeaderSize(_) => HttpErrorKind::Invalid,
        ErrorCode::HttpResponseBodySize(_) => HttpErrorKind::TooLarge,
        _ => HttpErrorKind::Other,
    };
    // The code says more than the kind only where it carries a text or has no kind of its own.
    let detail = match code {
        ErrorCode::InternalError(Some(text)) => text.clone(),
        ErrorCode::ConnectionRefused | ErrorCode::HttpRequestDenied => String::new(),
        other => format!("{other:?}"),
    };
    request.error(kind, detail)
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
