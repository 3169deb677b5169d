//! The service over a real socket: what a gRPC client sees, in health and in abuse.

#[path = "support/fake_agent.rs"]
mod fake_agent;

use std::path::Path;
use std::time::Duration;

use fake_agent::Served;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request};
use volferry_agent::api::{pb, status};
use volferry_agent::operation::State;

type Client = pb::volferry_client::VolferryClient<Channel>;

async fn channel(socket: &Path) -> Channel {
    let socket = socket.to_owned();
    Endpoint::from_static("http://volferryd")
        .connect_with_connector(tower::service_fn(move |_| {
            let socket = socket.clone();
            async move { UnixStream::connect(socket).await.map(TokioIo::new) }
        }))
        .await
        .expect("a served agent")
}

async fn client(served: &Served) -> Client {
    Client::new(channel(&served.socket).await)
}

fn request(id: &str, disk: &str, to: &str) -> pb::MigrateRequest {
    pb::MigrateRequest {
        operation_id: id.into(),
        domain: "web".into(),
        disk: disk.into(),
        to_pool: to.into(),
        ..Default::default()
    }
}

#[tokio::test]
async fn the_same_request_is_the_same_operation_and_another_is_refused() {
    let served = Served::start().await;
    let mut client = client(&served).await;
    let first = client.migrate(request("a", "vdb", "ceph")).await.expect("accepted").into_inner();
    let again = client.migrate(request("a", "vdb", "ceph")).await.expect("the same").into_inner();
    assert_eq!((first.id.as_str(), again.id.as_str()), ("a", "a"));
    assert_eq!(first.volume_is_at, "/mnt/nfs-1/root.qcow2");
    let other = client.migrate(request("a", "vdc", "ceph")).await.expect_err("another request");
    assert_eq!(other.code(), Code::Aborted);
    assert_eq!(status::refusal_of(&other).expect("a refusal").code, "busy");
    let unnamed = client.migrate(request("", "vdb", "ceph")).await.expect("accepted").into_inner();
    assert!(!unnamed.id.is_empty());
}

#[tokio::test]
async fn a_refusal_carries_its_code_twice() {
    let served = Served::start().await;
    let refused = client(&served).await.migrate(request("a", "vda", "full")).await;
    let refused = refused.expect_err("a full pool");
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert_eq!(refused.message(), "pool full has 0 B left");
    let code = refused.metadata().get(status::REFUSAL_CODE_KEY).expect("the metadata");
    assert_eq!(code.to_str().ok(), Some("no-space"));
    let retry = refused.metadata().get(status::RETRY_KEY).expect("the metadata");
    assert_eq!(retry.to_str().ok(), Some("later"));
    let detail = status::refusal_of(&refused).expect("the detail");
    assert_eq!((detail.code.as_str(), detail.retry()), ("no-space", pb::RetryClass::Later));
}

#[tokio::test]
async fn names_are_checked_before_the_agent_sees_them() {
    let served = Served::start().await;
    let mut client = client(&served).await;
    let refused = client.migrate(request("../x", "vda", "ceph")).await.expect_err("a path");
    assert_eq!(status::refusal_of(&refused).expect("a refusal").code, "invalid-name");
    assert!(served.agent.operations_are_none());
    let fast =
        pb::MigrateRequest { bandwidth_bytes_per_second: u64::MAX, ..request("a", "vda", "ceph") };
    let refused = client.migrate(fast).await.expect_err("no rate");
    assert_eq!(refused.code(), Code::InvalidArgument);
    let gone = pb::GetOperationRequest { operation_id: "nope".into() };
    let unknown = client.get_operation(gone).await.expect_err("no such operation");
    assert_eq!((unknown.code(), unknown.message()), (Code::NotFound, "there is no operation nope"));
}

