//! Pods that meet in a server over TLS, whose authority the settings name.

use wasmcron_core::run::RunState;
use wasmcron_tests::host_binary;
use wasmcron_tests::tls::{CA, TlsServer};

use crate::harness::{Fleet, Timing, cli_in, jobs};

const OTHER_CA: &str = include_str!("../conformance/tls/other-ca.pem");

/// `store_ca` in the settings, and `WASMCRON_STORE_CA` for a command: both trust the server.
#[tokio::test(flavor = "multi_thread")]
async fn the_authority_is_named_in_the_settings() {
    let server = TlsServer::start(false).await;
    let url = server.open.url().to_owned();
    let fleet = Fleet::over(Timing::Fast, None, url).await;
    std::fs::write(fleet.folder().join("ca.pem"), CA).expect("the authority");
    fleet.install("hello", "hello");
    fleet.write_job("tick", &jobs::hello("every = \"300ms\""));
    let tls = server.url("localhost");
    let pods = [
        fleet.pod_at("a", &tls, "store_ca = \"ca.pem\"").await,
        fleet.pod_at("b", &tls, "store_ca = \"ca.pem\"").await,
    ];
    fleet.live(2).await;
    for pod in &pods {
        fleet
            .run_where("tick", "succeeded there", |run| {
                run.state == RunState::Succeeded
                    && run
                        .attempts
                        .iter()
                        .any(|it| it.pod.as_str() == pod.address())
            })
            .await;
    }
    let output = tokio::process::Command::from(host_binary::command())
        .args(["--store", &tls, "pod", "list"])
        .current_dir(fleet.folder())
        .env("WASMCRON_STORE_CA", "ca.pem")
        .output()
        .await
        .expect("the command");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains('a'), "{output:?}");
}

/// A server that is not believed ends a pod at once with exit code 1 and the reason, and a command too.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_says_why_it_does_not_believe_the_server() {
    let server = TlsServer::start(false).await;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    for name in ["plugins", "jobs"] {
        std::fs::create_dir(path.join(name)).expect("a folder");
    }
    for (name, text) in [("ca.pem", CA), ("other.pem", OTHER_CA), ("empty.pem", "")] {
        std::fs::write(path.join(name), text).expect("a file");
    }
    for (host, ca, why) in [
        ("localhost", "other.pem", "none of the trusted ones"),
        ("127.0.0.1", "ca.pem", "not valid for name"),
        ("localhost", "missing.pem", "cannot be read"),
        ("localhost", "empty.pem", "holds no certificate"),
    ] {
        let url = server.url(host);
        let text = format!(
            "store = \"{url}\"\nstore_ca = \"{ca}\"\nplugins.cache = \"cache\"\nlog.format = \"json\"\n"
        );
        std::fs::write(path.join("wasmcron.toml"), text).expect("the settings");
        for command in [&["serve"][..], &["pod", "list"]] {
            let (_, said, code) = cli_in(path, command).await;
            assert_eq!(code, 1, "{command:?} {said}");
            assert!(said.contains(why), "{command:?} {why} in {said}");
            assert!(said.contains(&url), "{command:?} names the store: {said}");
        }
    }
}
