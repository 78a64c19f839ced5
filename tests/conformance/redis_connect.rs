//! Connecting: passwords, time-outs, wrong places, and what the server says of itself.

use std::time::{Duration, Instant};

use wasmcron_store::StoreError;
use wasmcron_store::pods::Pods as _;
use wasmcron_store::redis::{RedisOptions, RedisStore};
use wasmcron_tests::redis_server::RedisServer;

use crate::harness::on_runtime;

async fn connect(url: &str) -> Result<RedisStore, StoreError> {
    RedisStore::connect(RedisOptions::new(url)).await
}

fn refused_without(answer: Result<RedisStore, StoreError>, secrets: &[&str]) {
    let Err(error @ StoreError::Refused { .. }) = answer else {
        panic!("{answer:?}");
    };
    let text = format!("{error} {error:?}");
    for secret in secrets {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
}

#[test]
fn the_right_password_opens() {
    on_runtime(async {
        let server = RedisServer::start_with(&["--requirepass", "p@ss/word"]).await;
        let at = format!("127.0.0.1:{}", server.port());
        let store = connect(&format!("redis://:p%40ss%2Fword@{at}/"))
            .await
            .expect("the store");
        store.now().await.expect("the clock");
        let shown = format!("{store:?}");
        assert!(
            !shown.contains("p@ss") && !shown.contains("p%40ss"),
            "{shown}"
        );
    });
}

#[test]
fn a_wrong_password_is_refused_and_not_repeated() {
    on_runtime(async {
        let server = RedisServer::start_with(&["--requirepass", "correct-horse"]).await;
        let at = format!("127.0.0.1:{}", server.port());
        let secrets = ["correct-horse", "battery-staple"];
        refused_without(
            connect(&format!("redis://:battery-staple@{at}/")).await,
            &secrets,
        );
        refused_without(
            connect(&format!("redis://ann:battery-staple@{at}/")).await,
            &secrets,
        );
        refused_without(connect(&format!("redis://{at}/")).await, &secrets);
    });
}

#[test]
fn a_user_without_the_right_is_refused() {
    on_runtime(async {
        let server = RedisServer::start().await;
        let client = redis::Client::open(server.url()).expect("a URL");
        let mut hand = client
            .get_multiplexed_async_connection()
            .await
            .expect("a connection");
        let mut cmd = redis::cmd("ACL");
        cmd.arg("SETUSER").arg("reader");
        for rule in ["on", ">hunter2", "~*", "&*", "+@read", "+info", "+time"] {
            cmd.arg(rule);
        }
        let done: redis::RedisResult<()> = cmd.query_async(&mut hand).await;
        done.expect("ACL SETUSER");
        let url = format!("redis://reader:hunter2@127.0.0.1:{}/", server.port());
        let store = connect(&url).await.expect("reading is enough to connect");
        let me = wasmcron_core::ids::PodRef {
            address: "a".parse().expect("an address"),
            session: "01JDX000000000000000000001".parse().expect("a session"),
        };
        let beat = store
            .heartbeat(&me, &Default::default(), Duration::from_secs(1))
            .await;
        assert!(matches!(beat, Err(StoreError::Refused { .. })), "{beat:?}");
    });
}

#[test]
fn a_url_that_is_none_is_refused() {
    on_runtime(async {
        for url in [
            "",
            "redis",
            "http://127.0.0.1/",
            "redis://:secret@host:port/",
        ] {
            refused_without(connect(url).await, &["secret"]);
        }
    });
}

#[test]
fn nobody_there_is_unavailable_soon() {
    on_runtime(async {
        let mut server = RedisServer::start().await;
        server.kill();
        let began = Instant::now();
        let answer = connect(server.url()).await;
        assert!(
            matches!(answer, Err(StoreError::Unavailable { .. })),
            "{answer:?}"
        );
        assert!(
            began.elapsed() < Duration::from_secs(5),
            "{:?}",
            began.elapsed()
        );
    });
}

/// Whichever of the two was given.
#[test]
fn the_server_says_what_it_is() {
    on_runtime(async {
        let server = RedisServer::start_with(&["--maxmemory-policy", "allkeys-lru"]).await;
        let store = connect(server.url()).await.expect("the store");
        let mut info = store.server_info().await.expect("server_info");
        assert!(["Redis", "Valkey"].contains(&info.name));
        assert_eq!((info.role.as_str(), info.replicas), ("master", 0));
        assert!(!info.warnings().is_empty() && !info.append_only);
        assert_eq!(info.snapshots, Some(false));
        info.check().expect("new enough");
        for (version, accepted) in [
            ("6.2.0", true),
            ("7.0.15", true),
            ("6.0.16", false),
            ("5.0.3", false),
            ("10.1", true),
        ] {
            info.version = version.into();
            assert_eq!(info.check().is_ok(), accepted, "{version}");
        }
    });
}
