//! Pods whose store goes away, comes back, or refuses them.

use std::time::Duration;

use serde_json::Value;
use tokio::net::TcpListener;
use wasmcron_tests::fleet;
use wasmcron_tests::host_binary;
use wasmcron_tests::redis_sentinel::{Watched, order};
use wasmcron_tests::redis_server::RedisServer;

use crate::harness::{Fleet, PATIENCE, PodProcess, Timing, jobs, until};

/// What a pod logged with this message. That an outage floods no log can be seen nowhere else.
fn lines(pod: &PodProcess, message: &str) -> Vec<Value> {
    let text = pod.log_text();
    let events = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    events
        .filter(|event: &Value| event["message"] == message)
        .collect()
}

/// The store is killed under load and comes back with its data: each pod says so in one line, once more
/// when it is over, does not storm the port meanwhile, and goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_store_is_one_line_a_pod() {
    let keeping = ["--appendonly", "yes", "--appendfsync", "always"];
    let mut fleet = Fleet::with_store(Timing::Fast, &keeping).await;
    fleet.install("hello", "hello");
    fleet.install("hostile", "hostile");
    fleet.write_job("tick", &jobs::hello("every = \"300ms\""));
    let sleeps = "plugin = \"hostile\"\nevery = \"1s\"\n[params]\ndo = \"sleep\"\ncount = 700\n";
    fleet.write_job("sleeps", sleeps);
    let pods = [fleet.pod("a").await, fleet.pod("b").await];
    fleet.live(2).await;
    for job in ["tick", "sleeps"] {
        fleet.ticks_again(job).await;
    }
    fleet.store_mut().kill();
    let port = fleet.store_mut().port();
    let listener = TcpListener::bind(("127.0.0.1", port))
        .await
        .expect("its port");
    let mut connections = 0;
    let over = tokio::time::Instant::now() + Duration::from_secs(5);
    while let Ok(Ok(_)) = tokio::time::timeout_at(over, listener.accept()).await {
        connections += 1;
    }
    drop(listener);
    // Some ten loops a pod, each at most every 100 ms at first and every 2 s later.
    assert!(connections < 2 * 150, "{connections} connections in 5 s");
    fleet.store_mut().restart().await;
    for job in ["tick", "sleeps"] {
        fleet.ticks_again(job).await;
    }
    for pod in &pods {
        until("the end of the outage", PATIENCE, async || {
            (!lines(pod, "store.back").is_empty()).then_some(())
        })
        .await;
        let (lost, back) = (lines(pod, "store.lost"), lines(pod, "store.back"));
        assert_eq!((lost.len(), back.len()), (1, 1), "{lost:?} {back:?}");
        assert!(back[0]["failures"].as_u64() > Some(5), "{back:?}");
        assert_eq!(lost[0]["kind"], "unavailable");
        let (status, body) = pod.get("/readyz").await;
        assert_eq!(status, 200, "{body}");
    }
}

/// The store comes back empty: pods register again, jobs begin anew. (C67)
#[tokio::test(flavor = "multi_thread")]
async fn an_emptied_store_is_taken_up() {
    let mut fleet = Fleet::new(Timing::Fast).await;
    fleet.install("hello", "hello");
    fleet.write_job("tick", &jobs::hello("every = \"300ms\""));
    let _pods = [fleet.pod("a").await, fleet.pod("b").await];
    fleet.live(2).await;
    fleet.ticks_again("tick").await;
    fleet.store_mut().restart().await;
    fleet.live(2).await;
    fleet.ticks_again("tick").await;
}

