//! Servers that answer what they should not, or that are not who they say (C28, C61).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use wasmcron_core::view::PodLoad;
use wasmcron_store::StoreError;
use wasmcron_store::pods::{Pods as _, Standing};
use wasmcron_store::redis::{RedisOptions, RedisStore};
use wasmcron_tests::conformance::{LONG, World};
use wasmcron_tests::redis_server::RedisServer;
use wasmcron_tests::scripted::{Answers, Scripted};

use crate::harness::{RedisHarness, on_runtime};

async fn connect(url: &str) -> Result<RedisStore, StoreError> {
    RedisStore::connect(RedisOptions::new(url)).await
}

/// A server that reads its data from disk, or cannot serve for another reason that passes, says so: that
/// is an outage, and named. (C61)
#[test]
fn c61_a_server_that_is_not_ready_is_unavailable() {
    const STATES: &[(Answers, &str)] = &[
        (
            &[("*", "-LOADING Redis is loading the dataset in memory\r\n")],
            "loading",
        ),
        (
            &[("*", "-MASTERDOWN Link with MASTER is down\r\n")],
            "master",
        ),
        (
            &[("*", "-BUSY Redis is busy running a script.\r\n")],
            "busy",
        ),
        (&[("*", "-CLUSTERDOWN The cluster is down\r\n")], "cluster"),
        (
            &[("*", "-TRYAGAIN Multiple keys request during rehashing\r\n")],
            "rehashing",
        ),
    ];
    on_runtime(async {
        for (answers, named) in STATES {
            let server = Scripted::start(0, answers).await.expect("a port");
            let answer = connect(&server.url()).await;
            let Err(error @ StoreError::Unavailable { .. }) = answer else {
                panic!("{answers:?}: {answer:?}");
            };
            assert!(error.is_transient());
            assert!(error.to_string().to_lowercase().contains(named), "{error}");
        }
    });
}

/// A server that is too old is refused with both versions.
#[test]
fn an_old_server_is_refused() {
    const ANSWERS: Answers = &[
        ("INFO", "$22\r\nredis_version:6.0.16\r\n\r\n"),
        ("TIME", "*2\r\n$10\r\n1700000000\r\n$1\r\n0\r\n"),
        ("CONFIG", "-ERR unknown command\r\n"),
        ("*", "+OK\r\n"),
    ];
    on_runtime(async {
        let server = Scripted::start(0, ANSWERS).await.expect("a port");
        let answer = connect(&server.url()).await;
        let Err(StoreError::Refused { message, .. }) = answer else {
            panic!("{answer:?}");
        };
        assert!(
            message.contains("6.0.16") && message.contains("6.2"),
            "{message}"
        );
    });
}

/// A server with as many clients as it may have says so; that passes as well.
#[test]
fn a_server_full_of_clients_is_unavailable() {
    on_runtime(async {
        let harness = RedisHarness::start().await;
        let mut hand = harness.hand().await;
        let limit = async |hand: &mut redis::aio::MultiplexedConnection, clients: u32| {
            let mut cmd = redis::cmd("CONFIG");
            cmd.arg("SET").arg("maxclients").arg(clients);
            let done: redis::RedisResult<()> = cmd.query_async(hand).await;
            done.expect("CONFIG SET");
        };
        limit(&mut hand, 1).await;
        let answer = connect(harness.server.url()).await;
        assert!(
            matches!(answer, Err(StoreError::Unavailable { .. })),
            "{answer:?}"
        );
        limit(&mut hand, 100).await;
        let store = RedisStore::connect(harness.options()).await;
        store.expect("the store").now().await.expect("the clock");
    });
}

