//! The store's protocol without a client library: what a server can do at most is measured with
//! requests that were made before and sent as they are.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Result, bail};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
pub use wasmcron_tests::resp::{Reply, command};
use wasmcron_tests::resp::{Values, parse};

/// A connection that sends bytes and reads answers.
pub struct Wire(Values<TcpStream>);

impl Wire {
    /// Connects to a port of this machine.
    pub async fn connect(port: u16) -> Result<Wire> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.set_nodelay(true)?;
        Ok(Wire(Values::of(stream)))
    }

    /// Sends a request as it is and reads its answer.
    pub async fn send(&mut self, request: &[u8]) -> Result<Reply> {
        self.0.connection().write_all(request).await?;
        self.next().await
    }

    /// Sends a command given by its words.
    pub async fn command(&mut self, words: &[&str]) -> Result<Reply> {
        self.send(&command(words)).await
    }

    /// The next answer.
    pub async fn next(&mut self) -> Result<Reply> {
        match self.0.next().await? {
            Reply::Error(error) => bail!("the server refused a request: {error}"),
            reply => Ok(reply),
        }
    }
}

/// A copy of a request in which texts are replaced by others of the same length, so that every
/// length that stands in it stays right.
pub fn replaced(request: &[u8], pairs: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut copy = request.to_vec();
    for (old, new) in pairs {
        assert_eq!(old.len(), new.len(), "texts of the same length");
        let mut at = 0;
        while at + old.len() <= copy.len() {
            if copy[at..].starts_with(old) {
                copy[at..at + new.len()].copy_from_slice(new);
                at += old.len();
            } else {
                at += 1;
            }
        }
    }
    copy
}

/// Stands between a client and the server and keeps what the client sends.
pub struct Recorder {
    port: u16,
    sent: Arc<Mutex<Vec<u8>>>,
    task: JoinHandle<()>,
}

impl Recorder {
    /// Listens on a port of its own for connections to `server`.
    pub async fn start(server: u16) -> Result<Recorder> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let sent = Arc::new(Mutex::new(Vec::new()));
        let kept = sent.clone();
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)).await else {
                    return;
                };
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                tokio::spawn(copy(from_client, to_server, Some(kept.clone())));
                tokio::spawn(copy(from_server, to_client, None));
            }
        });
        Ok(Recorder { port, sent, task })
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The calls of scripts since the last look. Ask when no request is under way.
    pub fn scripts(&self) -> Result<Vec<Vec<u8>>> {
        let bytes = std::mem::take(&mut *self.sent.lock().unwrap_or_else(PoisonError::into_inner));
        let mut scripts = Vec::new();
        let mut rest = bytes.as_slice();
        while let Some((request, length)) = parse(rest)? {
            let (this, after) = rest.split_at(length);
            if request
                .many()
                .first()
                .is_some_and(|word| word.text() == b"EVALSHA")
            {
                scripts.push(this.to_vec());
            }
            rest = after;
        }
        Ok(scripts)
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn copy(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, kept: Option<Arc<Mutex<Vec<u8>>>>) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let read = match from.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(read) => &buffer[..read],
        };
        if let Some(kept) = &kept {
            kept.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .extend_from_slice(read);
        }
        if to.write_all(read).await.is_err() {
            return;
        }
    }
}
