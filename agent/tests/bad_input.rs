//! What clients send that is wrong, over a real socket to the whole engine: each is answered with an error that names
//! the thing and the rule, nothing is left behind, and the daemon goes on.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use volferry_agent::api::socket::Socket;
use volferry_agent::api::{pb, server, status};
use volferry_agent::fake::Stage;
use volferry_agent::fake::domain::Domain;
use volferry_agent::fake::scene::Home;
use volferry_agent::operation::State;
use volferry_agent::ports::DomainState;

type Client = pb::volferry_client::VolferryClient<Channel>;

/// A daemon without its process: the engine in the programmable world, served on a socket.
struct Host {
    stage: Stage,
    client: Client,
    channel: Channel,
    socket: PathBuf,
    _serving: AbortOnDropHandle<()>,
}

impl Host {
    async fn new(home: Home) -> Self {
        let stage = Stage::new(home, true).await;
        let socket = stage.folder().join("volferry.sock");
        let Socket { listener, file } = Socket::bind(&socket).await.expect("a socket");
        let agent = Arc::new(stage.agent.engine.clone());
        let serving = tokio::spawn(async move {
            let _file = file;
            server::serve(agent, listener, Arc::default(), CancellationToken::new())
                .await
                .expect("it serves");
        });
        let channel = connect(&socket).await;
        let client = Client::new(channel.clone());
        let host =
            Self { stage, client, channel, socket, _serving: AbortOnDropHandle::new(serving) };
        // Time is real here, and copying is not what is tested.
        host.change(|domain| domain.disk_mut("vda").expect("the disk").pace.copy = 1 << 40);
        host
    }

    fn request(&self) -> pb::MigrateRequest {
        pb::MigrateRequest {
            domain: self.stage.guest.name.clone(),
            disk: "vda".into(),
            to_pool: "nfs-1".into(),
            ..Default::default()
        }
    }

    fn change(&self, change: impl FnOnce(&mut Domain)) {
        let uuid = &self.stage.guest.uuid;
        self.stage.world.with(|state| change(state.domains.get_mut(uuid).expect("the guest")));
    }

    /// Migrate and Plan answer alike, and nothing is there afterwards.
    async fn refused(&mut self, request: pb::MigrateRequest) -> Status {
        let plan = pb::PlanRequest { request: Some(request.clone()) };
        let planned = self.client.plan(plan).await.expect_err("refused");
        let refused = self.client.migrate(request).await.expect_err("refused");
        let tell = |status: &Status| (status.code(), status.message().to_owned());
        assert_eq!(tell(&planned), tell(&refused));
        self.nothing_happened();
        refused
    }

    fn nothing_happened(&self) {
        assert_eq!(self.stage.world.volumes(), self.stage.before);
        assert!(self.stage.agent.engine.operations().is_empty());
        let effects = self.stage.world.calls().into_iter().find(|call| call.is_effect());
        assert_eq!(effects, None);
    }

    /// Refused with a code of the closed list, in words that name the thing and the rule.
    async fn refused_with(&mut self, request: pb::MigrateRequest, code: &str, parts: &[&str]) {
        let refused = self.refused(request).await;
        let refusal = status::refusal_of(&refused).unwrap_or_else(|| panic!("{refused}"));
        assert_eq!(refusal.code, code, "{refused}");
        for part in parts {
            assert!(refusal.message.contains(part), "{:?} lacks {part:?}", refusal.message);
        }
    }

    /// The daemon goes on: a right request is carried out.
    async fn goes_on(&mut self) {
        let accepted = self.client.migrate(self.request()).await.expect("accepted").into_inner();
        let id = accepted.id.parse().expect("an id");
        let view = self.stage.agent.end(&id).await;
        assert_eq!(view.state, State::Succeeded);
    }
}

async fn connect(socket: &Path) -> Channel {
    let socket = socket.to_owned();
    Endpoint::from_static("http://volferryd")
        .connect_with_connector(tower::service_fn(move |_| {
            let socket = socket.clone();
            async move { UnixStream::connect(socket).await.map(TokioIo::new) }
        }))
        .await
        .expect("a served agent")
}

