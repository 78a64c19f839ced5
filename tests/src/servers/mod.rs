//! Small HTTP servers that plugins of demo and tests talk to: a paged source, and a target with
//! indexes, aliases, reports and effects.
//!
//! Tests start them in their own process with [`start`]; the demo starts the programs
//! `source-server` and `target-server`.

pub mod checksum;
pub mod requests;
pub mod source;
pub mod target;
#[cfg(test)]
mod tests;

use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use axum::Router;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// A server that answers until it is dropped.
#[derive(Debug)]
pub struct Running {
    address: SocketAddr,
    task: JoinHandle<io::Result<()>>,
}

impl Running {
    /// Where it listens, as `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Waits until the server ends, which it does by an error only.
    ///
    /// # Errors
    ///
    /// That of the listener.
    pub async fn wait(mut self) -> io::Result<()> {
        (&mut self.task).await.map_err(io::Error::other)?
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Starts a server; port 0 takes a free one.
///
/// # Errors
///
/// If the address cannot be bound.
pub async fn start(listen: SocketAddr, router: Router) -> io::Result<Running> {
    let listener = TcpListener::bind(listen).await?;
    let address = listener.local_addr()?;
    let task = tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(Running { address, task })
}

/// The whole life of a server program: prints one JSON line with its address when it is ready, and
/// answers until it is killed. With `with_parent` it also ends when its standard input does, which
/// is how it follows a parent that was killed.
///
/// # Errors
///
/// If the address cannot be bound or standard output is closed.
pub async fn run_program(
    listen: SocketAddr,
    router: Router,
    with_parent: bool,
) -> anyhow::Result<()> {
    let running = start(listen, router).await?;
    let ready = serde_json::json!({
        "address": running.address.to_string(),
        "url": running.url(),
    });
    let mut out = io::stdout();
    writeln!(out, "{ready}")?;
    out.flush()?;
    if with_parent {
        // A blocked read cannot be cancelled: it has a thread of its own and ends the process.
        std::thread::spawn(|| {
            let mut buffer = [0; 64];
            while matches!(io::stdin().read(&mut buffer), Ok(read) if read > 0) {}
            std::process::exit(0);
        });
    }
    Ok(running.wait().await?)
}

/// A server whose handler panicked still shows its data: that is what a test wants to see.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