#[tokio::test]
async fn a_watch_begins_with_now_and_ends_with_the_end() {
    let served = Served::start().await;
    let mut client = client(&served).await;
    client.migrate(request("a", "vda", "ceph")).await.expect("accepted");
    let watch = pb::WatchOperationRequest { operation_id: "a".into() };
    let mut changes = client.watch_operation(watch.clone()).await.expect("a stream").into_inner();
    let mut states = Vec::new();
    let mut last = None;
    while let Some(operation) = changes.message().await.expect("no error") {
        states.push(operation.state());
        last = Some(operation);
    }
    assert!(states.contains(&pb::State::Copying), "{states:?}");
    let last = last.expect("at least one");
    assert_eq!((last.state(), last.place()), (pb::State::Succeeded, pb::Place::Destination));
    assert_eq!(last.volume_is_at, "rbd:vms/root");
    assert_eq!(last.result.expect("a result").source_fate(), pb::SourceFate::LeftBehind);
    let mut ended = client.watch_operation(watch).await.expect("a stream").into_inner();
    assert!(ended.message().await.expect("no error").is_some());
    assert!(ended.message().await.expect("no error").is_none());
}

#[tokio::test]
async fn where_the_volume_is_cannot_always_be_told() {
    let served = Served::start().await;
    let mut client = client(&served).await;
    client.migrate(request("a", "vdz", "ceph")).await.expect("accepted");
    served.agent.enter("a", State::Pivoting);
    let get = pb::GetOperationRequest { operation_id: "a".into() };
    let operation = client.get_operation(get).await.expect("the operation").into_inner();
    assert_eq!((operation.volume_is_at.as_str(), operation.place()), ("", pb::Place::Unknown));
    let cancel = pb::CancelOperationRequest { operation_id: "a".into() };
    let refused = client.cancel_operation(cancel).await.expect_err("too late");
    assert_eq!(refused.code(), Code::FailedPrecondition);
    let retry = refused.metadata().get(status::RETRY_KEY).expect("the metadata");
    assert_eq!(retry.to_str().ok(), Some("never"));
    let problem = status::problem_of(&refused).expect("the detail");
    assert_eq!(problem.reason(), pb::CommandReason::NotAllowed);
}

#[tokio::test]
async fn lists_come_in_pages_newest_first() {
    let served = Served::start().await;
    let mut client = client(&served).await;
    for id in ["a", "b", "c", "d", "e"] {
        client.migrate(request(id, "vdb", "ceph")).await.expect("accepted");
    }
    served.agent.enter("b", State::Cancelled);
    let mut list = pb::ListOperationsRequest { page_size: 2, ..Default::default() };
    let mut pages = Vec::new();
    loop {
        let page = client.list_operations(list.clone()).await.expect("a page").into_inner();
        pages.push(page.operations.into_iter().map(|operation| operation.id).collect::<String>());
        list.page_token = page.next_page_token;
        if list.page_token.is_empty() {
            break;
        }
    }
    assert_eq!(pages, ["ed", "cb", "a"]);
    let running = pb::ListOperationsRequest { unfinished_only: true, ..Default::default() };
    let running = client.list_operations(running).await.expect("a page").into_inner();
    assert_eq!(running.operations.len(), 4);
    let others = pb::ListOperationsRequest { domain: "db".into(), ..Default::default() };
    let others = client.list_operations(others).await.expect("a page").into_inner();
    assert!(others.operations.is_empty());
    let list = pb::ListOperationsRequest { page_token: "nobody".into(), ..Default::default() };
    let nowhere = client.list_operations(list).await.expect_err("what follows it is not known");
    assert_eq!(nowhere.code(), tonic::Code::InvalidArgument, "{nowhere}");
}

/// A message whose first field is a number where text belongs.
#[derive(Clone, PartialEq, prost::Message)]
struct Malformed {
    #[prost(uint64, tag = "1")]
    number: u64,
}

async fn send_malformed(channel: Channel) -> tonic::Status {
    let mut grpc = tonic::client::Grpc::new(channel);
    grpc.ready().await.expect("a ready channel");
    let codec = tonic_prost::ProstCodec::<Malformed, pb::Operation>::default();
    let path = "/volferry.v1.Volferry/Migrate".parse().expect("a path");
    let message = Request::new(Malformed { number: 7 });
    grpc.unary(message, path, codec).await.expect_err("malformed")
}

