//! `volferryd` as it is started: its configuration, its one instance, its socket.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Output};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use volferry_agent::daemon::StateLock;

fn volferryd(config: &Path, more: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_volferryd"))
        .arg("--config")
        .arg(config)
        .args(more)
        .env_remove("NOTIFY_SOCKET")
        .env("VOLFERRY_LOG", "warn")
        .output()
        .expect("it runs")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_configuration_is_checked_without_starting() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/volferry.toml");
    let output = volferryd(&example, &["--check-config"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(String::from_utf8_lossy(&output.stdout).ends_with("valid, 5 pools\n"));
    let folder = tempfile::tempdir().expect("a folder");
    let wrong = folder.path().join("wrong.toml");
    std::fs::write(&wrong, "host_name = \"a\"\nlisten = \"0.0.0.0:50051\"\n").expect("written");
    let output = volferryd(&wrong, &["--check-config"]);
    assert_eq!(output.status.code(), Some(1));
    let message = stderr(&output);
    assert!(message.starts_with("volferryd: configuration /"), "{message}");
    assert!(message.contains("wrong.toml: listen: "), "{message}");
    assert!(message.contains("needs mutual TLS, which is not configured"), "{message}");
}

#[test]
fn a_second_daemon_on_one_state_folder_does_not_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let state = folder.path().join("state");
    let config = folder.path().join("volferry.toml");
    let socket = folder.path().join("s");
    let text = format!(
        "host_name = \"a\"\nstate_dir = {state:?}\nlisten = \"unix:{}\"\nlibvirt_uri = \"test:///default\"\n",
        socket.display()
    );
    std::fs::write(&config, text).expect("written");
    let _first = StateLock::acquire(&state).expect("the first");
    let output = volferryd(&config, &[]);
    assert_eq!(output.status.code(), Some(1));
    let message = stderr(&output);
    assert_eq!(
        message,
        format!("volferryd: another volferryd uses the state folder {}\n", state.display())
    );
    assert!(!socket.exists());
}

/// A daemon that tells a socket of the test what it would tell systemd.
struct Told {
    daemon: Child,
    socket: UnixDatagram,
    _folder: tempfile::TempDir,
}

impl Told {
    fn start(libvirt_uri: &str, watchdog: Duration) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let text = format!(
            "host_name = \"a\"\nstate_dir = {:?}\nlisten = \"unix:{}\"\nlibvirt_uri = \"{libvirt_uri}\"\n",
            at("state"),
            at("s").display()
        );
        std::fs::write(at("volferry.toml"), text).expect("written");
        let socket = UnixDatagram::bind(at("notify")).expect("a socket");
        socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a bound");
        let daemon = Command::new(env!("CARGO_BIN_EXE_volferryd"))
            .arg("--config")
            .arg(at("volferry.toml"))
            .env("NOTIFY_SOCKET", at("notify"))
            .env("WATCHDOG_USEC", watchdog.as_micros().to_string())
            .env_remove("WATCHDOG_PID")
            .env("VOLFERRY_LOG", "error")
            .spawn()
            .expect("it starts");
        Self { daemon, socket, _folder: folder }
    }

    /// The next message; none when none comes in time.
    fn message(&self) -> Option<String> {
        let mut room = [0; 4096];
        let length = self.socket.recv(&mut room).ok()?;
        Some(String::from_utf8_lossy(&room[..length]).into_owned())
    }

    /// Messages up to the first that has the line.
    fn until(&self, line: &str) -> String {
        loop {
            let message = self.message().unwrap_or_else(|| panic!("{line} was not told"));
            if message.lines().any(|told| told == line) {
                return message;
            }
        }
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.daemon.id()).expect("a pid");
        kill(Pid::from_raw(pid), signal).expect("signalled");
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        // Also one that was stopped.
        self.daemon.kill().ok();
        self.daemon.wait().ok();
    }
}

#[test]
fn systemd_is_told_ready_and_pinged_while_the_daemon_gets_on_and_no_longer() {
    let watchdog = Duration::from_millis(600);
    let told = Told::start("test:///default", watchdog);
    told.until("READY=1");
    told.until("STATUS=0 operations; libvirt up");
    for _ in 0..3 {
        let ping = told.until("WATCHDOG=1");
        assert!(ping.contains("STATUS=0 operations"), "{ping}");
    }
    told.signal(Signal::SIGSTOP);
    // What was sent before the daemon stopped.
    told.socket.set_read_timeout(Some(watchdog)).expect("a bound");
    let mut late = 0;
    while told.message().is_some() {
        late += 1;
        assert!(late < 5, "a stopped daemon goes on pinging");
    }
    told.signal(Signal::SIGCONT);
    told.socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a bound");
    told.until("WATCHDOG=1");
    told.signal(Signal::SIGTERM);
    told.until("STOPPING=1");
}

#[test]
fn a_libvirt_that_is_away_keeps_nobody_from_telling_systemd() {
    let told = Told::start("qemu+unix:///system?socket=/nonexistent", Duration::from_millis(600));
    told.until("READY=1");
    for _ in 0..3 {
        told.until("WATCHDOG=1");
    }
    told.until("STATUS=0 operations; libvirt away");
}
