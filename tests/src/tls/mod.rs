//! A private server that speaks TLS, with a certificate for `localhost` from an authority of our own.

#![allow(
    clippy::expect_used,
    reason = "a test cannot go on without its server, and its panic is what people read"
)]

use tempfile::TempDir;

use crate::redis_server::{self, RedisServer};

/// The authority's certificate. Its key is gone: it signs nothing more.
pub const CA: &str = include_str!("ca.pem");
const CERTIFICATE: &str = include_str!("server.pem");
const KEY: &str = include_str!("server.key");

/// A server with a port for TLS beside its open one.
#[derive(Debug)]
pub struct TlsServer {
    /// It, and its open port.
    pub open: RedisServer,
    /// Its port for TLS.
    pub port: u16,
    _files: TempDir,
}

impl TlsServer {
    /// Starts one that asks clients for a certificate or does not.
    ///
    /// # Panics
    /// When it does not start: the server's program may have been built without TLS.
    pub async fn start(asks_clients: bool) -> TlsServer {
        let files = tempfile::tempdir().expect("a folder");
        let file = |name: &str, text: &str| {
            let path = files.path().join(name);
            std::fs::write(&path, text).expect("a file");
            path.display().to_string()
        };
        let port = redis_server::free_port();
        let arguments = [
            ("--tls-port", port.to_string()),
            ("--tls-cert-file", file("server.pem", CERTIFICATE)),
            ("--tls-key-file", file("server.key", KEY)),
            ("--tls-ca-cert-file", file("ca.pem", CA)),
            (
                "--tls-auth-clients",
                if asks_clients { "yes" } else { "no" }.to_owned(),
            ),
        ];
        let words: Vec<&str> = arguments
            .iter()
            .flat_map(|(name, value)| [*name, value.as_str()])
            .collect();
        let open = RedisServer::start_with(&words).await;
        TlsServer {
            open,
            port,
            _files: files,
        }
    }

    /// Its URL under a name of this machine.
    #[must_use]
    pub fn url(&self, host: &str) -> String {
        format!("rediss://{host}:{}/", self.port)
    }
}
