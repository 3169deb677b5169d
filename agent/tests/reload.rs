//! SIGHUP: what is read anew, what stays as it was, and what systemd is told.

#[path = "support/certificates.rs"]
mod certificates;
#[path = "support/fake_agent.rs"]
mod fake_agent;

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::Duration;

use certificates::Ca;
use fake_agent::FakeAgent;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use volferry_agent::api::access::{Access, Rules};
use volferry_agent::config::Config;
use volferry_agent::config::access::Role;
use volferry_agent::daemon::reload::Reloader;
use volferry_agent::report;

const POOL: &str = "[[pool]]\nname = \"nfs-1\"\ntype = \"nfs\"\npath = \"/mnt/a\"\n";

fn client(name: &str, role: Role) -> String {
    format!("[[client]]\nname = {name:?}\nrole = \"{role}\"\n")
}

/// A daemon's configuration and what its reload changes.
struct Ground {
    folder: tempfile::TempDir,
    ca: Ca,
    agent: Arc<FakeAgent>,
    access: Arc<Access>,
    reloader: Reloader<FakeAgent>,
}

impl Ground {
    fn new() -> Self {
        let (folder, ca) = (tempfile::tempdir().expect("a folder"), Ca::new("ours"));
        let (agent, file) = (Arc::<FakeAgent>::default(), folder.path().join("volferry.toml"));
        let tls = certificates::write_site(folder.path(), "127.0.0.1:1", &ca);
        let text = format!("host_name = \"host-a\"\n{tls}{}", client("a", Role::Observe));
        fs::write(&file, text).expect("written");
        let config = Config::load(&file).expect("a configuration");
        let access = Arc::new(Access::new(Rules::read(&config).expect("certificates")));
        let reloader = Reloader::new(&config, Arc::clone(&agent), Arc::clone(&access));
        Self { folder, ca, agent, access, reloader: reloader.expect("it has a file") }
    }

    fn write(&self, text: &str) {
        fs::write(self.folder.path().join("volferry.toml"), text).expect("written");
    }

    fn tls(&self) -> String {
        certificates::write_site(self.folder.path(), "127.0.0.1:1", &self.ca)
    }

    fn pools(&self) -> Option<usize> {
        let configured = self.agent.configured.lock().expect("no panic");
        configured.as_ref().map(|host| host.pools.len())
    }

    async fn broken(&self) -> String {
        let before = self.access.rules();
        let error = self.reloader.reload().await.expect_err("it is broken");
        assert!(Arc::ptr_eq(&before, &self.access.rules()), "nothing was changed");
        report::chain(&error)
    }
}

#[tokio::test]
async fn a_reload_changes_everything_or_nothing() {
    let ground = Ground::new();
    let tls = ground.tls();
    ground.write(&format!("host_name = \"host-a\"\n{tls}{}{POOL}", client("b", Role::Admin)));
    ground.reloader.reload().await.expect("a good file");
    assert_eq!(ground.pools(), Some(1));
    let rules = ground.access.rules();
    assert_eq!((rules.clients[0].name.as_str(), rules.clients[0].role), ("b", Role::Admin));
    for (text, message) in [
        (format!("host_name = \"host-a\"\n{tls}{POOL}"), "[tls] needs at least one [[client]]"),
        ("host_name = ".to_owned(), "TOML parse error"),
        (format!("host_name = \"host-a\"\npols = 1\n{tls}"), "unknown field `pols`"),
    ] {
        ground.write(&text);
        let broken = ground.broken().await;
        assert!(broken.contains(message), "{broken}");
        assert_eq!(ground.pools(), Some(1));
    }
    fs::remove_file(ground.folder.path().join("volferry.toml")).expect("removed");
    assert!(ground.broken().await.contains("cannot be read"));
}

#[tokio::test]
async fn a_broken_new_certificate_keeps_the_old_one_and_is_told() {
    let ground = Ground::new();
    let (key, good) = (ground.folder.path().join("server.key"), ground.ca.server());
    fs::write(&key, "no key").expect("written");
    let broken = ground.broken().await;
    assert!(broken.contains("server.key holds no private key"), "{broken}");
    assert_eq!(ground.pools(), None, "pools and certificates go together");
    certificates::write(ground.folder.path(), "server", &good);
    ground.reloader.reload().await.expect("a good pair");
    assert_eq!(ground.pools(), Some(0));
}

