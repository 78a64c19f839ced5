//! A TCP proxy that loses, delays and breaks what passes through it, as networks do.
//!
//! It stands between one pod and the store. What it does is set for all its connections at once, in
//! each direction apart.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Bytes that are passed on at once.
const CHUNK: usize = 16 << 10;

/// What becomes of bytes in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Way {
    /// They pass.
    #[default]
    Open,
    /// They pass this much later.
    Slow(Duration),
    /// They wait until the way is open again, as behind a broken link that heals: late requests are
    /// executed, late answers come when nobody waits for them.
    Held,
    /// They are gone. A connection that lost some breaks as soon as the way is open again.
    Swallowed,
}

/// What becomes of everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// From the pod to the store.
    pub requests: Way,
    /// From the store to the pod.
    pub answers: Way,
    /// New connections are reset.
    pub refuses: bool,
    /// Raised to reset the connections that there are.
    generation: u64,
    /// Raised to let the connections that there are stand still.
    standstill: u64,
}

/// A running proxy; its connections end when it is dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    link: watch::Sender<Link>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// Starts one before a port of this machine.
    ///
    /// # Errors
    /// When no port can be bound.
    pub async fn start(port: u16) -> io::Result<Proxy> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let (link, state) = watch::channel(Link::default());
        let task = tokio::spawn(accept(listener, port, state));
        Ok(Proxy {
            address,
            link,
            task,
        })
    }

    /// The port it listens on.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Sets what becomes of bytes in each direction.
    pub fn set(&self, requests: Way, answers: Way) {
        self.link.send_modify(|link| {
            (link.requests, link.answers) = (requests, answers);
        });
    }

    /// Refuses new connections, or takes them again.
    pub fn refuse(&self, refuses: bool) {
        self.link.send_modify(|link| link.refuses = refuses);
    }

    /// Resets every connection.
    pub fn reset(&self) {
        self.link.send_modify(|link| link.generation += 1);
    }

    /// Lets every connection that there is stand still for good, as behind a gateway that forgot it: what is
    /// sent goes nowhere, and neither end is told. New ones are as the link says.
    pub fn strand(&self) {
        self.link.send_modify(|link| link.standstill += 1);
    }

    /// Lets everything pass.
    pub fn heal(&self) {
        self.set(Way::Open, Way::Open);
        self.refuse(false);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, port: u16, state: watch::Receiver<Link>) {
    // Pumps end with the last sender of the state, which the proxy holds.
    while let Ok((client, _)) = listener.accept().await {
        let link = *state.borrow();
        if link.refuses {
            break_off(&client);
            continue;
        }
        tokio::spawn(connect(client, port, state.clone()));
    }
}

/// Makes the end of a connection a reset.
fn break_off(stream: &TcpStream) {
    // A socket that is gone already needs none.
    let _ = stream.set_zero_linger();
}

async fn connect(client: TcpStream, port: u16, state: watch::Receiver<Link>) {
    let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await else {
        return break_off(&client);
    };
    // The delays shall be ours alone.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let Link {
        generation,
        standstill,
        ..
    } = *state.borrow();
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let mut reset = state.clone();
    let broken = async {
        let gone = reset.wait_for(|link| link.generation != generation).await;
        gone.is_ok()
    };
    tokio::pin!(broken);
    let mut stuck = state.clone();
    let stands = async {
        let stands = stuck.wait_for(|link| link.standstill != standstill).await;
        stands.is_ok()
    };
    tokio::select! {
        biased;
        _ = &mut broken => {}
        true = stands => {
            broken.await;
        }
        () = pump(from_client, &to_server, state.clone(), |link| link.requests) => {}
        () = pump(from_server, &to_client, state.clone(), |link| link.answers) => {}
    }
    break_off(to_client.as_ref());
    break_off(to_server.as_ref());
}

/// Passes bytes on until either end closes, or they went missing and the way is open again.
async fn pump(
    mut from: OwnedReadHalf,
    to: &OwnedWriteHalf,
    mut state: watch::Receiver<Link>,
    way: fn(&Link) -> Way,
) {
    let mut buffer = vec![0; CHUNK];
    loop {
        let read = match from.read(&mut buffer).await {
            Ok(read) if read > 0 => read,
            _ => return,
        };
        loop {
            let current = way(&state.borrow_and_update());
            match current {
                Way::Open => break,
                Way::Slow(time) => {
                    tokio::time::sleep(time).await;
                    break;
                }
                Way::Held => {
                    if state.changed().await.is_err() {
                        return;
                    }
                }
                Way::Swallowed => return lost(from, state, way).await,
            }
        }
        if write_all(to, &buffer[..read]).await.is_err() {
            return;
        }
    }
}

