//! The gRPC surface and every mutation of a request: each call of each service, through a real server on the programmable
//! world. Nothing panics, nothing hangs, memory stays bounded, and the agent goes on.

#[path = "support/certificates.rs"]
mod certificates;
#[path = "support/mutation.rs"]
mod mutation;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use certificates::Ca;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use mutation::{Cases, Dice, memory, mutate, mutate_in_place};
use prost::Message as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tonic::body::Body;
use tonic::transport::{Channel, Endpoint};
use tower::Service as _;
use volferry_agent::api::access::{Access, Rules, rights};
use volferry_agent::api::pb;
use volferry_agent::api::server::{self, Doors};
use volferry_agent::api::socket::Socket;
use volferry_agent::api::tls::TlsListener;
use volferry_agent::config::Config;
use volferry_agent::fake::Stage;
use volferry_agent::fake::scene::Home;

/// A call that takes longer hangs: nothing in the programmable world takes a tenth of it.
const HANG: Duration = Duration::from_secs(20);
/// What streams without an end are listened to.
const A_WHILE: Duration = Duration::from_millis(20);
/// A world is used for so long: it remembers every call.
const ROUND: u64 = 4000;
/// Calls at a time.
const SIDE_BY_SIDE: usize = 8;
/// More memory than at the beginning is never taken, in kibibytes.
const MOST: u64 = 512 * 1024;
/// Larger than any message that is read.
const TOO_LARGE: usize = 1024 * 1024 + 1;

static PANICS: AtomicU64 = AtomicU64::new(0);

/// A served engine with both doors.
struct Host {
    stage: Stage,
    socket: PathBuf,
    address: SocketAddr,
    channel: Channel,
    stop: CancellationToken,
    serving: AbortOnDropHandle<()>,
    /// Good messages for each call.
    messages: Vec<(&'static str, Vec<u8>)>,
}

impl Host {
    async fn start() -> Self {
        let stage = Stage::new(Home::Rbd, true).await;
        let folder = stage.folder().to_owned();
        let tls = certificates::write_site(&folder, "127.0.0.1:0", &Ca::new("ours"));
        let text = format!("host_name = \"a\"\n{tls}[[client]]\nname = \"a\"\nrole = \"admin\"\n");
        let config = Config::parse(&text).expect("a configuration");
        let access = Arc::new(Access::new(Rules::read(&config).expect("certificates")));
        let listener = TlsListener::bind(([127, 0, 0, 1], 0).into()).await.expect("a port");
        let address = listener.address();
        let socket = folder.join("fuzz.sock");
        let Socket { listener: local, file } = Socket::bind(&socket).await.expect("a socket");
        let (agent, stop) = (Arc::new(stage.agent.engine.clone()), CancellationToken::new());
        let doors = Doors { socket: local, tls: Some(listener) };
        let serving = server::serve(agent, doors, access, stop.clone());
        let serving = tokio::spawn(async move {
            let _file = file;
            serving.await.expect("it serves");
        });
        let channel = connect(&socket).await;
        let messages = messages(&stage.guest.name);
        let serving = AbortOnDropHandle::new(serving);
        Self { stage, socket, address, channel, stop, serving, messages }
    }

    async fn stop(self) {
        drop(self.channel);
        self.stop.cancel();
        tokio::time::timeout(HANG, self.serving).await.expect("it stops").expect("no panic");
        tokio::time::timeout(HANG, self.stage.agent.engine.stop()).await.expect("it stops");
    }

