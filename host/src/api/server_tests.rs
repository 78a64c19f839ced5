use std::net::SocketAddr;

use axum::routing::get;
use futures::StreamExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{Instant, sleep, timeout};

use super::*;

const FAST: Limits = Limits {
    header_read: Duration::from_millis(400),
    connections: 4,
    last_answers: Duration::from_millis(600),
};
/// What is too long for anything here.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two parts of a slow answer.
const STEP: Duration = Duration::from_millis(200);

struct Port {
    address: SocketAddr,
    stop: CancellationToken,
    serving: tokio::task::JoinHandle<()>,
}

impl Port {
    /// `/` answers at once, `/slow/N` in N parts, one each [`STEP`].
    async fn open(limits: Limits) -> Self {
        let slow = |axum::extract::Path(parts): axum::extract::Path<usize>| async move {
            let parts = futures::stream::iter(0..parts).then(|part| async move {
                sleep(STEP).await;
                Ok::<_, std::convert::Infallible>(format!("{part};"))
            });
            Body::from_stream(parts)
        };
        let app = Router::new()
            .route("/", get(async || "ok"))
            .route("/slow/{parts}", get(slow));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let stop = CancellationToken::new();
        let serving = tokio::spawn(serve(listener, app, limits, stop.clone()));
        Port {
            address,
            stop,
            serving,
        }
    }

    async fn send(&self, text: &str) -> TcpStream {
        let mut socket = TcpStream::connect(self.address).await.expect("connected");
        socket.write_all(text.as_bytes()).await.expect("sent");
        socket
    }

    /// The answer to a whole request; empty if the connection is closed instead.
    async fn get(&self, path: &str) -> String {
        let request = format!("GET {path} HTTP/1.1\r\nHost: pod\r\nConnection: close\r\n\r\n");
        let Ok(mut socket) = TcpStream::connect(self.address).await else {
            return String::new();
        };
        let _ = socket.write_all(request.as_bytes()).await;
        rest(&mut socket).await
    }

    /// Stops it; answers how long that took.
    async fn ended(self) -> Duration {
        let began = Instant::now();
        self.stop.cancel();
        let ended = timeout(PATIENCE, self.serving).await;
        ended.expect("in time").expect("no panic");
        began.elapsed()
    }
}

/// All that still comes.
async fn rest(socket: &mut TcpStream) -> String {
    let mut all = Vec::new();
    let _ = timeout(PATIENCE, socket.read_to_end(&mut all))
        .await
        .expect("the connection ends");
    String::from_utf8(all).expect("text")
}

const HALF: &str = "GET / HTTP/1.1\r\nHost:";

#[tokio::test]
async fn half_requests_take_no_more_than_their_time_and_places() {
    let port = Port::open(FAST).await;
    let began = Instant::now();
    let mut slow = Vec::new();
    for text in ["", "G", HALF, HALF] {
        slow.push(port.send(text).await);
    }
    for _ in 0..100 {
        let mut further = port.send("").await;
        assert_eq!(rest(&mut further).await, "");
    }
    assert!(began.elapsed() < FAST.header_read, "closed at once");
    for socket in &mut slow {
        rest(socket).await;
    }
    assert!(began.elapsed() >= FAST.header_read / 2);
    let answer = port.get("/").await;
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
}

#[tokio::test]
async fn a_connection_that_asks_nothing_more_is_closed() {
    let port = Port::open(FAST).await;
    let mut socket = port.send("GET / HTTP/1.1\r\nHost: pod\r\n\r\n").await;
    let began = Instant::now();
    let answer = rest(&mut socket).await;
    assert!(answer.ends_with("ok"), "{answer}");
    assert!(began.elapsed() >= FAST.header_read / 2, "kept for a while");
}

#[tokio::test]
async fn a_long_answer_is_not_cut() {
    let port = Port::open(FAST).await;
    let answer = port.get("/slow/5").await;
    assert!(
        answer.contains("4;") && answer.ends_with("0\r\n\r\n"),
        "{answer}"
    );
}

#[tokio::test]
async fn slow_clients_do_not_delay_the_end() {
    let limits = Limits {
        header_read: PATIENCE,
        ..FAST
    };
    let port = Port::open(limits).await;
    let again = format!("GET / HTTP/1.1\r\nHost: pod\r\n\r\n{HALF}");
    let mut slow = Vec::new();
    for text in ["", HALF, &again] {
        slow.push(port.send(text).await);
    }
    sleep(STEP / 2).await;
    let took = port.ended().await;
    assert!(took < limits.last_answers / 2, "{took:?}");
}

#[tokio::test]
async fn what_is_in_progress_at_the_end_has_its_time_and_no_more() {
    let port = Port::open(FAST).await;
    let ask = |parts| format!("GET /slow/{parts} HTTP/1.1\r\nHost: pod\r\n\r\n");
    let mut short = port.send(&ask(2)).await;
    let _long = port.send(&ask(100)).await;
    sleep(STEP / 2).await;
    let took = port.ended().await;
    let answer = rest(&mut short).await;
    assert!(answer.ends_with("0\r\n\r\n"), "{answer}");
    assert!(
        took >= FAST.last_answers && took < FAST.last_answers * 3,
        "{took:?}"
    );
}
