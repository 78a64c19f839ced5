//! A private Redis or Valkey for one test: started on a free loopback port, gone when dropped.
//!
//! The program is the one that `WASMCRON_REDIS_SERVER` names, else `redis-server` or `valkey-server`
//! from the search path. There is no fallback: a test that needs a server and has none fails.

#![allow(
    clippy::panic,
    clippy::expect_used,
    reason = "a test cannot go on without its server, and its panic is what people read"
)]

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

/// Names the server's program.
pub const VARIABLE: &str = "WASMCRON_REDIS_SERVER";
const NAMES: [&str; 2] = ["redis-server", "valkey-server"];
/// Between looking for a free port and binding it another process may take it.
const TRIES: usize = 5;
/// Starting takes some ten milliseconds; a machine that runs many tests at once needs longer.
const PATIENCE: Duration = Duration::from_secs(20);

/// A running server, empty at its start and without persistence.
#[derive(Debug)]
pub struct RedisServer {
    program: PathBuf,
    arguments: Vec<String>,
    folder: TempDir,
    process: Child,
    port: u16,
    url: String,
}

impl RedisServer {
    /// Starts a server with default settings.
    ///
    /// # Panics
    /// When there is no program or it does not come up; the text says what to do.
    pub async fn start() -> RedisServer {
        RedisServer::start_with(&[]).await
    }

    /// Starts a server with further arguments, such as `["--maxmemory", "8mb"]`.
    ///
    /// # Panics
    /// As [`RedisServer::start`].
    pub async fn start_with(arguments: &[&str]) -> RedisServer {
        let program = program();
        let arguments: Vec<String> = arguments.iter().map(|&text| text.to_owned()).collect();
        let mut failures = Vec::new();
        for _ in 0..TRIES {
            let folder = tempfile::tempdir().expect("a temporary folder for the server");
            let port = free_port();
            let mut process = spawn(&program, &arguments, &folder, port);
            match ready(&mut process, port).await {
                Ok(()) => {
                    let url = format!("redis://127.0.0.1:{port}/");
                    return RedisServer {
                        program,
                        arguments,
                        folder,
                        process,
                        port,
                        url,
                    };
                }
                Err(why) => {
                    end(&mut process);
                    failures.push(format!("{why}\n{}", log_of(&folder)));
                }
            }
        }
        panic!(
            "`{}` did not start in {TRIES} tries, the last one: {}",
            program.display(),
            failures.last().map_or("", String::as_str)
        );
    }

    /// Where it listens, as `redis://127.0.0.1:port/`.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The port it listens on.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its process.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Sends it a command, as an operator would; answers the first line of its answer, none if it does
    /// not answer within a second.
    pub async fn tell(&self, command: &str) -> Option<String> {
        let answer = ask(self.port, command).await?;
        let text = String::from_utf8_lossy(&answer).into_owned();
        text.lines().next().map(str::to_owned)
    }

    /// Ends it as a crash would. What it held and did not persist is lost.
    pub fn kill(&mut self) {
        end(&mut self.process);
    }

    /// Starts it again on the same port: empty, unless it was started to persist what it holds.
    ///
    /// # Panics
    /// When it does not come up.
    pub async fn restart(&mut self) {
        self.kill();
        self.process = spawn(&self.program, &self.arguments, &self.folder, self.port);
        if let Err(why) = ready(&mut self.process, self.port).await {
            panic!(
                "the server did not start again: {why}\n{}",
                log_of(&self.folder)
            );
        }
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        end(&mut self.process);
    }
}

/// The server's program.
///
/// # Panics
/// When there is none.
#[must_use]
pub fn program() -> PathBuf {
    if let Some(named) = std::env::var_os(VARIABLE).filter(|named| !named.is_empty()) {
        let named = PathBuf::from(named);
        assert!(
            named.is_file(),
            "{VARIABLE} names `{}`, which is no file",
            named.display()
        );
        return named;
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let found = NAMES.iter().find_map(|name| {
        std::env::split_paths(&folders)
            .map(|folder| folder.join(name))
            .find(|path| path.is_file())
    });
    found.unwrap_or_else(|| {
        panic!(
            "this test needs a Redis or Valkey server and found neither {} on the search path; \
             `cargo xtask setup` installs one, or {VARIABLE} names the program",
            NAMES.join(" nor ")
        )
    })
}

fn spawn(program: &PathBuf, arguments: &[String], folder: &TempDir, port: u16) -> Child {
    let port = port.to_string();
    Command::new(program)
        .args(["--port", &port, "--bind", "127.0.0.1"])
        .args(["--save", "", "--appendonly", "no", "--daemonize", "no"])
        .args(["--logfile", "server.log", "--dir"])
        .arg(folder.path())
        .args(arguments)
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("cannot run `{}`: {error}", program.display()))
}

fn end(process: &mut Child) {
    // Both fail only for a process that is gone already.
    let _ = process.kill();
    let _ = process.wait();
}

/// A free port. A clustered server also binds the one 10,000 above it.
///
/// # Panics
/// When there is none.
#[must_use]
pub fn free_port() -> u16 {
    let any = || {
        std::net::TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .expect("a free port on the loopback address")
            .port()
    };
    std::iter::repeat_with(any)
        .take(100)
        .find(|port| port.checked_add(10_000).is_some())
        .expect("a free port below 55,536")
}

fn log_of(folder: &TempDir) -> String {
    let text = std::fs::read_to_string(folder.path().join("server.log")).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(10)..].join("\n")
}

/// Waits until the server answers; one that asks for a password answers as well.
async fn ready(process: &mut Child, port: u16) -> Result<(), String> {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Ok(Some(status)) = process.try_wait() {
            return Err(format!("it ended with {status}"));
        }
        if let Some(answer) = ask(port, "PING").await
            && matches!(answer.first(), Some(b'+' | b'-'))
            && !answer.starts_with(b"-LOADING")
        {
            return Ok(());
        }
        if Instant::now() > until {
            return Err(format!("no answer within {PATIENCE:?}"));
        }
        sleep(Duration::from_millis(10)).await;
    }
}

async fn ask(port: u16, command: &str) -> Option<Vec<u8>> {
    let ask = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
        let line = format!("{command}\r\n");
        stream.write_all(line.as_bytes()).await.ok()?;
        let mut answer = vec![0; 64];
        let read = stream.read(&mut answer).await.ok()?;
        answer.truncate(read);
        Some(answer)
    };
    timeout(Duration::from_secs(1), ask).await.ok().flatten()
}