    async fn is_alive(&self) {
        let mut client = pb::volferry_client::VolferryClient::new(self.channel.clone());
        let host = client.get_host_capabilities(pb::GetHostCapabilitiesRequest {});
        let host = tokio::time::timeout(HANG, host).await.expect("in time").expect("an answer");
        assert_eq!(host.into_inner().host_name, "host-a");
    }
}

async fn connect(socket: &Path) -> Channel {
    let socket = socket.to_owned();
    let connect = tower::service_fn(move |_| {
        let socket = socket.clone();
        async move { UnixStream::connect(socket).await.map(TokioIo::new) }
    });
    let endpoint = Endpoint::from_static("http://volferryd");
    endpoint.connect_with_connector(connect).await.expect("a served agent")
}

/// Good messages to begin with: every kind of request, with names of the scene.
fn messages(domain: &str) -> Vec<(&'static str, Vec<u8>)> {
    let id = || "op-1".to_owned();
    let disk = pb::MigrateRequest {
        operation_id: id(),
        domain: domain.to_owned(),
        disk: "vda".into(),
        to_pool: "nfs-1".into(),
        deadline: Some(prost_types::Duration { seconds: 60, nanos: 1 }),
        ..Default::default()
    };
    let selector = pb::VolumeSelector {
        pool: "ceph-hdd".into(),
        name: "data".into(),
        format: pb::VolumeFormat::Raw.into(),
        encryption: "luks2-librbd".into(),
    };
    let pool = pb::RequestPool {
        r#type: "rbd".into(),
        monitors: vec!["192.0.2.1".into(), "[2001:db8::1]:3300".into()],
        ceph_pool: "p".into(),
        ..Default::default()
    };
    let volume = pb::MigrateRequest {
        volume: Some(selector),
        pool: Some(pool),
        to_pool: "brought".into(),
        passphrase: b"a passphrase".to_vec(),
        iotune: [("total_iops_sec".to_owned(), 5_u64)].into(),
        accept_encryption: vec!["luks1-qemu".into()],
        ..Default::default()
    };
    let resolve = pb::ResolveOperationRequest {
        operation_id: id(),
        keep: pb::Place::Source.into(),
        remove_other: true,
    };
    let list = pb::ListOperationsRequest { page_size: 2, page_token: id(), ..Default::default() };
    let rate = pb::SetBandwidthRequest { operation_id: id(), bandwidth_bytes_per_second: 1 << 40 };
    let named = pb::GetOperationRequest { operation_id: id() }.encode_to_vec();
    let mut messages = vec![
        ("Migrate", disk.encode_to_vec()),
        ("Migrate", volume.encode_to_vec()),
        ("Plan", pb::PlanRequest { request: Some(disk) }.encode_to_vec()),
        ("Plan", pb::PlanRequest { request: Some(volume) }.encode_to_vec()),
        (
            "RetryLeftover",
            pb::RetryLeftoverRequest { leftover_id: "op-1-source".into() }.encode_to_vec(),
        ),
        (
            "ForgetLeftover",
            pb::ForgetLeftoverRequest { leftover_id: "op-1-source".into() }.encode_to_vec(),
        ),
        ("ListDisks", pb::ListDisksRequest { domain: domain.to_owned() }.encode_to_vec()),
        ("ResolveOperation", resolve.encode_to_vec()),
        ("ListOperations", list.encode_to_vec()),
        ("SetBandwidth", rate.encode_to_vec()),
    ];
    // Whatever has no message of its own names an operation, or nothing.
    for (path, _) in rights::RIGHTS {
        let call = path.rsplit('/').next().expect("a name");
        if !messages.iter().any(|(known, _)| *known == call) {
            messages.extend([(call, named.clone()), (call, vec![])]);
        }
    }
    messages
}

/// The body of a case: mostly one frame with a mutated message, sometimes no frame at all.
fn body(dice: &mut Dice, path: &str, messages: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let of_call = |(call, _): &&(&str, Vec<u8>)| path.ends_with(&format!("/{call}"));
    let all: Vec<_> = messages.iter().map(|(_, message)| message.clone()).collect();
    let own: Vec<_> = messages.iter().filter(of_call).map(|(_, message)| message.clone()).collect();
    let good = if dice.one_in(8) { dice.pick(&all).clone() } else { dice.pick(&own).clone() };
    let message = match dice.below(40) {
        0 => vec![b'x'; TOO_LARGE + dice.below(TOO_LARGE)],
        // Groups and messages inside each other, deeper than any stack.
        1 => vec![*dice.pick(&[0x0b, 0x0a]); dice.below(200_000)],
        2 => nested(dice.below(4000)),
        3 => dice.bytes(4096),
        4..8 => good,
        8..28 => mutate_in_place(dice, good),
        _ => mutate(dice, good, &all),
    };
    let length = u32::try_from(message.len()).expect("small");
    let (flag, length) = match dice.below(30) {
        0 => (1, length),
        1 => (u8::try_from(dice.below(256)).expect("a byte"), length),
        2 => (0, u32::MAX),
        3 => (0, length.wrapping_add(u32::try_from(dice.below(64)).expect("small"))),
        4 => (0, length.saturating_sub(u32::try_from(dice.below(64)).expect("small"))),
        _ => (0, length),
    };
    let frame = [&[flag], &length.to_be_bytes()[..], &message].concat();
    match dice.below(30) {
        0 => message,
        1 => frame.repeat(1 + dice.below(3)),
        2 => frame[..dice.below(frame.len() + 1)].to_vec(),
        _ => frame,
    }
}

/// Requests of plans inside each other, each with its right length.
fn nested(depth: usize) -> Vec<u8> {
    let mut message = vec![];
    for _ in 0..depth {
        let mut outer = vec![0x0a];
        prost::encoding::encode_varint(message.len() as u64, &mut outer);
        outer.extend(message);
        message = outer;
        if message.len() > 64 * 1024 {
            break;
        }
    }
    message
}

/// One call, its answer read to its end; of a stream without an end, its beginning.
async fn call(channel: &mut Channel, path: &str, body: Vec<u8>) -> Option<String> {
    let request = hyper::Request::post(format!("http://volferryd{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Body::new(Full::new(Bytes::from(body))))
        .expect("a request");
    std::future::poll_fn(|context| channel.poll_ready(context)).await.ok()?;
    let response = channel.call(request).await.ok()?;
    let status = |headers: &hyper::HeaderMap| {
        headers.get("grpc-status").and_then(|code| code.to_str().ok()).map(str::to_owned)
    };
    if let Some(code) = status(response.headers()) {
        return Some(code);
    }
    let mut body = response.into_body();
    let reading = async {
        while let Some(Ok(frame)) = body.frame().await {
            if let Some(code) = frame.trailers_ref().and_then(&status) {
                return Some(code);
            }
        }
        None
    };
    tokio::time::timeout(A_WHILE, reading).await.unwrap_or(Some("a stream".to_owned()))
}

/// Bytes that are no HTTP/2, or hardly, at either door.
async fn talk_nonsense(dice: &mut Dice, host: &Host) {
    let preface =
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\x06\x04\0\0\0\0\0\0\x03\0\0\0\x64".to_vec();
    let hello = [&[0x16, 3, 1, 0, 0xa5, 1, 0, 0, 0xa1, 3, 3], &dice.bytes(160)[..]].concat();
    let seeds = [preface, hello, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec()];
    let first = dice.pick(&seeds).clone();
    let bytes = mutate(dice, first, &seeds);
    let over_the_network = dice.one_in(2);
    // Whoever hangs up in the middle of a sentence is no fault of the agent's.
    let talking = async {
        if over_the_network {
            say(TcpStream::connect(host.address).await?, &bytes).await
        } else {
            say(UnixStream::connect(&host.socket).await?, &bytes).await
        }
    };
    let _: Result<std::io::Result<()>, _> = tokio::time::timeout(A_WHILE, talking).await;
}

async fn say<S>(mut stream: S, bytes: &[u8]) -> std::io::Result<()>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    stream.write_all(bytes).await?;
    stream.read_to_end(&mut Vec::new()).await.map(drop)
}

/// What the agent answered, by gRPC status.
type Answers = std::collections::BTreeMap<String, u64>;

/// Some cases, one after the other, on a connection of their own.
async fn worker(
    host: &Host,
    cases: &tokio::sync::Mutex<Cases>,
    last: u64,
    answers: &tokio::sync::Mutex<Answers>,
) {
    let mut channel = connect(&host.socket).await;
    loop {
        let number = {
            let mut cases = cases.lock().await;
            if cases.count >= last {
                return;
            }
            let Some(number) = cases.next() else { return };
            number
        };
        let mut dice = Dice::new(number);
        if dice.one_in(50) {
            talk_nonsense(&mut dice, host).await;
            continue;
        }
        let path = dice.pick(rights::RIGHTS).0;
        let body = body(&mut dice, path, &host.messages);
        let answer = tokio::time::timeout(HANG, call(&mut channel, path, body)).await;
        let answer = answer.unwrap_or_else(|_| panic!("VOLFERRY_FUZZ_CASE={number} hangs: {path}"));
        let told = answer.unwrap_or_else(|| "no answer".to_owned());
        *answers.lock().await.entry(told).or_default() += 1;
        if PANICS.load(Ordering::Relaxed) > 0 {
            panic!("the agent panicked at VOLFERRY_FUZZ_CASE={number} ({path}) or one beside it");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_panics_hangs_or_takes_all_memory() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        usual(panic);
    }));
    let before = memory("VmRSS");
    let cases = tokio::sync::Mutex::new(Cases::new());
    let answers = tokio::sync::Mutex::new(Answers::new());
    let (mut rounds, mut after_first) = (0_u64, 0);
    loop {
        let host = Host::start().await;
        let (began, last) = (cases.lock().await.count, (rounds + 1) * ROUND);
        let workers = (0..SIDE_BY_SIDE).map(|_| worker(&host, &cases, last, &answers));
        futures::future::join_all(workers).await;
        host.is_alive().await;
        host.stop().await;
        rounds += 1;
        if rounds == 1 {
            after_first = memory("VmRSS");
        }
        if cases.lock().await.count < last || cases.lock().await.count == began {
            break;
        }
    }
    let (peak, end) = (memory("VmHWM"), memory("VmRSS"));
    let count = cases.lock().await.count;
    println!(
        "{count} cases in {rounds} worlds; KiB resident: {before} before, {after_first} after the first world, \
         {end} at the end, {peak} at most; answers by gRPC status: {:?}",
        answers.lock().await
    );
    assert_eq!(PANICS.load(Ordering::Relaxed), 0, "the agent panicked");
    assert!(peak < before + MOST, "{peak} KiB");
    // What one world leaves behind, no other adds to.
    assert!(end < after_first + MOST / 4, "{end} KiB at the end, {after_first} after the first");
}