#[tokio::test]
async fn malformed_and_oversized_messages_hurt_only_their_sender() {
    let served = Served::start().await;
    let malformed = send_malformed(channel(&served.socket).await).await;
    assert_eq!(malformed.code(), Code::Internal, "{malformed}");
    let mut client = client(&served).await;
    let huge = "x".repeat(2 * 1024 * 1024);
    let oversized = client.migrate(request(&huge, "vda", "ceph")).await.expect_err("oversized");
    assert_eq!(oversized.code(), Code::OutOfRange, "{oversized}");
    let mut stranger = UnixStream::connect(&served.socket).await.expect("a connection");
    stranger.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n\0\xff").await.expect("written");
    let mut answer = Vec::new();
    let _ = stranger.read_to_end(&mut answer).await;
    let host = client.get_host_capabilities(pb::GetHostCapabilitiesRequest {}).await;
    assert_eq!(host.expect("it goes on").into_inner().host_name, "host-a");
}

#[tokio::test]
async fn health_and_reflection_are_served() {
    use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
    use tonic_reflection::pb::v1::ServerReflectionRequest;
    use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
    use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
    use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

    let served = Served::start().await;
    let channel = channel(&served.socket).await;
    let check = HealthCheckRequest { service: "volferry.v1.Volferry".into() };
    let health = HealthClient::new(channel.clone()).check(check).await.expect("an answer");
    assert_eq!(health.into_inner().status, 1, "SERVING");
    let list = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let requests = futures::stream::iter([list]);
    let mut answers = ServerReflectionClient::new(channel)
        .server_reflection_info(requests)
        .await
        .expect("an answer")
        .into_inner();
    let answer = answers.message().await.expect("no error").expect("one answer");
    let Some(MessageResponse::ListServicesResponse(list)) = answer.message_response else {
        panic!("a list of services")
    };
    let names: Vec<_> = list.service.into_iter().map(|service| service.name).collect();
    assert!(names.contains(&"volferry.v1.Volferry".to_owned()), "{names:?}");
}

#[tokio::test]
async fn stopping_ends_the_streams_and_not_the_operations() {
    let served = Served::start().await;
    let mut client = client(&served).await;
    client.migrate(request("a", "vdz", "ceph")).await.expect("accepted");
    let watch = pb::WatchOperationRequest { operation_id: "a".into() };
    let mut changes = client.watch_operation(watch).await.expect("a stream").into_inner();
    changes.message().await.expect("no error").expect("the first");
    let socket = served.socket.clone();
    let stopped = tokio::time::timeout(Duration::from_secs(4), served.stop());
    let (stopped, end) = tokio::join!(stopped, async {
        loop {
            match changes.message().await {
                Ok(Some(_)) => {}
                end => break end,
            }
        }
    });
    let stopped = stopped.expect("it stops at once");
    assert_eq!(end.expect_err("the agent stops").code(), Code::Unavailable);
    assert!(!socket.exists(), "the socket goes with the server");
    let served = stopped.start().await;
    let get = pb::GetOperationRequest { operation_id: "a".into() };
    let mut client = self::client(&served).await;
    assert_eq!(client.get_operation(get).await.expect("it went on").into_inner().id, "a");
}

#[tokio::test]
async fn a_command_runs_to_its_end_when_its_client_leaves() {
    let served = Served::start().await;
    let mut client = client(&served).await;
    let call = tokio::spawn(async move { client.migrate(request("a", "vdz", "slow")).await });
    served.agent.at_the_gate.notified().await;
    call.abort();
    assert!(call.await.expect_err("the client left").is_cancelled());
    let mut client = self::client(&served).await;
    // Whatever the server notices of the client's going, it has noticed once another call was answered.
    client.list_pools(pb::ListPoolsRequest {}).await.expect("an answer");
    served.agent.gate.notify_one();
    let get = pb::GetOperationRequest { operation_id: "a".into() };
    let found = async {
        while client.get_operation(get.clone()).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), found).await.expect("it was carried out");
}