/// A store that is a replica for a while, or full, or slow: pods wait, and go on. (C61, C66)
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_takes_no_writes_for_a_while() {
    let fleet = Fleet::new(Timing::Fast).await;
    fleet.install("hello", "hello");
    fleet.write_job("tick", &jobs::hello("every = \"300ms\""));
    let pod = fleet.pod("a").await;
    fleet.ticks_again("tick").await;
    let troubles: [(&[&str], &[&str], &str); 3] = [
        (
            &["REPLICAOF", "127.0.0.1", "1"],
            &["REPLICAOF", "NO", "ONE"],
            "unavailable",
        ),
        (
            &["CONFIG", "SET", "maxmemory", "1"],
            &["CONFIG", "SET", "maxmemory", "0"],
            "full",
        ),
        (
            &["CLIENT", "PAUSE", "2000", "WRITE"],
            &["PING"],
            "unavailable",
        ),
    ];
    for (begin, end, kind) in troubles {
        let errors = pod
            .metric("wasmcron_store_errors_total{loop=\"heartbeat\"}")
            .await;
        let told = lines(&pod, "store.lost").len();
        fleet.redis_command::<String>(begin).await;
        until("errors", PATIENCE, async || {
            let now = pod
                .metric("wasmcron_store_errors_total{loop=\"heartbeat\"}")
                .await;
            (now >= errors + 3.0).then_some(())
        })
        .await;
        fleet.redis_command::<String>(end).await;
        fleet.ticks_again("tick").await;
        let lost = lines(&pod, "store.lost");
        let kinds: Vec<_> = lost[told..].iter().map(|line| &line["kind"]).collect();
        assert!(
            kinds.len() <= 2 && kinds.contains(&&Value::from(kind)),
            "{kinds:?}"
        );
    }
}

/// What a pod says that the store refuses: one error that names the store without its password, exit
/// code 1, at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_pod_says_why_and_ends() {
    let server = RedisServer::start_with(&["--requirepass", "correct-horse"]).await;
    let clustered = RedisServer::start_with(&["--cluster-enabled", "yes"]).await;
    let port = server.port();
    let client = redis::Client::open(format!("redis://:correct-horse@127.0.0.1:{port}/"));
    let mut hand = client
        .expect("a client")
        .get_multiplexed_async_connection()
        .await
        .expect("a connection");
    let mut cmd = redis::cmd("ACL");
    cmd.arg("SETUSER").arg("reader");
    cmd.arg(&[
        "on",
        ">battery-staple",
        "~*",
        "&*",
        "+@read",
        "+info",
        "+time",
    ]);
    let done: redis::RedisResult<()> = cmd.query_async(&mut hand).await;
    done.expect("ACL SETUSER");
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["plugins", "jobs"] {
        std::fs::create_dir(folder.path().join(name)).expect("a folder");
    }
    let url = |user: &str| format!("redis://{user}@127.0.0.1:{port}/");
    for (store, expected) in [
        (url(":battery-staple"), "authentication"),
        (url("reader:battery-staple"), "permissions"),
        (format!("redis://127.0.0.1:{port}/"), "uthentication"),
        (clustered.url().to_owned(), "redis+cluster://"),
    ] {
        let command = tokio::process::Command::from(host_binary::command())
            .args(["serve", "--store", &store])
            .current_dir(folder.path())
            .env("WASMCRON_PLUGINS_CACHE", folder.path().join("cache"))
            .output();
        let output = tokio::time::timeout(Duration::from_secs(20), command).await;
        let output = output.expect("it ends soon").expect("the command");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(expected), "{expected} in {said}");
        for secret in ["battery-staple", "correct-horse"] {
            assert!(!said.contains(secret), "{said}");
        }
    }
}