#[tokio::test]
async fn names_that_break_a_rule_are_refused_with_the_rule() {
    let mut host = Host::new(Home::Rbd).await;
    let plain = host.request();
    type Set = fn(&mut pb::MigrateRequest, String);
    let fields: [(&str, Set, &[&str]); 6] = [
        ("domain", |r, name| r.domain = name, &["", "a/b", "..\n", "a\0b", "long"]),
        ("disk", |r, name| r.disk = name, &["", "a\nb", "\0", "long"]),
        ("pool", |r, name| r.to_pool = name, &["", "a/b", "a\tb", "a\0", "long"]),
        (
            "volume name",
            |r, name| r.destination_volume = name,
            &[".", "..", "../x", "a/b", "a@b", "a\0b", "a\nb", ".volferry-x", "long"],
        ),
        (
            "operation id",
            |r, name| r.operation_id = name,
            &["../x", "-x", "a b", "ä", "a\0", "long"],
        ),
        (
            "checkpoint",
            |r, name| r.allow_checkpoint_loss = vec![name],
            &["", "a/b", "a\nb", "long"],
        ),
    ];
    for (kind, set, names) in fields {
        for name in names {
            let name = if *name == "long" { "x".repeat(5000) } else { (*name).to_owned() };
            let mut request = plain.clone();
            set(&mut request, name);
            host.refused_with(request, "invalid-name", &["invalid", kind]).await;
        }
    }
    let contradicting = pb::MigrateRequest { destination_volume: "x.raw".into(), ..plain };
    host.refused_with(contradicting, "invalid-name", &["x.raw", "contradicts the format"]).await;
    host.goes_on().await;
}

#[tokio::test]
async fn numbers_that_are_none_are_refused_with_the_rule() {
    let mut host = Host::new(Home::Rbd).await;
    let duration = |seconds, nanos| Some(prost_types::Duration { seconds, nanos });
    for (request, part) in [
        (
            pb::MigrateRequest { bandwidth_bytes_per_second: u64::MAX, ..host.request() },
            "bandwidth",
        ),
        (pb::MigrateRequest { deadline: duration(0, 0), ..host.request() }, "deadline"),
        (pb::MigrateRequest { deadline: duration(-5, 0), ..host.request() }, "deadline"),
        (
            pb::MigrateRequest { deadline: duration(i64::MIN, i32::MIN), ..host.request() },
            "deadline",
        ),
        (pb::MigrateRequest { deadline: duration(1, -1), ..host.request() }, "deadline"),
    ] {
        let refused = host.refused(request).await;
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
        assert!(refused.message().starts_with(&format!("invalid {part}: ")), "{refused}");
    }
    let empty = host.client.plan(pb::PlanRequest { request: None }).await.expect_err("empty");
    assert_eq!(
        (empty.code(), empty.message()),
        (Code::InvalidArgument, "the request has no request")
    );
    host.goes_on().await;
}

#[tokio::test]
async fn disks_of_impossible_sizes_are_refused() {
    let mut host = Host::new(Home::Rbd).await;
    let size = |host: &Host, bytes| {
        host.change(|domain| domain.disk_mut("vda").expect("the disk").capacity = bytes);
    };
    for bytes in [0, 1, 511, 513, (1 << 30) + 1, u64::MAX, u64::MAX - 511] {
        size(&host, bytes);
        let parts = ["vda", &bytes.to_string(), "512"];
        let request = host.request();
        host.refused_with(request, "size-mismatch", &parts).await;
    }
    size(&host, 1 << 30);
    host.goes_on().await;
}

#[tokio::test]
async fn domains_and_disks_that_are_not_there_are_named() {
    let mut host = Host::new(Home::Rbd).await;
    let plain = host.request();
    for domain in ["nobody", "WEB", "70000000-0000-4000-8000-00000000ffff", "web ", "wéb"] {
        let request = pb::MigrateRequest { domain: domain.into(), ..plain.clone() };
        host.refused_with(request, "domain-not-found", &[domain]).await;
    }
    for disk in ["vdb", "hdd/other", "/mnt/nfs-1/web-root", "../vda", "vda@x"] {
        let request = pb::MigrateRequest { disk: disk.into(), ..plain.clone() };
        host.refused_with(request, "disk-not-found", &[disk]).await;
    }
    let request = pb::MigrateRequest { to_pool: "..".into(), ..plain };
    host.refused_with(request, "pool-unknown", &["..", "ceph-hdd"]).await;
    host.goes_on().await;
}

#[tokio::test]
async fn a_name_that_is_another_domains_uuid_is_ambiguous() {
    let mut host = Host::new(Home::Rbd).await;
    let uuid = host.stage.guest.uuid.to_string();
    let other = host.stage.scene.guest("db", Home::File, true);
    host.stage.before = host.stage.world.volumes();
    host.stage.world.with(|state| {
        state.domains.get_mut(&other.uuid).expect("the other guest").name = uuid.clone();
    });
    let request = pb::MigrateRequest { domain: uuid.clone(), ..host.request() };
    host.refused_with(request, "domain-not-found", &["ambiguous", other.uuid.as_str()]).await;
    let disks = host.client.list_disks(pb::ListDisksRequest { domain: uuid }).await;
    assert!(disks.expect_err("ambiguous").message().contains("ambiguous"));
    host.goes_on().await;
}