#[tokio::test]
async fn what_takes_a_restart_keeps_its_value() {
    let ground = Ground::new();
    let tls = ground.tls().replace("127.0.0.1:1", "127.0.0.1:2");
    let text = format!(
        "host_name = \"host-b\"\nstate_dir = \"/elsewhere\"\n{tls}{}",
        client("a", Role::Observe)
    );
    ground.write(&text);
    ground.reloader.reload().await.expect("a good file");
    let configured = ground.agent.configured.lock().expect("no panic");
    assert_eq!(configured.as_ref().expect("told").host_name, "host-a");
}

/// A daemon over libvirt's test driver, ended with the test.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn told(notify: &UnixDatagram) -> String {
    let mut message = [0; 4096];
    let length = notify.recv(&mut message).expect("systemd is told in time");
    String::from_utf8_lossy(&message[..length]).into_owned()
}

fn told_until(notify: &UnixDatagram, what: &str) -> String {
    loop {
        let message = told(notify);
        if message.contains(what) {
            return message;
        }
    }
}

fn start(folder: &Path, config: &Path) -> (Daemon, UnixDatagram) {
    let notify = folder.join("notify");
    let socket = UnixDatagram::bind(&notify).expect("a socket for systemd");
    socket.set_read_timeout(Some(Duration::from_secs(30))).expect("a bound");
    let log = fs::File::create(folder.join("log")).expect("a log");
    let child = Command::new(env!("CARGO_BIN_EXE_volferryd"))
        .arg("--config")
        .arg(config)
        .env("NOTIFY_SOCKET", &notify)
        .env_remove("VOLFERRY_LOG")
        .stderr(log)
        .spawn()
        .expect("it starts");
    (Daemon(child), socket)
}

#[test]
fn a_daemon_reloads_at_sighup_and_tells_systemd_and_its_log() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    let config = path.join("volferry.toml");
    let (mut ca, client) = (Ca::new("ours"), client("mgmt", Role::Observe));
    let base = |host: &str, ca: &Ca| {
        let (state, socket) = (path.join("state"), path.join("s"));
        let tls = certificates::write_site(path, "127.0.0.1:0", ca);
        format!(
            "host_name = {host:?}\nstate_dir = {state:?}\nlisten = \"unix:{}\"\nlibvirt_uri = \"test:///default\"\n{tls}{client}",
            socket.display()
        )
    };
    fs::write(&config, base("host-a", &ca)).expect("written");
    let (daemon, notify) = start(path, &config);
    told_until(&notify, "READY=1");
    let pid = Pid::from_raw(daemon.0.id().try_into().expect("a pid"));
    let log = || fs::read_to_string(path.join("log")).expect("a log");
    let listening = log();
    let address =
        listening.split("mutual TLS only address=").nth(1).and_then(|rest| rest.split(' ').next());
    let url =
        format!("https://{}", address.expect("the listener").replace("127.0.0.1", "localhost"));
    let pools = |ca: &Ca| {
        let (certificate, key) = certificates::write(path, "client", &ca.client(&["mgmt"]));
        let mut command = Command::new(env!("CARGO_BIN_EXE_volferry"));
        command.args(["pools", "--connect", &url, "--ca"]).arg(path.join("ca.crt"));
        let output = command.arg("--cert").arg(certificate).arg("--key").arg(key).output();
        let output = output.expect("it runs");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert_eq!(pools(&ca).0, Some(0), "{}", pools(&ca).1);
    let old = std::mem::replace(&mut ca, Ca::new("new"));
    fs::write(&config, base("host-b", &ca) + POOL).expect("written");
    kill(pid, Signal::SIGHUP).expect("sent");
    let reloading = told_until(&notify, "RELOADING=1");
    assert!(reloading.contains("MONOTONIC_USEC="), "{reloading}");
    assert!(told_until(&notify, "READY=1").contains("STATUS=serving"));
    assert_eq!(pools(&ca).0, Some(0), "the new certificates: {}", pools(&ca).1);
    let (exit, why) = pools(&old);
    assert!(exit == Some(5) && why.contains("UnknownCA"), "a client of the old CA: {why}");
    fs::write(&config, "host_nam = 1").expect("written");
    kill(pid, Signal::SIGHUP).expect("sent");
    told_until(&notify, "RELOADING=1");
    let ready = told_until(&notify, "READY=1");
    assert!(ready.contains("the last reload changed nothing: "), "{ready}");
    kill(pid, Signal::SIGTERM).expect("sent");
    told_until(&notify, "STOPPING=1");
    let log = log();
    for part in [
        "read anew pools=1",
        "takes a restart of the daemon key=\"host_name\"",
        "unknown field `host_nam`",
    ] {
        assert!(log.contains(part), "{log}\nlacks {part}");
    }
}