/// The connection that keeps the leases fails while the others stand: the pod waits for it as for any other,
/// is not taken for live until then, and is well afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_waits_for_the_connection_of_its_leases() {
    let fleet = Fleet::new(Timing::Fast).await;
    fleet.install("hello", "hello");
    fleet.write_job("tick", &jobs::hello("every = \"300ms\""));
    let client = redis::Client::open(format!("redis://127.0.0.1:{}/", fleet.store_port()));
    let mut hand = client
        .expect("a client")
        .get_multiplexed_async_connection()
        .await
        .expect("a connection");
    let mut set_clients = async |many: u32| {
        let mut cmd = redis::cmd("CONFIG");
        let cmd = cmd.arg("SET").arg("maxclients").arg(many);
        let done: redis::RedisResult<()> = cmd.query_async(&mut hand).await;
        done.expect("CONFIG SET");
    };
    // This test's two connections, and the one that a pod begins with.
    set_clients(3).await;
    let pod = fleet.pod("a").await;
    until("errors of the lease loop", PATIENCE, async || {
        let errors = pod.metric("wasmcron_store_errors_total{loop=\"lease\"}");
        (errors.await >= 3.0).then_some(())
    })
    .await;
    let pods = fleet.store().pods().await.expect("pods");
    assert!(pods.iter().all(|pod| pod.heartbeat.is_none()), "{pods:?}");
    set_clients(1_000).await;
    fleet.live(1).await;
    fleet.ticks_again("tick").await;
    until("the end of the outage", PATIENCE, async || {
        (!lines(&pod, "store.back").is_empty()).then_some(())
    })
    .await;
    let lost = lines(&pod, "store.lost");
    assert_eq!(lost.len(), 1, "{lost:?}");
}

/// A pod comes before its cluster has slots: it says which are missing, and starts once they are there.
/// (C61, C64)
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_waits_for_the_slots_of_its_cluster() {
    let server = RedisServer::start_with(&["--cluster-enabled", "yes"]).await;
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["plugins", "jobs"] {
        std::fs::create_dir(folder.path().join(name)).expect("a folder");
    }
    let url = format!("redis+cluster://127.0.0.1:{}", server.port());
    let config = folder.path().join("a.toml");
    let text = format!(
        "store = \"{url}\"\npod.address = \"a\"\nlog.format = \"json\"\nplugins.cache = \"cache\"\n"
    );
    std::fs::write(&config, text).expect("the settings");
    let mut pod = fleet::PodProcess::spawn("a", &config).expect("a pod");
    let named = "nobody has slot 15046";
    until(named, PATIENCE, async || pod.said(named).then_some(())).await;
    assert!(
        pod.said("16384 of 16384 slots have no owner (0-16383)"),
        "{}",
        pod.words()
    );
    order(server.url(), &["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).await;
    assert!(
        pod.serves(PATIENCE).await.expect("its status"),
        "{}",
        pod.words()
    );
}

/// Settings of the server that endanger the promises are named at start. (C66)
#[tokio::test(flavor = "multi_thread")]
async fn dangerous_servers_are_named_at_start() {
    let evicting = ["--maxmemory-policy", "allkeys-lru", "--maxmemory", "64mb"];
    let fleet = Fleet::with_store(Timing::Fast, &evicting).await;
    let pod = fleet.pod("a").await;
    let warnings: Vec<String> = lines(&pod, "store.warning")
        .iter()
        .map(|line| line["warning"].as_str().expect("a text").to_owned())
        .collect();
    for expected in ["allkeys-lru", "disk"] {
        let named = warnings.iter().any(|text| text.contains(expected));
        assert!(named, "{expected} in {warnings:?}");
    }
}

/// The primary dies, and a Sentinel makes its replica the primary: pods follow, and firings go on.
/// (C36)
#[tokio::test(flavor = "multi_thread")]
async fn pods_follow_a_sentinels_failover() {
    let mut watched = Watched::start().await;
    let fleet = Fleet::over(Timing::Fast, None, watched.url()).await;
    fleet.install("hello", "hello");
    fleet.write_job("tick", &jobs::hello("every = \"500ms\""));
    let pods = [fleet.pod("a").await, fleet.pod("b").await];
    fleet.live(2).await;
    fleet.ticks_again("tick").await;
    watched.primary.kill();
    watched.failed_over().await;
    until("the store to answer", PATIENCE, async || {
        fleet.store().now().await.ok()
    })
    .await;
    fleet.live(2).await;
    fleet.ticks_again("tick").await;
    for pod in &pods {
        assert!(!lines(pod, "store.moved").is_empty(), "{}", pod.log_text());
        let lost = lines(pod, "store.lost");
        assert!(lost.len() <= 2, "{lost:?}");
        until("a ready pod", PATIENCE, async || {
            (pod.get("/readyz").await.0 == 200).then_some(())
        })
        .await;
    }
}
