//! Outbound HTTP/1.1: resolves names itself, connects only to addresses that were checked, and keeps
//! connections for the attempt that opened them.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http_body_util::BodyExt as _;
use hyper::client::conn::http1::{self, SendRequest};
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinSet;
use wasmtime_wasi_http::io::TokioIo;
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody};

use crate::control::AttemptControl;
use crate::grants::Origin;
use crate::host::lock;
use crate::http_body::{Inbound, Outbound};

/// Time to resolve, connect and shake hands, unless the guest asks for another.
const CONNECT_TIME: Duration = Duration::from_secs(10);
/// Time until the head of the response, unless the guest asks for another.
const HEAD_TIME: Duration = Duration::from_secs(300);
/// Time between two pieces of the response's body, unless the guest asks for another.
const PIECE_TIME: Duration = Duration::from_secs(60);
/// A connection that waited longer may have been closed by its server meanwhile.
const IDLE_MAX: Duration = Duration::from_secs(4);
/// Header fields of a response.
const HEADERS_MAX: usize = 200;

/// What all attempts share: the trusted authorities, read at the first HTTPS request.
#[derive(Default)]
pub(crate) struct Client {
    ca_file: Option<PathBuf>,
    tls: tokio::sync::OnceCell<Arc<rustls::ClientConfig>>,
}

impl Client {
    pub(crate) fn new(ca_file: Option<PathBuf>) -> Arc<Self> {
        Arc::new(Self {
            ca_file,
            tls: tokio::sync::OnceCell::new(),
        })
    }

    async fn tls(&self) -> Result<Arc<rustls::ClientConfig>, Error> {
        let read = || async {
            let file = self.ca_file.clone();
            match tokio::task::spawn_blocking(move || tls_config(file)).await {
                Ok(Ok(config)) => Ok(Arc::new(config)),
                Ok(Err(error)) => Err(Error::InternalError(Some(error))),
                Err(error) => Err(Error::InternalError(Some(error.to_string()))),
            }
        };
        self.tls.get_or_try_init(read).await.cloned()
    }
}

fn tls_config(ca_file: Option<PathBuf>) -> Result<rustls::ClientConfig, String> {
    let mut roots = rustls::RootCertStore::empty();
    let native = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(native.certs);
    if let Some(file) = ca_file {
        let certificates = CertificateDer::pem_file_iter(&file)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| format!("`{}`: {error}", file.display()))?;
        roots.add_parsable_certificates(certificates);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// The open connections of one attempt. Dropping it closes them.
#[derive(Default)]
pub(crate) struct Pool {
    idle: Mutex<HashMap<Origin, Vec<Idle>>>,
    drivers: Mutex<JoinSet<()>>,
}

struct Idle {
    sender: SendRequest<WasiBody>,
    since: Instant,
}

impl Pool {
    fn take(&self, origin: &Origin) -> Option<SendRequest<WasiBody>> {
        let mut idle = lock(&self.idle);
        let waiting = idle.get_mut(origin)?;
        while let Some(next) = waiting.pop() {
            if next.since.elapsed() < IDLE_MAX && !next.sender.is_closed() {
                return Some(next.sender);
            }
        }
        None
    }

    /// Takes a connection back whose response has been read to its end.
    pub(crate) fn give_back(&self, origin: Origin, sender: SendRequest<WasiBody>) {
        if sender.is_closed() {
            return;
        }
        lock(&self.idle).entry(origin).or_default().push(Idle {
            sender,
            since: Instant::now(),
        });
    }

    /// Drives a connection until it ends or the attempt does.
    fn drive(&self, connection: impl Future<Output = Result<(), hyper::Error>> + Send + 'static) {
        let mut drivers = lock(&self.drivers);
        while drivers.try_join_next().is_some() {}
        drivers.spawn(async move {
            // Its requests see the error themselves.
            let _ = connection.await;
        });
    }
}

/// One permitted request and what it may use up.
pub(crate) struct Exchange {
    pub(crate) client: Arc<Client>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) control: AttemptControl,
    pub(crate) origin: Origin,
    pub(crate) options: RequestOptions,
    pub(crate) body_max: u64,
    pub(crate) permit: OwnedSemaphorePermit,
}

impl Exchange {
    /// Sends the request and waits for the head of the response.
    pub(crate) async fn run(
        self,
        request: http::Request<WasiBody>,
    ) -> Result<http::Response<WasiBody>, Error> {
        let (mut parts, body) = request.into_parts();
        // On the wire the target is path and query only; origin and Host header say the rest.
        let target = parts
            .uri
            .path_and_query()
            .map_or("/", http::uri::PathAndQuery::as_str);
        parts.uri = target.parse().map_err(|_| Error::HttpRequestUriInvalid)?;
        let body = Outbound::new(body, self.control.clone(), self.body_max).boxed_unsync();
        let mut request = http::Request::from_parts(parts, body);

        let head_time = self.options.first_byte_timeout.unwrap_or(HEAD_TIME);
        loop {
            let (mut sender, reused) = match self.pool.take(&self.origin) {
                Some(mut sender) => {
                    let ready = tokio::time::timeout(CONNECT_TIME, sender.ready());
                    if !matches!(ready.await, Ok(Ok(()))) {
                        continue;
                    }
                    (sender, true)
                }
                None => (self.connect().await?, false),
            };
            let sent = tokio::time::timeout(head_time, sender.try_send_request(request))
                .await
                .map_err(|_| Error::ConnectionReadTimeout)?;
            match sent {
                Ok(response) => return Ok(self.receive(response, sender)),
                Err(mut error) => match error.take_message() {
                    // The server closed a kept connection before it saw anything of the request.
                    Some(unsent) if reused => request = unsent,
                    _ => return Err(cause(error.into_error())),
                },
            }
        }
    }