#[tokio::test]
async fn a_domain_that_does_not_run_is_refused_with_its_state() {
    let mut host = Host::new(Home::Rbd).await;
    for (state, word) in [
        (DomainState::Paused, "paused"),
        (DomainState::PausedOnIoError, "paused on an I/O error"),
        (DomainState::Starting, "starting"),
        (DomainState::ShuttingDown, "shutting down"),
        (DomainState::ShutOff, "shut off"),
        (DomainState::Crashed, "crashed"),
        (DomainState::Other, "does not name"),
    ] {
        host.change(|domain| domain.state = state);
        // One that is shut off would be copied offline.
        let request = pb::MigrateRequest { live: true, ..host.request() };
        host.refused_with(request, "not-running", &["web", word]).await;
    }
    host.change(|domain| domain.state = DomainState::Running);
    host.goes_on().await;
}

#[tokio::test]
async fn xml_that_is_malformed_is_refused_with_the_place() {
    let mut host = Host::new(Home::Rbd).await;
    let mut whole = String::new();
    host.change(|domain| whole.clone_from(&domain.live_xml));
    let half = whole.len() / 2;
    for broken in [
        String::new(),
        whole[..half].to_owned(),
        whole.replace("</devices>", "</device>"),
        whole.replace("<memory", "\u{1}<memory"),
        whole.replace("hvm", "&bomb;"),
        format!("<!DOCTYPE a [<!ENTITY b 'c'>]>{whole}"),
        format!("{whole}{whole}"),
        "<d>".repeat(100_000),
    ] {
        host.change(|domain| domain.live_xml = broken);
        let request = host.request();
        host.refused_with(request, "malformed-xml", &["malformed xml at byte"]).await;
    }
    host.change(|domain| domain.live_xml = whole);
    host.goes_on().await;
}

/// Messages of the wrong shape: a number where text belongs, text that is no text.
#[derive(Clone, PartialEq, prost::Message)]
struct NoText {
    #[prost(bytes = "vec", tag = "2")]
    domain: Vec<u8>,
    #[prost(uint64, tag = "3")]
    disk: u64,
}

#[tokio::test]
async fn messages_that_are_malformed_or_too_large_are_refused() {
    let mut host = Host::new(Home::Rbd).await;
    for message in [
        NoText { domain: b"we\xff".to_vec(), disk: 0 },
        NoText { domain: b"web".to_vec(), disk: 7 },
    ] {
        let mut grpc = tonic::client::Grpc::new(host.channel.clone());
        grpc.ready().await.expect("a ready channel");
        let codec = tonic_prost::ProstCodec::<NoText, pb::Operation>::default();
        let path = "/volferry.v1.Volferry/Migrate".parse().expect("a path");
        let refused = grpc.unary(Request::new(message), path, codec).await.expect_err("malformed");
        assert_eq!(refused.code(), Code::Internal, "{refused}");
        assert!(refused.message().contains("decode"), "{refused}");
        host.nothing_happened();
    }
    let many = vec!["x".repeat(200); 6000];
    for large in [
        pb::MigrateRequest { disk: "x".repeat(2 << 20), ..host.request() },
        pb::MigrateRequest { allow_checkpoint_loss: many, ..host.request() },
    ] {
        let refused = host.client.migrate(large).await.expect_err("too large");
        assert_eq!(refused.code(), Code::OutOfRange);
        assert!(refused.message().contains("too large"), "{refused}");
        host.nothing_happened();
    }
    host.goes_on().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn arguments_that_are_not_utf_8_are_mistakes_of_usage() {
    let mut host = Host::new(Home::Rbd).await;
    let bad = OsStr::from_bytes(b"we\xffb");
    let words = |words: &[&'static str]| -> Vec<&OsStr> {
        words.iter().map(|word| if *word == "BAD" { bad } else { OsStr::new(*word) }).collect()
    };
    for line in [
        words(&["migrate", "BAD", "vda", "--to", "nfs-1"]),
        words(&["migrate", "web", "BAD", "--to", "nfs-1"]),
        words(&["migrate", "web", "vda", "--to", "BAD"]),
        words(&["plan", "web", "vda", "--to", "nfs-1", "--destination-volume", "BAD"]),
        words(&["migrate", "web", "vda", "--to", "nfs-1", "--allow-checkpoint-loss", "BAD"]),
        words(&["ops", "cancel", "BAD"]),
        words(&["disks", "BAD"]),
        words(&["rbd", "monitors", "BAD", "--port", "6789", "--as", "list"]),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_volferry"));
        command.env("VOLFERRY_SOCKET", &host.socket).args(&line);
        let ended = command.output().expect("it runs");
        let told = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(2), "{line:?}: {told}");
        assert!(told.contains("invalid UTF-8"), "{told}");
        assert!(ended.stdout.is_empty());
        host.nothing_happened();
    }
    host.goes_on().await;
}
