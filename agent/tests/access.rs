//! Who may call what: mutual TLS and nothing else on the network, a role for each client, a line for each command.

#[path = "support/certificates.rs"]
mod certificates;
#[path = "support/fake_agent.rs"]
mod fake_agent;

use std::io::Write;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use certificates::{Ca, Pair};
use fake_agent::FakeAgent;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Status};
use volferry_agent::api::access::{Access, Rules, rights};
use volferry_agent::api::server::{self, Doors};
use volferry_agent::api::socket::Socket;
use volferry_agent::api::tls::TlsListener;
use volferry_agent::api::{pb, status};
use volferry_agent::config::Config;
use volferry_agent::config::access::Role;

type Client = pb::volferry_client::VolferryClient<Channel>;

const CLIENTS: [(&str, Role); 3] = [
    ("watcher.example.org", Role::Observe),
    ("mgmt.example.org", Role::Operate),
    ("spiffe://site/admin", Role::Admin),
];

/// What a client of a CA's agents trusts and shows.
fn trusted(ca: &Ca, shows: Option<&Pair>) -> ClientTlsConfig {
    let config = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(ca.pem()))
        .domain_name("localhost");
    match shows {
        Some(pair) => config.identity(Identity::from_pem(&pair.certificate, &pair.key)),
        None => config,
    }
}

/// A served agent with both doors.
struct Site {
    ca: Ca,
    agent: Arc<FakeAgent>,
    access: Arc<Access>,
    address: SocketAddr,
    folder: tempfile::TempDir,
    _serving: AbortOnDropHandle<()>,
}

fn clients() -> String {
    let client =
        |(name, role): &(&str, Role)| format!("[[client]]\nname = {name:?}\nrole = \"{role}\"\n");
    CLIENTS.iter().map(client).collect()
}

impl Site {
    async fn start() -> Self {
        let (ca, folder) = (Ca::new("ours"), tempfile::tempdir().expect("a folder"));
        let tls = certificates::write_site(folder.path(), "127.0.0.1:0", &ca);
        let access = Arc::new(Access::new(rules(&format!("{tls}{}", clients()))));
        let listener = TlsListener::bind(([127, 0, 0, 1], 0).into()).await.expect("a port");
        let address = listener.address();
        let socket = Socket::bind(&folder.path().join("s")).await.expect("a socket");
        let agent = Arc::new(FakeAgent::default());
        let doors = Doors { socket: socket.listener, tls: Some(listener) };
        let serving =
            server::serve(Arc::clone(&agent), doors, Arc::clone(&access), CancellationToken::new());
        let serving = tokio::spawn(async move {
            let _file = socket.file;
            serving.await.expect("it serves");
        });
        Self { ca, agent, access, address, folder, _serving: AbortOnDropHandle::new(serving) }
    }

    async fn channel(&self, shows: Option<&Pair>) -> Result<Channel, tonic::transport::Error> {
        Endpoint::from_shared(format!("https://{}", self.address))
            .expect("an address")
            .tls_config(trusted(&self.ca, shows))?
            .connect()
            .await
    }

    async fn client(&self, name: &str) -> Client {
        let shows = self.ca.client(&[name]);
        Client::new(self.channel(Some(&shows)).await.expect("a connection"))
    }

    /// How a connection that shows this ends, at the latest at its first call.
    async fn refused(&self, shows: Option<&Pair>) -> String {
        let channel = match self.channel(shows).await {
            Ok(channel) => channel,
            Err(error) => return chain(&error),
        };
        let answer = Client::new(channel).list_pools(pb::ListPoolsRequest {}).await;
        chain(&answer.expect_err("it is refused"))
    }
}

fn rules(text: &str) -> Rules {
    let config = Config::parse(&format!("host_name = \"a\"\n{text}")).expect("a configuration");
    Rules::read(&config).expect("good files")
}

fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut below = error.source();
    while let Some(error) = below {
        text += &format!(": {error}");
        below = error.source();
    }
    text
}