/// Reads and forgets until the way is open again: what follows a hole is of no use to anybody.
async fn lost(mut from: OwnedReadHalf, mut state: watch::Receiver<Link>, way: fn(&Link) -> Way) {
    let mut buffer = vec![0; CHUNK];
    loop {
        tokio::select! {
            healed = state.wait_for(|link| way(link) != Way::Swallowed) => {
                drop(healed);
                return;
            }
            read = from.read(&mut buffer) => match read {
                Ok(read) if read > 0 => {}
                _ => return,
            },
        }
    }
}

async fn write_all(to: &OwnedWriteHalf, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        to.writable().await?;
        match to.try_write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;
    use tokio::time::{Instant, timeout};

    use super::*;

    const SOON: Duration = Duration::from_millis(100);

    /// A server that answers each byte with itself, and tells what it received.
    async fn echo() -> (u16, watch::Receiver<usize>) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (count, received) = watch::channel(0);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let count = count.clone();
                tokio::spawn(async move {
                    let mut byte = [0];
                    while stream.read_exact(&mut byte).await.is_ok() {
                        count.send_modify(|count| *count += 1);
                        let _ = stream.write_all(&byte).await;
                    }
                });
            }
        });
        (port, received)
    }

    async fn pair() -> (Proxy, TcpStream, watch::Receiver<usize>) {
        let (port, received) = echo().await;
        let proxy = Proxy::start(port).await.expect("a proxy");
        let mut client = TcpStream::connect(("127.0.0.1", proxy.port()))
            .await
            .expect("a connection");
        assert_eq!(ask(&mut client).await, Some(7));
        (proxy, client, received)
    }

    /// Sends a byte and reads one; none if nothing comes soon.
    async fn ask(client: &mut TcpStream) -> Option<u8> {
        client.write_all(&[7]).await.ok()?;
        answer(client).await
    }

    async fn answer(client: &mut TcpStream) -> Option<u8> {
        let mut byte = [0];
        let read = timeout(SOON, client.read_exact(&mut byte)).await;
        read.ok()?.ok().map(|_| byte[0])
    }

    #[tokio::test]
    async fn what_is_held_comes_late() {
        let (proxy, mut client, received) = pair().await;
        proxy.set(Way::Open, Way::Held);
        assert_eq!(ask(&mut client).await, None);
        assert_eq!(*received.borrow(), 2, "the request was executed");
        proxy.heal();
        assert_eq!(answer(&mut client).await, Some(7));
        proxy.set(Way::Held, Way::Open);
        assert_eq!(ask(&mut client).await, None);
        assert_eq!(*received.borrow(), 2, "the request waits");
        proxy.heal();
        assert_eq!(answer(&mut client).await, Some(7));
        assert_eq!(*received.borrow(), 3, "and is executed late");
    }

    #[tokio::test]
    async fn what_is_swallowed_never_comes() {
        let (proxy, mut client, received) = pair().await;
        proxy.set(Way::Open, Way::Swallowed);
        assert_eq!(ask(&mut client).await, None);
        assert_eq!(*received.borrow(), 2, "the request was executed");
        proxy.heal();
        assert_eq!(answer(&mut client).await, None, "the connection breaks");
        let again = TcpStream::connect(("127.0.0.1", proxy.port())).await;
        assert_eq!(ask(&mut again.expect("a connection")).await, Some(7));
    }

    #[tokio::test]
    async fn a_reset_breaks_connections_and_a_refusal_new_ones() {
        let (proxy, mut client, _) = pair().await;
        proxy.reset();
        assert_eq!(answer(&mut client).await, None);
        assert!(client.write_all(&[7]).await.is_err() || ask(&mut client).await.is_none());
        proxy.refuse(true);
        let refused = TcpStream::connect(("127.0.0.1", proxy.port())).await;
        assert_eq!(ask(&mut refused.expect("a socket")).await, None);
        proxy.heal();
        let again = TcpStream::connect(("127.0.0.1", proxy.port())).await;
        assert_eq!(ask(&mut again.expect("a connection")).await, Some(7));
    }

    #[tokio::test]
    async fn what_is_stranded_stands_still_and_new_ones_pass() {
        let (proxy, mut client, received) = pair().await;
        proxy.strand();
        assert_eq!(ask(&mut client).await, None);
        assert_eq!(*received.borrow(), 1, "nothing arrived");
        let again = TcpStream::connect(("127.0.0.1", proxy.port())).await;
        assert_eq!(ask(&mut again.expect("a connection")).await, Some(7));
        assert_eq!(answer(&mut client).await, None);
        client.write_all(&[7]).await.expect("nobody closed it");
        proxy.reset();
        assert!(
            timeout(SOON, client.read_u8())
                .await
                .expect("its end")
                .is_err(),
            "a reset ends it"
        );
    }

    #[tokio::test]
    async fn what_is_slow_takes_its_time() {
        let (proxy, mut client, _) = pair().await;
        proxy.set(Way::Slow(SOON / 4), Way::Slow(SOON / 4));
        let asked = Instant::now();
        assert_eq!(ask(&mut client).await, Some(7));
        assert!(asked.elapsed() >= SOON / 2);
    }
}
