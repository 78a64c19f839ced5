//! The pod's HTTP port: metrics and health.

mod health;
mod metrics;
mod server;

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use axum::Router;
use axum::routing::get;

use crate::services::Pod;

/// A bound port that does not serve yet.
pub struct Listener {
    socket: tokio::net::TcpListener,
    address: SocketAddr,
}

impl Listener {
    /// Where it listens; the port is the real one even if a free one was asked for.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Binds the port that the settings name.
///
/// # Errors
/// When the address is taken or not this machine's.
pub async fn bind(pod: &Pod) -> Result<Listener> {
    let wanted = pod.settings.http.listen;
    let socket = tokio::net::TcpListener::bind(wanted)
        .await
        .with_context(|| format!("http.listen: cannot listen on {wanted}"))?;
    let address = socket.local_addr().context("http.listen")?;
    Ok(Listener { socket, address })
}

/// Serves until the pod's loops end.
pub async fn run(pod: Arc<Pod>, listener: Listener) {
    let stopped = pod.stopped.clone();
    let app = Router::new()
        .route("/metrics", get(metrics::show))
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .with_state(pod);
    server::serve(listener.socket, app, server::LIMITS, stopped).await;
}
