//! A server that speaks Redis' protocol and answers by a script: what a real one says only at moments that
//! no test can bring about.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// The first word of a command, and the answer to it as it goes over the wire; `*` stands for every other.
pub type Answers = &'static [(&'static str, &'static str)];

/// The server; its connections end when it is dropped.
#[derive(Debug)]
pub struct Scripted {
    port: u16,
    answered: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Scripted {
    /// Starts it on a port of this machine; 0: any.
    ///
    /// # Errors
    /// When the port cannot be bound.
    pub async fn start(port: u16, answers: Answers) -> io::Result<Scripted> {
        let listener = TcpListener::bind(("127.0.0.1", port)).await?;
        let port = listener.local_addr()?.port();
        let answered = Arc::new(AtomicUsize::new(0));
        let count = answered.clone();
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let count = count.clone();
                connections.spawn(async move { serve(stream, answers, &count).await });
            }
        });
        Ok(Scripted {
            port,
            answered,
            task,
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// Commands that it answered so far.
    #[must_use]
    pub fn answered(&self) -> usize {
        self.answered.load(Ordering::Relaxed)
    }

    /// Ends it, so that another server may have its port.
    pub async fn end(mut self) {
        self.task.abort();
        // It was aborted: that is its end.
        let _ = (&mut self.task).await;
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Answers one client until it leaves or says what is no command.
async fn serve(stream: TcpStream, answers: Answers, count: &AtomicUsize) -> Option<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.ok()?;
        let words: usize = line.trim().strip_prefix('*')?.parse().ok()?;
        let mut first = String::new();
        for at in 0..words {
            line.clear();
            stream.read_line(&mut line).await.ok()?;
            let length: usize = line.trim().strip_prefix('$')?.parse().ok()?;
            let mut word = vec![0; length + 2];
            stream.read_exact(&mut word).await.ok()?;
            if at == 0 {
                first = String::from_utf8_lossy(&word[..length]).to_uppercase();
            }
        }
        let found = answers
            .iter()
            .find(|(word, _)| *word == first || *word == "*");
        stream.write_all(found?.1.as_bytes()).await.ok()?;
        count.fetch_add(1, Ordering::Relaxed);
    }
}
