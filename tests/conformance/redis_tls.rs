//! A server that speaks TLS: whom the store believes, and what it says of one that it does not believe.

use std::sync::Arc;
use std::time::Duration;

use wasmcron_store::StoreError;
use wasmcron_store::redis::{RedisOptions, RedisStore};
use wasmcron_tests::conformance::{self, World};
use wasmcron_tests::redis_server::RedisServer;
use wasmcron_tests::tls::{CA, TlsServer};

use crate::harness::{At, on_runtime};

const OTHER_CA: &str = include_str!("tls/other-ca.pem");

fn options(url: String, ca: &str) -> RedisOptions {
    let mut options = RedisOptions::new(url);
    options.tls_ca = Some(ca.as_bytes().to_vec());
    options.connect_timeout = Duration::from_secs(10);
    options.response_timeout = Duration::from_secs(10);
    options
}

/// Calls, takes that block and wake-ups each have a connection of their own; all go over TLS.
#[test]
fn the_right_certificate_opens() {
    on_runtime(async {
        let server = TlsServer::start(false).await;
        let over = |namespace: &str| {
            let mut options = options(server.url("localhost"), CA);
            options.namespace = namespace.to_owned();
            World::new(Arc::new(At(options)))
        };
        conformance::life::from_registration_to_success(over("life").await).await;
        conformance::control::verbs_wake_the_listeners(over("control").await).await;
    });
}

/// Whoever cannot be believed is refused at once, with the reason: a person has to act.
#[test]
fn who_cannot_be_believed_is_refused_with_the_reason() {
    on_runtime(async {
        let server = TlsServer::start(false).await;
        let asking = TlsServer::start(true).await;
        for (url, ca, why) in [
            (
                server.url("localhost"),
                OTHER_CA,
                "none of the trusted ones",
            ),
            (
                server.url("127.0.0.1"),
                CA,
                "not valid for name \"127.0.0.1\"",
            ),
            (asking.url("localhost"), CA, "asks for a client certificate"),
        ] {
            let answer = RedisStore::connect(options(url.clone(), ca)).await;
            let Err(StoreError::Refused { message, .. }) = answer else {
                panic!("{url}: {answer:?}");
            };
            assert!(message.contains(why), "{url}: {message}");
        }
    });
}

/// A server that speaks no TLS waits for more of what it takes for a command, and says nothing.
#[test]
fn a_server_without_tls_is_told_apart_from_a_slow_one() {
    on_runtime(async {
        let server = RedisServer::start().await;
        let url = format!("rediss://localhost:{}/", server.port());
        let mut options = options(url, CA);
        options.connect_timeout = Duration::from_millis(300);
        options.response_timeout = Duration::from_millis(300);
        let answer = RedisStore::connect(options).await;
        let Err(StoreError::Unavailable { message, .. }) = answer else {
            panic!("{answer:?}");
        };
        assert!(message.contains("redis:// is without it"), "{message}");
    });
}
