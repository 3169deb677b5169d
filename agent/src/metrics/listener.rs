//! The HTTP listener of the metrics: GET /metrics and nothing else. It shares nothing with the API's listener, so that
//! whoever may scrape may command nothing.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::text::from_open_metrics;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
/// More than one scraper at a time is rare; whoever opens more waits.
const CONNECTIONS: usize = 8;
/// A connection that takes longer is cut off.
const WHOLE: Duration = Duration::from_secs(10);
/// After an accept that failed, for want of descriptors say.
const PAUSE: Duration = Duration::from_millis(200);

/// The address cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen for metrics on {address}")]
pub struct ListenError {
    /// The address.
    pub address: SocketAddr,
    /// Why.
    #[source]
    pub source: io::Error,
}

/// A bound listener.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
}

impl Listener {
    /// Binds it.
    ///
    /// Errors: the address is taken, or not this host's.
    pub async fn bind(address: SocketAddr) -> Result<Self, ListenError> {
        let named = |source| ListenError { address, source };
        let socket = TcpListener::bind(address).await.map_err(named)?;
        let address = socket.local_addr().map_err(named)?;
        Ok(Self { socket, address })
    }

    /// Where it listens; the port is the one it was given when it asked for any.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers scrapes with what `page` makes, until `stop`.
    pub async fn serve<P, F>(self, page: P, stop: CancellationToken)
    where
        P: Fn() -> F + Send + Sync + 'static,
        F: Future<Output = String> + Send + 'static,
    {
        let (page, places) = (Arc::new(page), Arc::new(Semaphore::new(CONNECTIONS)));
        let connections = TaskTracker::new();
        let accepting = async {
            loop {
                let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
                match self.socket.accept().await {
                    Ok((stream, _)) => {
                        let page = Arc::clone(&page);
                        connections.spawn(async move {
                            answer(stream, page).await;
                            drop(place);
                        });
                    }
                    Err(error) => {
                        tracing::warn!(%error, "a scrape could not be accepted");
                        tokio::time::sleep(PAUSE).await;
                    }
                }
            }
        };
        stop.run_until_cancelled(accepting).await;
        // Each is bounded in time.
        connections.close();
        connections.wait().await;
    }
}

async fn answer<P, F>(stream: TcpStream, page: Arc<P>)
where
    P: Fn() -> F + Send + Sync + 'static,
    F: Future<Output = String> + Send + 'static,
{
    let service = service_fn(move |request: Request<Incoming>| {
        let page = Arc::clone(&page);
        async move { Ok::<_, Infallible>(respond(&request, &*page).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    match tokio::time::timeout(WHOLE, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a scrape ended early"),
        Err(_) => tracing::debug!("a scrape was cut off"),
    }
}

async fn respond<P, F>(request: &Request<Incoming>, page: &P) -> Response<Full<Bytes>>
where
    P: Fn() -> F,
    F: Future<Output = String>,
{
    let mut response = Response::new(Full::default());
    match (request.method(), request.uri().path()) {
        (&Method::GET, "/metrics") => {
            let text = page().await;
            if text.is_empty() {
                *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            } else {
                let (kind, text) = match wants_open_metrics(request) {
                    true => (OPEN_METRICS, text),
                    false => (TEXT, from_open_metrics(&text)),
                };
                response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
                *response.body_mut() = Full::from(text);
            }
        }
        (_, "/metrics") => {
            *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET"));
        }
        _ => *response.status_mut() = StatusCode::NOT_FOUND,
    }
    response
}

/// Prometheus names it first among several; who names none of them gets what everybody can read.
fn wants_open_metrics(request: &Request<Incoming>) -> bool {
    let mut accepted = request.headers().get_all(ACCEPT).iter();
    accepted.any(|kinds| {
        kinds.to_str().is_ok_and(|kinds| kinds.contains("application/openmetrics-text"))
    })
}
