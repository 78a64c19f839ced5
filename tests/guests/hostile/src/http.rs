//! Deeds over HTTP, on the bare WASI interface.

use serde_json::Value;

use crate::bindings::wasi::http::outgoing_handler;
use crate::bindings::wasi::http::types::{
    ErrorCode, Fields, IncomingResponse, Method, OutgoingBody, OutgoingRequest, Scheme,
};
use crate::bindings::wasi::io::streams::StreamError;
use crate::bindings::wasmcron::job::types::{Failure, Outcome};
use crate::{done, number, text};

/// Makes `count` requests (at least one) to `url`, one after the other, each with a body of `send`
/// bytes. Answers the last one's status and body, or the first error.
pub(crate) fn requests(params: &Value) -> Result<Outcome, Failure> {
    let mut last = String::new();
    for _ in 0..number(params, "count").max(1) {
        match request(
            text(params, "method"),
            text(params, "url"),
            number(params, "send") as usize,
        ) {
            Ok((status, body)) => {
                let shown = if body.len() > 200 {
                    body.len().to_string()
                } else {
                    String::from_utf8_lossy(&body).into_owned()
                };
                last = format!("{status} {shown}");
            }
            Err(error) => return done(error),
        }
    }
    done(last)
}

fn parts(url: &str) -> (Scheme, &str, &str) {
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
    let slash = rest.find('/').unwrap_or(rest.len());
    let scheme = match scheme {
        "http" => Scheme::Http,
        "https" => Scheme::Https,
        other => Scheme::Other(other.to_owned()),
    };
    (scheme, &rest[..slash], &rest[slash..])
}

fn request(method: &str, url: &str, send: usize) -> Result<(u16, Vec<u8>), String> {
    let (scheme, authority, path) = parts(url);
    let request = OutgoingRequest::new(Fields::new());
    let method = match method {
        "" | "GET" => Method::Get,
        "POST" => Method::Post,
        "CONNECT" => Method::Connect,
        other => Method::Other(other.to_owned()),
    };
    let set = request.set_method(&method).is_ok()
        && request.set_scheme(Some(&scheme)).is_ok()
        && request.set_authority(Some(authority)).is_ok()
        && request.set_path_with_query(Some(path)).is_ok();
    if !set {
        return Err("the request was refused while it was made".to_owned());
    }
    let body = request.body().map_err(|()| "no body")?;
    let response = outgoing_handler::handle(request, None).map_err(|code| format!("{code:?}"))?;
    send_body(body, send)?;
    response.subscribe().block();
    let response = response
        .get()
        .ok_or("not ready")?
        .map_err(|()| "taken twice")?
        .map_err(|code: ErrorCode| format!("{code:?}"))?;
    receive(&response)
}

fn send_body(body: OutgoingBody, mut bytes: usize) -> Result<(), String> {
    let stream = body.write().map_err(|()| "no stream")?;
    let chunk = [b'z'; 4096];
    while bytes > 0 {
        let piece = bytes.min(chunk.len());
        // The other side may have hung up; its response says more than this error would.
        if stream.blocking_write_and_flush(&chunk[..piece]).is_err() {
            break;
        }
        bytes -= piece;
    }
    drop(stream);
    let _ = OutgoingBody::finish(body, None);
    Ok(())
}

fn receive(response: &IncomingResponse) -> Result<(u16, Vec<u8>), String> {
    let status = response.status();
    let body = response.consume().map_err(|()| "consumed twice")?;
    let stream = body.stream().map_err(|()| "streamed twice")?;
    let mut bytes = Vec::new();
    loop {
        match stream.blocking_read(64 << 10) {
            Ok(piece) => bytes.extend_from_slice(&piece),
            Err(StreamError::Closed) => return Ok((status, bytes)),
            Err(StreamError::LastOperationFailed(error)) => {
                return Err(format!("body: {}", error.to_debug_string()));
            }
        }
    }
}

/// Makes requests and never lets go of one.
pub(crate) fn leak() -> Result<Outcome, Failure> {
    loop {
        std::mem::forget(OutgoingRequest::new(Fields::new()));
    }
}