/// Everything the audit says in this process.
fn audit() -> Arc<Mutex<Vec<u8>>> {
    static LINES: OnceLock<Arc<Mutex<Vec<u8>>>> = OnceLock::new();
    struct Into(Arc<Mutex<Vec<u8>>>);
    impl Write for Into {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("no panic").extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let lines = LINES.get_or_init(|| {
        let lines = Arc::<Mutex<Vec<u8>>>::default();
        let writer = Arc::clone(&lines);
        tracing_subscriber::fmt()
            .with_ansi(false)
            .with_env_filter("volferry::audit=info")
            .with_writer(move || Into(Arc::clone(&writer)))
            .init();
        lines
    });
    Arc::clone(lines)
}

/// The lines about something, once there are as many; whoever waits sees the whole log if they do not come.
async fn lines_about(what: &str, count: usize) -> Vec<String> {
    let log = audit();
    for _ in 0..200 {
        let text = String::from_utf8_lossy(&log.lock().expect("no panic")).into_owned();
        let found: Vec<_> =
            text.lines().filter(|line| line.contains(what)).map(str::to_owned).collect();
        if found.len() >= count {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let text = String::from_utf8_lossy(&log.lock().expect("no panic")).into_owned();
    panic!("fewer than {count} lines about {what}:\n{text}");
}

fn request(id: &str, disk: &str) -> pb::MigrateRequest {
    pb::MigrateRequest {
        operation_id: id.into(),
        domain: "web".into(),
        disk: disk.into(),
        to_pool: "ceph".into(),
        ..Default::default()
    }
}

/// The code a call is answered with, whatever it is, given an empty message.
async fn code_of(channel: &Channel, path: &str) -> String {
    let mut grpc = tonic::client::Grpc::new(channel.clone());
    grpc.ready().await.expect("a ready channel");
    let codec = tonic_prost::ProstCodec::<(), ()>::default();
    let message = tokio_stream::once(());
    let answer = grpc.streaming(Request::new(message), path.parse().expect("a path"), codec).await;
    let ended = match answer {
        Ok(stream) => stream.into_inner().message().await.map(drop),
        Err(status) => Err(status),
    };
    ended.map_or_else(|status| status::code_of(&status), |()| "ok".to_owned())
}

#[tokio::test]
async fn each_role_may_call_what_the_table_says_and_nothing_else() {
    let site = Site::start().await;
    for (name, role) in CLIENTS {
        let shows = site.ca.client(&[name]);
        let channel = site.channel(Some(&shows)).await.expect("a connection");
        for (path, needed) in rights::RIGHTS {
            let refused = code_of(&channel, path).await == "not-allowed";
            assert_eq!(refused, role < *needed, "{name} ({role}) calls {path} ({needed})");
        }
    }
}

#[tokio::test]
async fn who_shows_no_good_certificate_gets_no_connection() {
    let site = Site::start().await;
    let strangers = Ca::new("theirs");
    let missing = site.refused(None).await;
    assert!(missing.contains("CertificateRequired"), "{missing}");
    let expired = site.refused(Some(&site.ca.expired("mgmt.example.org"))).await;
    assert!(expired.contains("CertificateExpired"), "{expired}");
    let foreign = site.refused(Some(&strangers.client(&["mgmt.example.org"]))).await;
    assert!(foreign.contains("UnknownCA") || foreign.contains("UnknownCa"), "{foreign}");
    let servers = site.refused(Some(&site.ca.server())).await;
    assert!(servers.contains("alert"), "a server's certificate is no client's: {servers}");
    // Without TLS there is nothing to talk to.
    let mut plain = TcpStream::connect(site.address).await.expect("a connection");
    plain
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
        .await
        .expect("written");
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer).await;
    assert!(!answer.starts_with(b"\0\0"), "no HTTP/2 frame: {answer:?}");
    let mut good = site.client("mgmt.example.org").await;
    good.list_pools(pb::ListPoolsRequest {}).await.expect("others are served on");
    assert!(site.agent.operations_are_none());
}

#[tokio::test]
async fn a_name_nobody_configured_may_do_nothing_and_a_common_name_counts_for_nothing() {
    let site = Site::start().await;
    // Its common name would be an admin's.
    let mut stranger = site.client("admin.example.com").await;
    let refused = stranger.list_pools(pb::ListPoolsRequest {}).await.expect_err("no client");
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert_eq!(status::code_of(&refused), "not-allowed");
    let expected = "client admin.example.com may do nothing here: no [[client]] of the \
                    configuration has a name of its certificate";
    assert_eq!(refused.message(), expected);
    let both = site.ca.client(&[CLIENTS[0].0, CLIENTS[2].0]);
    let mut both = Client::new(site.channel(Some(&both)).await.expect("a connection"));
    let refused = both.list_pools(pb::ListPoolsRequest {}).await.expect_err("two clients in one");
    assert!(refused.message().contains("names of two clients"), "{refused}");
    let mut upper = site.client("MGMT.Example.ORG").await;
    upper.list_pools(pb::ListPoolsRequest {}).await.expect("DNS names have no case");
}

#[tokio::test]
async fn what_a_request_brings_along_takes_more_than_its_call() {
    let site = Site::start().await;
    let mut operator = site.client("mgmt.example.org").await;
    let allowed = operator.migrate(request("plain", "vdb")).await.expect("a plain move");
    assert_eq!(allowed.into_inner().id, "plain");
    let pool =
        pb::RequestPool { r#type: "nfs".into(), path: "/mnt/x".into(), ..Default::default() };
    let with_pool = pb::MigrateRequest { pool: Some(pool), ..request("pool", "vdb") };
    let deletes = pb::MigrateRequest { delete_source_snapshots: true, ..request("snap", "vdb") };
    for (message, what) in
        [(with_pool, "a pool of the request"), (deletes, "the deletion of snapshots")]
    {
        let refused = operator.migrate(message.clone()).await.expect_err(what);
        let text = format!("client mgmt.example.org has the role operate; {what} takes admin");
        assert_eq!(
            (status::code_of(&refused).as_str(), refused.message()),
            ("not-allowed", text.as_str())
        );
        let plan = pb::PlanRequest { request: Some(message.clone()) };
        let refused = operator.plan(plan).await.expect_err(what);
        assert_eq!(status::code_of(&refused), "not-allowed");
        let mut admin = site.client("spiffe://site/admin").await;
        let answer = admin.migrate(message).await;
        assert_ne!(answer.as_ref().map_err(status::code_of).err().as_deref(), Some("not-allowed"));
    }
    let mut watcher = site.client("watcher.example.org").await;
    let plan = |request| pb::PlanRequest { request: Some(request) };
    let answered = watcher.plan(plan(request("a", "vda"))).await.expect_err("no such domain");
    assert_eq!(status::code_of(&answered), "domain-not-found");
    let opens = pb::MigrateRequest { passphrase: b"x".to_vec(), ..request("a", "vda") };
    let refused = watcher.plan(plan(opens)).await.expect_err("it would open a volume");
    assert_eq!(status::code_of(&refused), "not-allowed");
}

#[tokio::test]
async fn the_configuration_of_now_decides_also_on_open_connections() {
    let site = Site::start().await;
    let mut operator = site.client("mgmt.example.org").await;
    operator.migrate(request("before", "vdb")).await.expect("an operator");
    let tls = certificates::write_site(site.folder.path(), "127.0.0.1:0", &site.ca);
    let less = "[[client]]\nname = \"mgmt.example.org\"\nrole = \"observe\"\n";
    site.access.change(rules(&format!("{tls}{less}")));
    let refused = operator.migrate(request("after", "vdb")).await.expect_err("an observer by now");
    assert_eq!(status::code_of(&refused), "not-allowed");
    // Another CA: whom the old one vouched for is nobody any more, and whom the new one does may come.
    let (new, folder) = (Ca::new("new"), tempfile::tempdir().expect("a folder"));
    let tls = certificates::write_site(folder.path(), "127.0.0.1:0", &new);
    site.access.change(rules(&format!("{tls}{}", clients())));
    let refused = operator.list_pools(pb::ListPoolsRequest {}).await.expect_err("of the old CA");
    assert!(refused.message().contains("its certificate is no longer good"), "{refused}");
    let shows = new.client(&["mgmt.example.org"]);
    let endpoint = Endpoint::from_shared(format!("https://{}", site.address)).expect("an address");
    let endpoint = endpoint.tls_config(trusted(&new, Some(&shows))).expect("certificates");
    let channel = endpoint.connect().await.expect("the new certificate is shown");
    Client::new(channel).migrate(request("new", "vdb")).await.expect("an operator");
}

#[tokio::test]
async fn every_command_leaves_one_line_with_who_what_and_how_it_ended() {
    audit();
    let site = Site::start().await;
    let mut operator = site.client("mgmt.example.org").await;
    let secret = b"hunter2-secret".to_vec();
    let message = pb::MigrateRequest { passphrase: secret, ..request("audited-1", "vdb") };
    operator.migrate(message).await.expect("accepted");
    let lines = lines_about("audited-1", 1).await;
    let line = &lines[0];
    for part in [
        "volferry::audit",
        "call=\"Migrate\"",
        "outcome=\"ok\"",
        "client=\"mgmt.example.org\"",
        "address=\"127.0.0.1:",
        "role=\"operate\"",
        "operation=\"audited-1\"",
        "domain=\"web\"",
        "disk=\"vdb\"",
        "to=\"ceph\"",
    ] {
        assert!(line.contains(part), "{line}\nlacks {part}");
    }
    let full = pb::MigrateRequest { to_pool: "full".into(), ..request("audited-2", "vdb") };
    operator.migrate(full).await.expect_err("no room");
    assert!(lines_about("audited-2", 1).await[0].contains("outcome=\"no-space\""));
    let resolve = pb::ResolveOperationRequest {
        operation_id: "audited-1".into(),
        keep: pb::Place::Source.into(),
        ..Default::default()
    };
    let refused: Status = operator.resolve_operation(resolve).await.expect_err("an admin's");
    assert_eq!(status::code_of(&refused), "not-allowed");
    let mut watcher = site.client("watcher.example.org").await;
    watcher.list_operations(pb::ListOperationsRequest::default()).await.expect("a look");
    // A look leaves no line; this one comes after it.
    let cancel = pb::CancelOperationRequest { operation_id: "audited-1".into() };
    watcher.cancel_operation(cancel.clone()).await.expect_err("an operator's");
    operator.cancel_operation(cancel.clone()).await.expect("cancelled");
    operator.cancel_operation(cancel).await.expect_err("it has ended");
    // Other tests write their lines too: these are of this connection.
    let address = line.split("address=").nth(1).and_then(|rest| rest.split(' ').next());
    let lines = lines_about(address.expect("an address"), 5).await;
    for (line, (call, outcome)) in lines.iter().zip([
        ("Migrate", "ok"),
        ("Migrate", "no-space"),
        ("ResolveOperation", "not-allowed"),
        ("CancelOperation", "ok"),
        ("CancelOperation", "not-allowed"),
    ]) {
        let start = format!("call=\"{call}\" outcome=\"{outcome}\" client=\"mgmt.example.org\"");
        assert!(line.contains(&start), "{line}\nlacks {start}");
    }
    assert_eq!(lines.len(), 5, "no line twice");
    site.refused(None).await;
    let line = &lines_about("connection", 1).await[0];
    assert!(
        line.contains("outcome=\"refused\"") && line.contains("why=\"peer sent no cert"),
        "{line}"
    );
    let log = String::from_utf8_lossy(&audit().lock().expect("no panic")).into_owned();
    assert!(!log.contains("hunter2") && !log.contains("ListOperations"), "{log}");
}

#[tokio::test]
async fn on_the_socket_the_kernel_says_who_it_is_and_a_client_that_leaves_leaves_its_line() {
    audit();
    let site = Site::start().await;
    let socket = site.folder.path().join("s");
    let connect = tower::service_fn(move |_| {
        let socket = socket.clone();
        async move { UnixStream::connect(socket).await.map(TokioIo::new) }
    });
    let endpoint = Endpoint::from_static("http://volferryd");
    let channel = endpoint.connect_with_connector(connect).await.expect("a connection");
    let mut client = Client::new(channel);
    let slow = pb::MigrateRequest { to_pool: "slow".into(), ..request("left-alone", "vdz") };
    let mut leaver = client.clone();
    let call = tokio::spawn(async move { leaver.migrate(slow).await });
    site.agent.at_the_gate.notified().await;
    call.abort();
    assert!(call.await.expect_err("the client left").is_cancelled());
    client.list_pools(pb::ListPoolsRequest {}).await.expect("an answer");
    site.agent.gate.notify_one();
    let line = &lines_about("left-alone", 1).await[0];
    let uid = nix::unistd::geteuid();
    assert!(line.contains(&format!("outcome=\"ok\" uid={uid} gid=")), "{line}");
    assert!(line.contains(&format!("pid={}", std::process::id())), "{line}");
    let mut observed = rules("socket_role = \"observe\"\n");
    observed.identity = site.access.identity();
    site.access.change(observed);
    let cancel = pb::CancelOperationRequest { operation_id: "left-alone".into() };
    let refused = client.cancel_operation(cancel).await.expect_err("the socket's role");
    let text = format!("uid {uid} has the role observe; CancelOperation takes operate");
    assert_eq!(refused.message(), text);
}

#[test]
fn files_that_cannot_be_used_are_named_with_what_is_wrong() {
    use std::os::unix::fs::PermissionsExt as _;
    let (ca, folder) = (Ca::new("ours"), tempfile::tempdir().expect("a folder"));
    let tls = certificates::write_site(folder.path(), "127.0.0.1:0", &ca);
    let read = || {
        let text = format!("host_name = \"a\"\n{tls}{}", clients());
        let error = Rules::read(&Config::parse(&text).expect("a configuration"));
        chain(&error.expect_err("it cannot be used"))
    };
    let key = folder.path().join("server.key");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).expect("its mode");
    assert!(read().contains("server.key has mode 0644"), "{}", read());
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o640)).expect("its mode");
    std::fs::write(&key, ca.server().key).expect("another key");
    assert!(read().contains("server.crt cannot be used with the key"), "{}", read());
    std::fs::write(&key, "-----BEGIN PRIVATE KEY-----\n?\n").expect("no key");
    assert!(read().contains("server.key holds no private key in PEM"), "{}", read());
    std::fs::remove_file(&key).expect("removed");
    assert!(read().contains("server.key cannot be read"), "{}", read());
    std::fs::write(folder.path().join("ca.crt"), "").expect("no CA");
    assert!(read().contains("ca.crt holds no certificate in PEM"), "{}", read());
}

