//! `volferryd` as it is started: its configuration, its one instance, its socket.

use std::path::Path;
use std::process::{Command, Output};

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
