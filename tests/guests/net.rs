//! What a guest can reach: nothing that is not granted.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};
use wasmcron_runtime::{AttemptEnd, HttpGrant, boot_millis};

use crate::harness::{Attempt, run, summary};

/// A server of a few lines that counts connections and requests.
struct Server {
    port: u16,
    connections: Arc<AtomicU32>,
    requests: Arc<AtomicU32>,
}

impl Server {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Self {
            port: listener.local_addr().unwrap().port(),
            connections: Arc::default(),
            requests: Arc::default(),
        };
        let (connections, requests) = (server.connections.clone(), server.requests.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                connections.fetch_add(1, Ordering::SeqCst);
                let requests = requests.clone();
                std::thread::spawn(move || serve(stream, &requests));
            }
        });
        server
    }

    fn url(&self, host: &str, path: &str) -> String {
        format!("http://{host}:{}{path}", self.port)
    }
}

fn serve(stream: TcpStream, requests: &AtomicU32) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut writer = stream;
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).unwrap_or(0) == 0 {
                return;
            }
        }
        requests.fetch_add(1, Ordering::SeqCst);
        let path = head.split(' ').nth(1).unwrap_or("/").to_owned();
        if head
            .to_ascii_lowercase()
            .contains("transfer-encoding: chunked")
        {
            let mut body = Vec::new();
            while !body.ends_with(b"0\r\n\r\n") {
                let mut byte = [0];
                if reader.read_exact(&mut byte).is_err() {
                    return;
                }
                body.push(byte[0]);
            }
        }
        let (status, body, extra) = match path.as_str() {
            "/large" => ("200 OK", "l".repeat(1 << 20), ""),
            "/away" => (
                "302 Found",
                String::new(),
                "Location: http://169.254.169.254/\r\n",
            ),
            "/close" => ("200 OK", "bye".to_owned(), "Connection: close\r\n"),
            _ => ("200 OK", format!("you asked for {path}"), ""),
        };
        let length = body.len();
        let answer = format!("HTTP/1.1 {status}\r\n{extra}Content-Length: {length}\r\n\r\n{body}");
        if writer.write_all(answer.as_bytes()).is_err() || path == "/close" {
            return;
        }
    }
}

async fn ask(grants: &[&str], parameters: Value) -> String {
    let grants: Vec<HttpGrant> = grants.iter().map(|grant| grant.parse().unwrap()).collect();
    let mut parameters = parameters;
    parameters["do"] = "http".into();
    let attempt = Attempt::new(parameters)
        .await
        .grants(|all| all.http = grants);
    summary(&attempt.run().await.end).to_owned()
}

