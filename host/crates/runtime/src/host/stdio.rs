//! Standard output and standard error: complete lines go to the log, a tail is kept for failures,
//! and a write never fails. (An error would make a guest's `eprintln!` panic, and with the pipe full
//! the panic's own text would be lost.)

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::io::AsyncWrite;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamResult};

use super::lock;
use crate::attempt_host::{LogLevel, LogSource};
use crate::host::log::LogDesk;
use crate::text;

/// Bytes kept of the end of a stream, in two halves: at least this many are there.
const TAIL: usize = 4 << 10;
/// Bytes that one write may carry.
const PERMIT: usize = 64 << 10;
/// A line without an end is handed on in pieces of this size.
const LINE_MAX: usize = 8 << 10;

/// One of the two streams of an attempt. Clones are the same stream.
#[derive(Clone)]
pub(crate) struct Capture {
    inner: Arc<Mutex<Inner>>,
}

struct Inner {
    log: Arc<LogDesk>,
    source: LogSource,
    /// The line that has no end yet.
    partial: Vec<u8>,
    /// The older and the newer half of the tail.
    tail: (Vec<u8>, Vec<u8>),
}

impl Capture {
    pub(crate) fn new(source: LogSource, log: Arc<LogDesk>) -> Self {
        Self {
            inner: Arc::new(Mutex::new(Inner {
                log,
                source,
                partial: Vec::new(),
                tail: (Vec::new(), Vec::new()),
            })),
        }
    }

    fn write(&self, bytes: &[u8]) {
        let mut inner = lock(&self.inner);
        inner.keep_tail(bytes);
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let complete = piece.ends_with(b"\n");
            for chunk in piece.chunks(LINE_MAX) {
                inner.partial.extend_from_slice(chunk);
                if inner.partial.len() >= LINE_MAX {
                    inner.hand_on();
                }
            }
            if complete {
                inner.hand_on();
            }
        }
    }

    /// Hands the unfinished last line on.
    pub(crate) fn finish(&self) {
        lock(&self.inner).hand_on();
    }

    /// The end of what was written.
    pub(crate) fn tail(&self) -> String {
        let inner = lock(&self.inner);
        let mut bytes = inner.tail.0.clone();
        bytes.extend_from_slice(&inner.tail.1);
        text::lossy(&bytes)
    }
}

impl Inner {
    fn keep_tail(&mut self, bytes: &[u8]) {
        let bytes = &bytes[bytes.len().saturating_sub(TAIL)..];
        if self.tail.1.len() + bytes.len() > TAIL {
            self.tail.0 = std::mem::take(&mut self.tail.1);
        }
        self.tail.1.extend_from_slice(bytes);
    }

    fn hand_on(&mut self) {
        let line = std::mem::take(&mut self.partial);
        let line = line.strip_suffix(b"\n").unwrap_or(&line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            return;
        }
        let level = match self.source {
            LogSource::Stderr => LogLevel::Warn,
            _ => LogLevel::Info,
        };
        self.log
            .line(level, self.source, &String::from_utf8_lossy(line), &[]);
    }
}

impl IsTerminal for Capture {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Capture {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

impl AsyncWrite for Capture {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        self.write(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[wasmtime_wasi::async_trait]
impl Pollable for Capture {
    async fn ready(&mut self) {}
}

#[wasmtime_wasi::async_trait]
impl OutputStream for Capture {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        Self::write(self, &bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(PERMIT)
    }
}
