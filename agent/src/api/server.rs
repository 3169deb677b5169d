//! Serving the API: the service, grpc health and reflection on one listener, until told to stop.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio_stream::wrappers::UnixListenerStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};
use tonic::service::Routes;
use tonic::transport::Server;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use super::access::{Access, Guard};
use super::agent::Agent;
use super::pb;
use super::service::Service;
use super::tls::TlsListener;
use crate::engine::Health;

const SERVICE: &str = pb::volferry_server::SERVICE_NAME;

/// No request of ours comes near this; a larger message is refused before it is read.
const LARGEST_MESSAGE: usize = 1024 * 1024;
/// How long calls in flight may take to end once the server stops.
const LAST_CALLS: Duration = Duration::from_secs(5);

/// A client on the network that does not answer for so long has gone.
const SILENCE: Duration = Duration::from_secs(60);
/// Calls at a time on one connection, and the headers of one.
const STREAMS: u32 = 128;
const LARGEST_HEADERS: u32 = 16 * 1024;

/// Where calls come in.
#[derive(Debug)]
pub struct Doors {
    /// The unix socket.
    pub socket: UnixListener,
    /// The listener on the network.
    pub tls: Option<TlsListener>,
}

impl From<UnixListener> for Doors {
    fn from(socket: UnixListener) -> Self {
        Self { socket, tls: None }
    }
}

/// Why serving ended early.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The listener or the protocol below it failed.
    #[error("serving the API failed")]
    Transport(#[from] tonic::transport::Error),
    /// The descriptors of this build cannot be served.
    #[error("the API's own descriptors cannot be read")]
    Descriptors(#[from] tonic_reflection::server::Error),
}

/// Serves until `stop`: watch streams then end, calls in flight get a few seconds, operations go on.
pub async fn serve<A: Agent>(
    agent: Arc<A>,
    doors: impl Into<Doors>,
    access: Arc<Access>,
    stop: CancellationToken,
) -> Result<(), ServeError> {
    let (reporter, health) = tonic_health::server::health_reporter();
    let told = agent.health();
    let now = *told.borrow();
    report(&reporter, now).await;
    let reporting = AbortOnDropHandle::new(tokio::spawn(follow(reporter, told, now)));
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(pb::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()?;
    let commands = TaskTracker::new();
    let service = Service::new(agent, stop.clone(), commands.clone());
    let service = pb::volferry_server::VolferryServer::new(service)
        .max_decoding_message_size(LARGEST_MESSAGE);
    let routes = Routes::new(service).add_service(health).add_service(reflection);
    let served = tokio::select! {
        ended = listen(doors.into(), routes, access, stop.clone()) => ended.map_err(ServeError::from),
        () = async { stop.cancelled().await; tokio::time::sleep(LAST_CALLS).await } => {
            tracing::warn!("calls in flight were cut off");
            Ok(())
        }
    };
    drop(reporting);
    commands.close();
    if tokio::time::timeout(LAST_CALLS, commands.wait()).await.is_err() {
        tracing::warn!("commands in flight were cut off");
    }
    served
}

/// The same services at every door, all behind the one guard.
async fn listen(
    doors: Doors,
    routes: Routes,
    access: Arc<Access>,
    stop: CancellationToken,
) -> Result<(), tonic::transport::Error> {
    let server = || {
        Server::builder()
            .max_concurrent_streams(STREAMS)
            .http2_max_header_list_size(LARGEST_HEADERS)
            .layer(Guard::new(Arc::clone(&access)))
    };
    let local = server().add_routes(routes.clone()).serve_with_incoming_shutdown(
        UnixListenerStream::new(doors.socket),
        stop.clone().cancelled_owned(),
    );
    let Some(listener) = doors.tls else { return local.await };
    let incoming = listener.incoming(Arc::clone(&access), stop.clone());
    let remote = server()
        .http2_keepalive_interval(Some(SILENCE))
        .add_routes(routes)
        .serve_with_incoming_shutdown(incoming, stop.cancelled_owned());
    tokio::try_join!(local, remote).map(|((), ())| ())
}

/// Tells every change of the agent's health, of the service and of the server as a whole.
async fn follow(reporter: HealthReporter, mut told: watch::Receiver<Health>, mut last: Health) {
    loop {
        match told.wait_for(|health| *health != last).await {
            Ok(health) => last = *health,
            Err(_) => return,
        }
        report(&reporter, last).await;
    }
}

async fn report(reporter: &HealthReporter, health: Health) {
    let status = match health.is_serving() {
        true => ServingStatus::Serving,
        false => ServingStatus::NotServing,
    };
    tracing::info!(?health, %status, "health");
    for service in ["", SERVICE] {
        reporter.set_service_status(service, status).await;
    }
}
