//! What a daemon says of its own health over gRPC: serving only while libvirt is there and everything of an earlier life
//! has been looked at again.

use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint};
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use volferry_agent::config::Config;
use volferry_agent::daemon;
use volferry_agent::fake::Stage;
use volferry_agent::fake::faults::{Fault, Method};
use volferry_agent::fake::scene::Home;
use volferry_agent::operation::State;

const SERVING: i32 = 1;
const NOT_SERVING: i32 = 2;
const SERVICES: [&str; 2] = ["", "volferry.v1.Volferry"];

/// A daemon on the engine of a stage, and those who follow its health.
struct Daemon {
    stop: CancellationToken,
    serving: JoinHandle<()>,
    health: Vec<Streaming<HealthCheckResponse>>,
    _folder: tempfile::TempDir,
}

impl Daemon {
    async fn start(stage: &Stage) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("socket");
        let text = format!("host_name = \"host-a\"\nlisten = \"unix:{}\"\n", socket.display());
        let config = Config::parse(&text).expect("a configuration");
        let (engine, stop) = (Arc::new(stage.agent.engine.clone()), CancellationToken::new());
        let stopped = stop.clone();
        let serving = tokio::spawn(async move {
            daemon::serve(&config, engine, stopped).await.expect("it serves");
        });
        while UnixStream::connect(&socket).await.is_err() {
            tokio::task::yield_now().await;
        }
        let connect = tower::service_fn(move |_| {
            let socket = socket.clone();
            async move { UnixStream::connect(socket).await.map(TokioIo::new) }
        });
        let endpoint = Endpoint::from_static("http://volferryd");
        let channel: Channel = endpoint.connect_with_connector(connect).await.expect("it listens");
        let mut health = Vec::new();
        for service in SERVICES {
            let request = HealthCheckRequest { service: service.to_owned() };
            let answer = HealthClient::new(channel.clone()).watch(request).await;
            health.push(answer.expect("a stream").into_inner());
        }
        Self { stop, serving, health, _folder: folder }
    }

    /// The next thing said, alike of the service and of the server as a whole.
    async fn says(&mut self, status: i32) {
        for stream in &mut self.health {
            let said = tokio::time::timeout(Duration::from_secs(10), stream.message()).await;
            let said = said.expect("something is said").expect("no error").expect("no end");
            assert_eq!(said.status, status);
        }
    }

    async fn stop(self) {
        self.stop.cancel();
        drop(self.health);
        self.serving.await.expect("no panic");
    }
}

#[tokio::test]
async fn a_daemon_without_libvirt_does_not_serve_until_it_is_back() {
    let stage = Stage::new(Home::Rbd, true).await;
    let mut daemon = Daemon::start(&stage).await;
    daemon.says(SERVING).await;
    for _ in 0..2 {
        stage.world.libvirt_away();
        daemon.says(NOT_SERVING).await;
        stage.world.libvirt_back();
        daemon.says(SERVING).await;
    }
    daemon.stop().await;
    // One that starts while libvirt is away says so from the beginning.
    stage.world.libvirt_away();
    let stage = stage.restart().await;
    let mut daemon = Daemon::start(&stage).await;
    daemon.says(NOT_SERVING).await;
    stage.world.libvirt_back();
    daemon.says(SERVING).await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_daemon_does_not_serve_before_what_it_took_up_again_was_looked_at() {
    let stage = Stage::new(Home::Rbd, true).await;
    let mut request = stage.guest.request("nfs-1");
    request.manual_pivot = true;
    stage.begin(&request).await;
    stage.reaches(&request, State::Ready).await;
    for method in [Method::JobInfo, Method::ObserveDomain] {
        for nth in 1..100 {
            stage.world.fault(method, nth, Fault::Hang);
        }
    }
    let stage = stage.restart().await;
    let mut daemon = Daemon::start(&stage).await;
    daemon.says(NOT_SERVING).await;
    stage.world.clear_script();
    stage.world.release();
    daemon.says(SERVING).await;
    stage.agent.engine.complete(&request.operation).await.expect("it waits for the word");
    assert_eq!(stage.end(&request).await.state, State::Succeeded);
    daemon.stop().await;
}