#[tokio::test]
async fn without_a_grant_no_request_leaves() {
    let server = Server::start();
    let url = server.url("127.0.0.1", "/");
    assert!(
        ask(&[], json!({ "url": url }))
            .await
            .contains("HttpRequestDenied")
    );
    let other = format!("http://127.0.0.1:{}", server.port ^ 1);
    assert!(
        ask(&[&other], json!({ "url": url }))
            .await
            .contains("HttpRequestDenied")
    );
    assert_eq!(server.connections.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_refusal_is_told_to_the_operator_without_the_query() {
    let attempt =
        Attempt::new(json!({ "do": "http", "url": "http://example.com/x?key=s3cret" })).await;
    let host = attempt.host.clone();
    let _ = attempt.run().await.end.message();
    let line = host.seen().log.remove(0).message;
    assert!(
        line.contains("GET http://example.com/x was refused") && !line.contains("s3cret"),
        "{line}"
    );
}

#[tokio::test]
async fn granted_origins_are_reached_and_connections_are_kept() {
    let server = Server::start();
    let grant = server.url("127.0.0.1", "");
    let url = server.url("127.0.0.1", "/hello?a=1");
    assert_eq!(
        ask(&[&grant], json!({ "url": url, "count": 10 })).await,
        "200 you asked for /hello?a=1"
    );
    assert_eq!(server.requests.load(Ordering::SeqCst), 10);
    assert_eq!(server.connections.load(Ordering::SeqCst), 1);
    // Servers that close after each answer are served as well.
    let url = server.url("127.0.0.1", "/close");
    assert_eq!(
        ask(&[&grant], json!({ "url": url, "count": 3 })).await,
        "200 bye"
    );
    assert_eq!(server.connections.load(Ordering::SeqCst), 4);
}

#[tokio::test]
async fn methods_and_paths_narrow_a_grant() {
    let server = Server::start();
    let grant = server.url("127.0.0.1", "/v1");
    for (path, reached) in [("/v1/x", true), ("/v2/x", false), ("/v1/../v2", false)] {
        let answer = ask(&[&grant], json!({ "url": server.url("127.0.0.1", path) })).await;
        assert_eq!(answer.starts_with("200"), reached, "{path}: {answer}");
    }
    let answer = ask(
        &[&grant],
        json!({ "url": server.url("127.0.0.1", "/v1"), "method": "CONNECT" }),
    )
    .await;
    assert!(answer.contains("HttpRequestMethodInvalid"), "{answer}");
}

#[tokio::test]
async fn loopback_needs_its_own_name_and_metadata_is_never_reached() {
    let server = Server::start();
    let url = server.url("localhost", "/");
    assert!(ask(&[&url], json!({ "url": url })).await.starts_with("200"));
    for address in [
        "http://169.254.169.254",
        "http://[fe80::1]",
        "http://0.0.0.0:1",
    ] {
        let answer = ask(&[address], json!({ "url": format!("{address}/") })).await;
        assert!(
            answer.contains("DestinationIpProhibited"),
            "{address}: {answer}"
        );
    }
}

#[tokio::test]
async fn bodies_have_limits() {
    let server = Server::start();
    let grant = server.url("127.0.0.1", "");
    for (path, send, word) in [
        ("/large", 0, "response body size"),
        ("/", 200_000, "RequestBodySize"),
    ] {
        let attempt = Attempt::new(json!({ "do": "http", "method": "POST", "url": server.url("127.0.0.1", path), "send": send }))
            .await
            .limits(|limits| limits.http_body = 100_000)
            .grants(|grants| grants.http = vec![grant.parse().unwrap()]);
        let end = attempt.run().await.end;
        assert!(summary(&end).contains(word), "{path}: {end:?}");
    }
    let answer = ask(
        &[&grant],
        json!({ "method": "POST", "url": server.url("127.0.0.1", "/large"), "send": 300_000 }),
    )
    .await;
    assert_eq!(answer, format!("200 {}", 1 << 20));
}

#[tokio::test]
async fn a_server_that_hangs_does_not_outlive_the_time_limit() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let limit = std::time::Duration::from_millis(300);
    let attempt = Attempt::new(json!({ "do": "http", "url": url }))
        .await
        .limits(|limits| limits.time = Some(limit))
        .grants(|grants| grants.http = vec![url.parse().unwrap()]);
    assert_eq!(attempt.run().await.end, AttemptEnd::TimedOut { limit });
}

#[tokio::test]
async fn without_the_lease_no_request_leaves() {
    let server = Server::start();
    let url = server.url("127.0.0.1", "/");
    let attempt = Attempt::new(json!({ "do": "http", "url": url }))
        .await
        .grants(|grants| grants.http = vec![url.parse().unwrap()]);
    attempt.control().extend_lease(boot_millis());
    assert_eq!(attempt.run().await.end, AttemptEnd::LeaseLost);
    assert_eq!(server.connections.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn files_and_sockets_are_denied_without_a_trap() {
    let file = run(json!({ "do": "read-file", "path": "/etc/passwd" })).await;
    assert!(summary(&file).starts_with("Err("), "{file:?}");
    let server = Server::start();
    let tcp = run(json!({ "do": "tcp", "to": format!("127.0.0.1:{}", server.port) })).await;
    assert!(summary(&tcp).contains("PermissionDenied"), "{tcp:?}");
    assert_eq!(server.connections.load(Ordering::SeqCst), 0);
    let name = run(json!({ "do": "tcp", "to": "localhost:80" })).await;
    assert!(summary(&name).starts_with("Err("), "{name:?}");
    let udp = run(json!({ "do": "udp" })).await;
    assert!(summary(&udp).starts_with("Err("), "{udp:?}");
}
