//! A proxy that stops one pod's traffic at an exact request: before the store gets it, or after the
//! store executed it and before the pod hears of it. Whoever set it kills the pod then.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::AsyncWriteExt as _;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::resp::{Reply, Values};

/// On which side of its execution a request stops everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The store does not get it, unless it is sent on later.
    Before,
    /// The store executed it; nobody hears its answer. An answer that says that there was nothing to
    /// do, or that a script is not loaded, stops nothing.
    After,
}

#[derive(Clone, Debug, PartialEq)]
enum Phase {
    /// Everything passes.
    Open,
    /// Everything passes until this verb or command.
    Armed(&'static str, Side),
    /// Nothing passes any more.
    Sprung,
    /// The request that was withheld is sent on.
    Released,
    /// The store answered it.
    Late(Reply),
}

impl Phase {
    fn passes(&self) -> bool {
        matches!(self, Phase::Open | Phase::Armed(..))
    }
}

/// What stands for a request that the store has not answered yet.
enum Mark {
    /// What it is called. A read that blocks may have been sent long before the wire was set.
    Sent(Option<String>),
    /// It was withheld and sent on.
    Late,
}

struct Shared {
    /// The verbs by the hashes of their scripts.
    verbs: HashMap<String, &'static str>,
    phase: watch::Sender<Phase>,
}

impl Shared {
    fn passes(&self) -> bool {
        self.phase.borrow().passes()
    }

    /// Stops everything if that is what the wire is set to; false if it is not.
    fn spring_at(&self, name: Option<&str>, side: Side) -> bool {
        self.phase.send_if_modified(|phase| {
            let here =
                matches!(phase, Phase::Armed(what, set) if name == Some(what) && *set == side);
            if here {
                *phase = Phase::Sprung;
            }
            here
        })
    }

    /// The verb that a request calls, or its command.
    fn name(&self, request: &Reply) -> Option<String> {
        let [command, rest @ ..] = request.many() else {
            return None;
        };
        let command = String::from_utf8_lossy(command.text()).to_uppercase();
        let script = || String::from_utf8_lossy(rest.first().map_or(&[], Reply::text)).into_owned();
        let hash = match command.as_str() {
            "EVALSHA" => script(),
            "EVAL" => redis::Script::new(&script()).get_hash().to_owned(),
            _ => return Some(command),
        };
        self.verbs.get(&hash).map(|&verb| verb.to_owned())
    }
}

/// A running proxy before one pod. Its connections end when it is dropped.
pub struct Tripwire {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Tripwire {
    /// Starts one before a port of this machine. `verbs` names verbs by the hashes of their scripts.
    ///
    /// # Errors
    /// When no port can be bound.
    pub async fn start(port: u16, verbs: HashMap<String, &'static str>) -> io::Result<Tripwire> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            verbs,
            phase: watch::Sender::new(Phase::Open),
        });
        let task = tokio::spawn(accept(listener, port, shared.clone()));
        Ok(Tripwire {
            address,
            shared,
            task,
        })
    }

    /// The port it listens on.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Lets the next request of this verb, or of this command in capitals, stop everything.
    pub fn arm(&self, what: &'static str, side: Side) {
        self.shared.phase.send_replace(Phase::Armed(what, side));
    }

    /// Waits until it has. Nothing of the pod reaches the store from then on.
    pub async fn sprung(&self) {
        self.wait(|phase| !phase.passes()).await;
    }

    /// Sends the request on that was withheld, as a network would that was only slow; answers what the
    /// store says to it. For [`Side::Before`] only.
    pub async fn release(&self) -> Reply {
        self.shared.phase.send_replace(Phase::Released);
        match self.wait(|phase| matches!(phase, Phase::Late(_))).await {
            Phase::Late(reply) => reply,
            _ => Reply::Nothing,
        }
    }

    async fn wait(&self, until: impl FnMut(&Phase) -> bool) -> Phase {
        let mut phase = self.shared.phase.subscribe();
        // The sender lives as long as this does.
        phase
            .wait_for(until)
            .await
            .map_or(Phase::Open, |phase| phase.clone())
    }
}

impl Drop for Tripwire {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, port: u16, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        if shared.passes() {
            connections.spawn(connect(client, port, shared.clone()));
        }
        while connections.try_join_next().is_some() {}
    }
}

async fn connect(client: TcpStream, port: u16, shared: Arc<Shared>) -> Option<()> {
    let server = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    client.set_nodelay(true).ok()?;
    server.set_nodelay(true).ok()?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let marks = Mutex::default();
    tokio::select! {
        ended = requests(from_client, to_server, &shared, &marks) => ended,
        ended = answers(from_server, to_client, &shared, &marks) => ended,
    }
}

type Marks = Mutex<VecDeque<Mark>>;

fn push(marks: &Marks, mark: Mark) {
    let mut marks = marks.lock().unwrap_or_else(PoisonError::into_inner);
    marks.push_back(mark);
}