    fn receive(
        self,
        response: http::Response<hyper::body::Incoming>,
        sender: SendRequest<WasiBody>,
    ) -> http::Response<WasiBody> {
        let piece_time = self.options.between_bytes_timeout.unwrap_or(PIECE_TIME);
        response.map(|body| {
            Inbound::new(
                body,
                self.body_max,
                piece_time,
                self.permit,
                (self.pool, self.origin, sender),
            )
            .boxed_unsync()
        })
    }

    async fn connect(&self) -> Result<SendRequest<WasiBody>, Error> {
        let time = self.options.connect_timeout.unwrap_or(CONNECT_TIME);
        tokio::time::timeout(time, async {
            let stream = connect_checked(&self.origin).await?;
            if self.origin.tls {
                let name = ServerName::try_from(self.origin.host.clone())
                    .map_err(|_| Error::HttpRequestUriInvalid)?;
                let stream = tokio_rustls::TlsConnector::from(self.client.tls().await?)
                    .connect(name, stream)
                    .await
                    .map_err(Error::Tls)?;
                self.handshake(TokioIo::new(stream)).await
            } else {
                self.handshake(TokioIo::new(stream)).await
            }
        })
        .await
        .map_err(|_| Error::ConnectionTimeout)?
    }

    async fn handshake<S>(&self, stream: TokioIo<S>) -> Result<SendRequest<WasiBody>, Error>
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static,
    {
        let (sender, connection) = http1::Builder::new()
            .max_headers(HEADERS_MAX)
            .handshake(stream)
            .await?;
        self.pool.drive(connection);
        Ok(sender)
    }
}

/// Hyper's error, or the one with which our own side of the body ended the request.
fn cause(error: hyper::Error) -> Error {
    let ours = std::error::Error::source(&error).and_then(|source| source.downcast_ref::<Error>());
    match ours {
        Some(Error::HttpRequestBodySize(limit)) => Error::HttpRequestBodySize(*limit),
        Some(Error::HttpRequestDenied) => Error::HttpRequestDenied,
        _ => error.into(),
    }
}

/// Resolves the origin's host and connects to the first reachable address that is allowed. The
/// address that was checked is the one that is used, so a name that resolves differently a moment
/// later gains nothing.
async fn connect_checked(origin: &Origin) -> Result<TcpStream, Error> {
    let addresses: Vec<SocketAddr> = match origin.ip() {
        Some(ip) => vec![SocketAddr::new(ip, origin.port)],
        None => tokio::net::lookup_host((origin.host.as_str(), origin.port))
            .await
            .map_err(|error| Error::DnsError {
                rcode: Some(error.to_string()),
                info_code: None,
            })?
            .collect(),
    };
    let mut last = Error::DestinationIpProhibited;
    for address in addresses {
        if !address_allowed(origin, address.ip()) {
            continue;
        }
        match TcpStream::connect(address).await {
            Ok(stream) => {
                stream.set_nodelay(true).map_err(Error::Connect)?;
                return Ok(stream);
            }
            Err(error) => last = Error::Connect(error),
        }
    }
    Err(last)
}

/// Whether a request to `origin` may go to `ip`. Link-local addresses (where clouds serve their
/// metadata) never; loopback only if the grant says `localhost` or the address itself.
fn address_allowed(origin: &Origin, ip: IpAddr) -> bool {
    /// Amazon's metadata service over IPv6.
    const METADATA_V6: std::net::Ipv6Addr =
        std::net::Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);
    match ip.to_canonical() {
        IpAddr::V4(ip) => {
            if ip.is_link_local() || ip.is_unspecified() || ip.is_broadcast() || ip.is_multicast() {
                return false;
            }
            // 0.0.0.0/8 reaches this host on some systems.
            ip.octets()[0] != 0 && (!ip.is_loopback() || origin.is_literal())
        }
        IpAddr::V6(ip) => {
            if ip.is_unicast_link_local()
                || ip.is_unspecified()
                || ip.is_multicast()
                || ip == METADATA_V6
            {
                return false;
            }
            !ip.is_loopback() || origin.is_literal()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(origin: &str, ip: &str) -> bool {
        let grant: crate::HttpGrant = origin.parse().unwrap_or_else(|e| panic!("{e}"));
        address_allowed(&grant.origin, ip.parse().unwrap_or_else(|e| panic!("{e}")))
    }

    #[test]
    fn metadata_and_loopback_are_out_of_reach_for_names() {
        for ip in [
            "127.0.0.1",
            "127.9.9.9",
            "::1",
            "::ffff:127.0.0.1",
            "169.254.169.254",
            "::ffff:169.254.169.254",
            "fe80::1",
            "fd00:ec2::254",
            "0.0.0.0",
            "0.1.2.3",
            "::",
            "224.0.0.1",
        ] {
            assert!(!allowed("http://rebound.example.com", ip), "{ip}");
        }
        assert!(allowed("http://internal.example.com", "10.0.0.7"));
        assert!(allowed("http://example.com", "93.184.216.34"));
    }

    #[test]
    fn loopback_is_reached_by_its_own_name_only() {
        assert!(allowed("http://localhost:9000", "127.0.0.1"));
        assert!(allowed("http://localhost:9000", "::1"));
        assert!(allowed("http://127.0.0.1:9000", "127.0.0.1"));
        assert!(!allowed("http://169.254.169.254", "169.254.169.254"));
    }
}
