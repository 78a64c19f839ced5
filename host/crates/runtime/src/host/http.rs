//! `wasi:http/outgoing-handler`: requests to granted origins only. How a permitted request travels is
//! in [`crate::http_client`]. Redirects are followed by guests, so each hop comes through here.

use std::sync::Arc;

use http::Method;
use tokio::sync::Semaphore;
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody, WasiHttpHooks};

use crate::attempt_host::{LogLevel, LogSource};
use crate::control::AttemptControl;
use crate::grants::Origin;
use crate::host::log::LogDesk;
use crate::http_client::{Client, Exchange, Pool};
use crate::spec::{Grants, Limits};

/// What [`WasiHttpHooks::send_request`] answers.
type Sending = dyn Future<
        Output = Result<
            (
                http::Response<WasiBody>,
                Box<dyn Future<Output = Result<(), Error>> + Send>,
            ),
            Error,
        >,
    > + Send;

/// The gate through which all requests of one attempt go.
pub(crate) struct HttpGate {
    grants: Arc<Grants>,
    control: AttemptControl,
    log: Arc<LogDesk>,
    client: Arc<Client>,
    body_max: u64,
    in_flight: Arc<Semaphore>,
    /// Made for the first request: most attempts make none.
    pool: Option<Arc<Pool>>,
}

impl HttpGate {
    pub(crate) fn new(
        client: Arc<Client>,
        grants: Arc<Grants>,
        control: AttemptControl,
        log: Arc<LogDesk>,
        limits: &Limits,
    ) -> Self {
        Self {
            grants,
            control,
            log,
            client,
            body_max: limits.http_body,
            in_flight: Arc::new(Semaphore::new(limits.http_connections as usize)),
            pool: None,
        }
    }

    /// The origin of a request that may be sent, or why not.
    fn check(&self, request: &http::Request<WasiBody>) -> Result<Origin, Error> {
        if self.control.lease_expired() {
            return Err(Error::HttpRequestDenied);
        }
        if request.method() == Method::CONNECT {
            return Err(Error::HttpRequestMethodInvalid);
        }
        let refuse = |why: &str| {
            self.log.line(
                LogLevel::Warn,
                LogSource::Host,
                &format!(
                    "{} {} was refused: {why}",
                    request.method(),
                    // The query may carry a secret.
                    request
                        .uri()
                        .to_string()
                        .split('?')
                        .next()
                        .unwrap_or_default()
                ),
                &[],
            );
            Error::HttpRequestDenied
        };
        let origin = Origin::of(request.uri()).map_err(|why| refuse(&why))?;
        let granted = self
            .grants
            .http
            .iter()
            .any(|grant| grant.allows(&origin, request.method(), request.uri().path()));
        if !granted {
            return Err(refuse("the job does not grant it"));
        }
        Ok(origin)
    }
}

impl WasiHttpHooks for HttpGate {
    fn send_request(
        &mut self,
        request: http::Request<WasiBody>,
        options: Option<RequestOptions>,
        _: Box<dyn Future<Output = Result<(), Error>> + Send>,
    ) -> Box<Sending> {
        let origin = match self.check(&request) {
            Ok(origin) => origin,
            Err(error) => return Box::new(async { Err(error) }),
        };
        let Ok(permit) = self.in_flight.clone().try_acquire_owned() else {
            return Box::new(async { Err(Error::ConnectionLimitReached) });
        };
        let exchange = Exchange {
            client: self.client.clone(),
            pool: self.pool.get_or_insert_default().clone(),
            control: self.control.clone(),
            origin,
            options: options.unwrap_or_default(),
            body_max: self.body_max,
            permit,
        };
        Box::new(async move {
            let response = exchange.run(request).await?;
            // The connection is driven by the pool, so there is nothing left to do here.
            let rest: Box<dyn Future<Output = Result<(), Error>> + Send> =
                Box::new(async { Ok(()) });
            Ok((response, rest))
        })
    }
}