/// Passes requests on, one by one. None: the connection is over.
async fn requests(
    from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    shared: &Shared,
    marks: &Marks,
) -> Option<()> {
    let mut from = Values::of(from);
    loop {
        let request = from.next().await.ok()?;
        let name = shared.name(&request);
        if shared.spring_at(name.as_deref(), Side::Before) {
            return withhold(from.bytes(), to, shared, marks).await;
        }
        if !shared.passes() {
            // Neither a request nor the end of a connection: the store sees a silent pod.
            return std::future::pending().await;
        }
        push(marks, Mark::Sent(name));
        to.write_all(from.bytes()).await.ok()?;
    }
}

/// Keeps a request, however long its sender is gone, until it shall be sent on.
async fn withhold(
    request: &[u8],
    mut to: OwnedWriteHalf,
    shared: &Shared,
    marks: &Marks,
) -> Option<()> {
    let mut phase = shared.phase.subscribe();
    let released = phase.wait_for(|phase| *phase == Phase::Released).await;
    drop(released.ok()?);
    push(marks, Mark::Late);
    to.write_all(request).await.ok()?;
    std::future::pending().await
}

/// Passes answers on, one by one, and forgets them once nothing passes. None: the connection is over.
async fn answers(
    from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    shared: &Shared,
    marks: &Marks,
) -> Option<()> {
    let mut from = Values::of(from);
    loop {
        let reply = from.next().await.ok()?;
        // What a subscription brings answers no request.
        let mark = marks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop_front();
        match mark {
            Some(Mark::Late) => drop(shared.phase.send_replace(Phase::Late(reply))),
            Some(Mark::Sent(name))
                if did_something(&reply) && shared.spring_at(name.as_deref(), Side::After) => {}
            _ if shared.passes() => to.write_all(from.bytes()).await.ok()?,
            _ => {}
        }
    }
}

fn did_something(reply: &Reply) -> bool {
    match reply {
        Reply::Nothing => false,
        Reply::Error(text) => !text.starts_with("NOSCRIPT"),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::redis_server::RedisServer;

    const SCRIPT: &str = "return redis.call('INCR', KEYS[1])";

    async fn pair() -> (RedisServer, Tripwire, redis::aio::MultiplexedConnection) {
        let server = RedisServer::start().await;
        let hash = redis::Script::new(SCRIPT).get_hash().to_owned();
        let verbs = HashMap::from([(hash, "count")]);
        let wire = Tripwire::start(server.port(), verbs).await;
        let wire = wire.expect("a port");
        let url = format!("redis://127.0.0.1:{}/", wire.port());
        let client = redis::Client::open(url).expect("a URL");
        let hand = client.get_multiplexed_async_connection().await;
        (server, wire, hand.expect("a connection"))
    }

    /// Calls the script in the background, as a pod would: by hash first.
    fn count(hand: &redis::aio::MultiplexedConnection) -> JoinHandle<redis::RedisResult<u32>> {
        let mut hand = hand.clone();
        tokio::spawn(async move {
            let script = redis::Script::new(SCRIPT);
            script.key("n").invoke_async(&mut hand).await
        })
    }

    async fn counted(server: &RedisServer) -> Option<u32> {
        let client = redis::Client::open(server.url()).expect("a URL");
        let mut hand = client
            .get_multiplexed_async_connection()
            .await
            .expect("a connection");
        redis::cmd("GET")
            .arg("n")
            .query_async(&mut hand)
            .await
            .expect("GET")
    }

    #[tokio::test]
    async fn a_request_is_withheld_and_executed_late() {
        let (server, wire, hand) = pair().await;
        assert_eq!(count(&hand).await.expect("a task").expect("a count"), 1);
        wire.arm("count", Side::Before);
        let asked = count(&hand);
        wire.sprung().await;
        assert_eq!(counted(&server).await, Some(1));
        asked.abort();
        drop(hand);
        assert_eq!(wire.release().await, Reply::Number(2));
        assert_eq!(counted(&server).await, Some(2));
    }

    #[tokio::test]
    async fn an_executed_request_is_not_answered() {
        let (server, wire, hand) = pair().await;
        // The script is not loaded: only the second of its two requests is executed.
        wire.arm("count", Side::After);
        let mut asked = count(&hand);
        wire.sprung().await;
        assert_eq!(counted(&server).await, Some(1));
        let answered = tokio::time::timeout(Duration::from_millis(50), &mut asked).await;
        assert!(answered.is_err(), "{answered:?}");
    }

    #[tokio::test]
    async fn an_answer_without_anything_stops_nothing() {
        let (server, wire, mut hand) = pair().await;
        wire.arm("GET", Side::After);
        let mut get = redis::cmd("GET");
        let none: Option<u32> = get.arg("n").query_async(&mut hand).await.expect("GET");
        assert_eq!(none, None);
        let _ = count(&hand).await.expect("a task");
        let asked = tokio::spawn(async move { get.query_async::<u32>(&mut hand).await });
        wire.sprung().await;
        assert!(!asked.is_finished());
        drop(server);
    }
}