/// What the command says: its exit code, standard output and standard error.
async fn volferry(
    arguments: Vec<String>,
    variables: Vec<(&'static str, String)>,
) -> (i32, String, String) {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_volferry"));
    for variable in ["SOCKET", "CONNECT", "CA", "CERT", "KEY"] {
        command.env_remove(format!("VOLFERRY_{variable}"));
    }
    let output = command.args(arguments).envs(variables).output().await.expect("it runs");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (output.status.code().expect("no signal"), text(output.stdout), text(output.stderr))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_goes_over_the_network_too_and_says_why_it_may_not() {
    let site = Site::start().await;
    let folder = site.folder.path().to_owned();
    let ca = folder.join("ca.crt");
    let at = |url: &str, pair: &Pair, what: &[&str]| {
        let (certificate, key) = certificates::write(&folder, "client", pair);
        let files = [("--ca", &ca), ("--cert", &certificate), ("--key", &key)];
        let mut arguments = vec!["--connect".to_owned(), url.to_owned()];
        for (option, file) in files {
            arguments.extend([option.to_owned(), file.display().to_string()]);
        }
        arguments.extend(what.iter().map(|word| (*word).to_owned()));
        arguments
    };
    let url = format!("https://localhost:{}", site.address.port());
    let operator = site.ca.client(&["mgmt.example.org"]);
    let migrate = ["migrate", "web", "vda", "--to", "ceph"];
    let (exit, _, err) = volferry(at(&url, &operator, &migrate), vec![]).await;
    assert_eq!(exit, 0, "{err}");
    let watcher = site.ca.client(&["watcher.example.org"]);
    let (exit, _, err) = volferry(at(&url, &watcher, &migrate), vec![]).await;
    assert_eq!(exit, 3, "{err}");
    assert!(err.contains("refused: not-allowed: client watcher.example.org has the role observe; Migrate takes operate"), "{err}");
    assert!(err.contains("hint: the agent's configuration decides"), "{err}");
    for (pair, why) in [
        (site.ca.expired("mgmt.example.org"), "--cert: CertificateExpired"),
        (Ca::new("theirs").client(&["mgmt.example.org"]), "--cert: UnknownCA"),
    ] {
        let (exit, _, err) = volferry(at(&url, &pair, &["pools"]), vec![]).await;
        assert_eq!(exit, 5, "{err}");
        assert!(err.contains(why) && err.contains("hint: it has to be valid now"), "{err}");
    }
    std::fs::write(&ca, Ca::new("theirs").pem()).expect("written");
    let (exit, _, err) = volferry(at(&url, &operator, &["pools"]), vec![]).await;
    assert_eq!(exit, 5, "{err}");
    assert!(err.contains("the agent's certificate is not accepted: UnknownIssuer"), "{err}");
    std::fs::write(&ca, site.ca.pem()).expect("written");
    let (exit, _, err) = volferry(at("https://localhost:1", &operator, &["pools"]), vec![]).await;
    assert_eq!(exit, 5, "{err}");
    assert!(err.contains("https://localhost:1: nobody answers there"), "{err}");
    // The environment says the same, and what lacks is named.
    let (certificate, key) = certificates::write(&folder, "client", &operator);
    let file = |path: &std::path::Path| path.display().to_string();
    let mut variables = vec![
        ("VOLFERRY_CONNECT", url.clone()),
        ("VOLFERRY_CA", file(&ca)),
        ("VOLFERRY_CERT", file(&certificate)),
        ("VOLFERRY_KEY", file(&key)),
    ];
    let (exit, out, err) = volferry(vec!["pools".to_owned()], variables.clone()).await;
    assert_eq!((exit, out.contains("ceph-hdd")), (0, true), "{out}{err}");
    variables.pop();
    let (exit, _, err) = volferry(vec!["pools".to_owned()], variables).await;
    assert_eq!((exit, err.contains("takes mutual TLS: --key FILE is missing")), (2, true), "{err}");
    let both = vec![("VOLFERRY_CONNECT", url), ("VOLFERRY_SOCKET", "/x".to_owned())];
    let (exit, _, err) = volferry(vec!["pools".to_owned()], both).await;
    assert_eq!(
        (exit, err.contains("both VOLFERRY_CONNECT and VOLFERRY_SOCKET")),
        (2, true),
        "{err}"
    );
    let (exit, _, err) = volferry(at("http://localhost:1", &operator, &["pools"]), vec![]).await;
    assert_eq!((exit, err.contains("is no address such as https://")), (2, true), "{err}");
}