/// TLS with a certificate that nobody vouches for: a person has to act, and learns what is wrong.
#[test]
fn a_wrong_certificate_is_refused() {
    on_runtime(async {
        let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
        let pem = include_bytes!("tls/server.pem");
        let certificate = CertificateDer::from_pem_slice(pem).expect("a certificate");
        let key = PrivateKeyDer::from_pem_slice(include_bytes!("tls/server.key")).expect("a key");
        let config = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .expect("a configuration");
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("its address").port();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                // Whether it is accepted is the client's affair.
                tokio::spawn(async move { acceptor.accept(stream).await.map(drop) });
            }
        });
        for ca in [None, Some(include_bytes!("tls/other-ca.pem").to_vec())] {
            let mut options = RedisOptions::new(format!("rediss://localhost:{port}/"));
            options.tls_ca = ca;
            let answer = RedisStore::connect(options).await;
            let Err(StoreError::Refused { message, .. }) = answer else {
                panic!("{answer:?}");
            };
            assert!(message.contains("certificate"), "{message}");
        }
    });
}

/// A server that kept its data over a restart: pods go on as those they were.
#[test]
fn a_restart_with_its_data_forgets_nobody() {
    on_runtime(async {
        let keeping = ["--appendonly", "yes", "--appendfsync", "always"];
        let server = RedisServer::start_with(&keeping).await;
        let harness = RedisHarness::sharing(Arc::new(server), "kept");
        let options = harness.options();
        let store = RedisStore::connect(options).await.expect("the store");
        let me = wasmcron_core::ids::PodRef {
            address: "a".parse().expect("an address"),
            session: "01JDX000000000000000000001".parse().expect("a session"),
        };
        let now = store.now().await.expect("now");
        let report = wasmcron_tests::conformance::report(now);
        store.register(&me, now, &report).await.expect("register");
        let mut server = Arc::into_inner(harness.server).expect("nobody else has it");
        server.restart().await;
        let beat = store.heartbeat(&me, &PodLoad::default(), LONG).await;
        assert!(matches!(beat, Ok(Standing::Current { .. })), "{beat:?}");
    });
}

/// While the server is away, a call fails soon and does not try to connect more than once or twice.
#[test]
fn a_call_to_nobody_makes_no_storm() {
    on_runtime(async {
        let mut server = RedisServer::start().await;
        let mut options = RedisOptions::new(server.url());
        options.response_timeout = Duration::from_secs(10);
        let store = RedisStore::connect(options).await.expect("the store");
        server.kill();
        let listener = TcpListener::bind(("127.0.0.1", server.port())).await;
        let listener = listener.expect("the server's port");
        let accepted = Arc::new(AtomicUsize::new(0));
        let counter = accepted.clone();
        tokio::spawn(async move {
            while listener.accept().await.is_ok() {
                counter.fetch_add(1, Ordering::Relaxed);
            }
        });
        const CALLS: usize = 20;
        for _ in 0..CALLS {
            let answer = store.now().await;
            assert!(
                matches!(answer, Err(StoreError::Unavailable { .. })),
                "{answer:?}"
            );
        }
        let connections = accepted.load(Ordering::Relaxed);
        assert!(connections <= 3 * CALLS, "{connections} connections");
    });
}

/// A password that was changed while pods run: each call is refused and says why, until it is put back.
#[test]
fn a_changed_password_is_refused_until_it_is_back() {
    on_runtime(async {
        let harness = Arc::new(RedisHarness::start().await);
        let world = World::new(harness.clone()).await;
        let pod = world.pod("a").await;
        let mut hand = harness.hand().await;
        let order = async |hand: &mut redis::aio::MultiplexedConnection, words: &[&str]| {
            let mut cmd = redis::cmd(words[0]);
            cmd.arg(&words[1..]);
            let done: redis::RedisResult<redis::Value> = cmd.query_async(hand).await;
            done.expect("an order");
        };
        order(&mut hand, &["CONFIG", "SET", "requirepass", "new"]).await;
        order(
            &mut hand,
            &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"],
        )
        .await;
        let beat = world.store.heartbeat(&pod, &PodLoad::default(), LONG).await;
        assert!(matches!(beat, Err(StoreError::Refused { .. })), "{beat:?}");
        order(&mut hand, &["CONFIG", "SET", "requirepass", ""]).await;
        world.beat(&pod).await;
    });
}
