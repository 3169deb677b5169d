//! What every command says, word for word: each file of fixtures/transcripts is a session with an imaginary host of its
//! own. `UPDATE_GOLDEN=1` writes them anew; the difference is then read like any other change.
//!
//! In a file, `$ ` begins a command, which may read a fixture (`< NAME`), `2> ` a line of standard error; `exit N` tells an
//! exit code other than 0, and `# until ID STATE` waits for an operation. What differs from run to run is replaced: times
//! of day, durations, ids nobody chose. What is told of the progress of operations is left out.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use clap::CommandFactory as _;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/transcripts")
}

/// The daemon of one session.
struct Daemon {
    child: Child,
    socket: PathBuf,
    _folder: tempfile::TempDir,
}

impl Daemon {
    fn start() -> Daemon {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let socket = folder.path().join("agent.sock");
        let config = folder.path().join("volferry.toml");
        let example = fixtures().join("../../packaging/examples/fake.toml");
        let example = fs::read_to_string(example).expect("the example");
        let text = example.replace("/tmp/volferry-fake.sock", &socket.display().to_string());
        assert_ne!(text, example, "the example listens where it is known to");
        fs::write(&config, text).expect("it can be written");
        let mut child = Command::new(env!("CARGO_BIN_EXE_volferryd"))
            .arg("--config")
            .arg(&config)
            .arg("--fake")
            .arg(fixtures().join("world.toml"))
            .env("RUST_LOG", "info")
            .env_remove("NOTIFY_SOCKET")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut log = BufReader::new(child.stderr.take().expect("it is piped"));
        let mut said = String::new();
        while !said.contains("listening") {
            let before = said.len();
            log.read_line(&mut said).expect("it can be read");
            assert_ne!(said.len(), before, "it ended: {said}");
        }
        // Nobody reads what else it says, and it must not wait for that.
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        Daemon { child, socket, _folder: folder }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGTERM);
        let _ = self.child.wait();
    }
}

/// The words of a command line; quotes keep words together.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (quoted, part) in line.split('\'').enumerate().map(|(at, part)| (at % 2 == 1, part)) {
        match quoted {
            true => words.push(part.to_owned()),
            false => words.extend(part.split_whitespace().map(str::to_owned)),
        }
    }
    words
}

/// Runs one command and returns what the file is to say after it.
fn said(daemon: &Daemon, line: &str) -> String {
    let (line, input) = match line.split_once(" < ") {
        Some((line, name)) => {
            let file = fs::File::open(fixtures().join("..").join(name)).expect("the input");
            (line, Stdio::from(file))
        }
        None => (line, Stdio::null()),
    };
    let words = words(line);
    assert_eq!(words.first().map(String::as_str), Some("volferry"), "{line}");
    let output = Command::new(env!("CARGO_BIN_EXE_volferry"))
        .args(&words[1..])
        .env("VOLFERRY_SOCKET", &daemon.socket)
        .env_remove("RUST_BACKTRACE")
        .env_remove("VOLFERRY_CONNECT")
        .stdin(input)
        .output()
        .expect("it runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    let mut said = String::new();
    for line in text(output.stdout).lines().filter(|line| !passes(line)) {
        match serde_json::from_str::<Value>(line) {
            Ok(mut document) if document.is_object() => {
                measured(&mut document);
                said += &format!("{document:#}\n");
            }
            _ => said += &format!("{line}\n"),
        }
    }
    for line in text(output.stderr).lines().filter(|line| !passes(line)) {
        said += &format!("2> {line}\n");
    }
    if output.status.code() != Some(0) {
        said += &format!("exit {}\n", output.status.code().expect("no signal"));
    }
    stable(&said)
}

/// Replaces numbers that are measured.
fn measured(document: &mut Value) {
    match document {
        Value::Object(entries) => {
            for (key, value) in entries {
                match key.as_str() {
                    "seconds" if value.is_number() => *value = "MEASURED".into(),
                    "copied_bytes"
                    | "ready_to_pivot_us"
                    | "dirty_bytes_per_second"
                    | "rate_bytes_per_second"
                    | "remaining_bytes"
                    | "seconds_left"
                        if !value.is_null() =>
                    {
                        *value = "MEASURED".into();
                    }
                    _ => measured(value),
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(measured),
        _ => {}
    }
}

/// A line about progress: which of them are seen depends on how quick everything is.
fn passes(line: &str) -> bool {
    let state = match line.strip_prefix("{\"event\":") {
        Some(rest) => return !rest.starts_with("\"final\"") && !rest.starts_with("\"error\""),
        None => line.split_once(": ").map_or("", |(_, rest)| rest),
    };
    let states = [
        "queued",
        "planned",
        "preparing",
        "copying",
        "ready",
        "pivoting",
        "moved",
        "cleaning",
        "rolling-back",
        "succeeded",
        "failed",
        "cancelled",
        "needs-operator",
    ];
    let state = state.split([' ', '(']).next().unwrap_or_default();
    states.contains(&state)
}

/// Without what differs from run to run.
fn stable(text: &str) -> String {
    let mut stable = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let names = [".volferry-", ".moved-"].iter().any(|before| stable.ends_with(before));
        let inside = |last: char| last.is_ascii_alphanumeric() || "-.".contains(last);
        let is_start = names || !stable.ends_with(inside);
        let replaced = if is_start { volatile(rest) } else { None };
        match replaced {
            Some((name, length)) => {
                stable += name;
                rest = &rest[length..];
            }
            None => {
                stable.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
    }
    stable
}

/// A text at the beginning that differs from run to run: what to write instead, and its length.
fn volatile(text: &str) -> Option<(&'static str, usize)> {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    for (before, instead) in [("image id ", "image id IMAGE-ID"), ("inode ", "inode INODE")] {
        if let Some(id) = text.strip_prefix(before) {
            let length = id.bytes().take_while(u8::is_ascii_hexdigit).count();
            return Some((instead, before.len() + length));
        }
    }
    let end =
        text.find(|next: char| !(next.is_ascii_hexdigit() || next == '-')).unwrap_or(text.len());
    // A uuid nobody chose: those of the fixtures begin with a digit and seven zeros.
    if end == 36 && uuid::Uuid::try_parse(&text[..end]).is_ok() && &text[1..8] != "0000000" {
        return Some(("RANDOM-ID", end));
    }
    let stamp = text.find(|next: char| !(next.is_ascii_digit() || "-:.TZ".contains(next)));
    let stamp = &text[..stamp.unwrap_or(text.len())];
    if stamp.len() >= 20 && stamp.contains('T') && stamp.ends_with('Z') {
        return Some(("TIME", stamp.len()));
    }
    let number = digits(text);
    if number == 0 {
        return None;
    }
    let fraction = match text[number..].strip_prefix('.') {
        Some(rest) if digits(rest) > 0 => 1 + digits(rest),
        _ => 0,
    };
    let rest = &text[number + fraction..];
    for unit in [" ms", " s", " min", "s", "ms"] {
        let follows = rest.strip_prefix(unit);
        if follows.is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_alphanumeric()))
        {
            return Some(("DURATION", number + fraction + unit.len()));
        }
    }
    None
}

/// Waits until an operation is in a state.
fn until(daemon: &Daemon, id: &str, state: &str) {
    let mut watch = Command::new(env!("CARGO_BIN_EXE_volferry"))
        .args(["ops", "watch", id, "--output", "json"])
        .env("VOLFERRY_SOCKET", &daemon.socket)
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let told = BufReader::new(watch.stdout.take().expect("it is piped")).lines().any(|line| {
        let line: Value = serde_json::from_str(&line.expect("UTF-8")).expect("JSON");
        line["operation"]["state"] == state
    });
    watch.kill().expect("it is ours");
    watch.wait().expect("it ends");
    assert!(told, "{id} was never {state}");
}

/// Plays a file and returns it as it should be.
fn played(path: &Path) -> String {
    let daemon = Daemon::start();
    let text = fs::read_to_string(path).expect("a transcript");
    let mut played = String::new();
    for line in text.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            played += &format!("{line}\n{}", said(&daemon, command));
        } else if let Some(wanted) = line.strip_prefix("# until ") {
            let (id, state) = wanted.split_once(' ').expect("an operation and a state");
            until(&daemon, id, state);
            played += &format!("{line}\n");
        }
    }
    played
}

fn transcripts() -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(fixtures())
        .expect("the transcripts")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|suffix| suffix == "txt"))
        .collect();
    files.sort();
    files
}

#[test]
fn every_command_says_what_it_is_known_to_say() {
    let mut played_all = 0;
    let sessions: Vec<_> = transcripts()
        .into_iter()
        .map(|path| std::thread::spawn(move || (played(&path), path)))
        .collect();
    for session in sessions {
        let (now, path) = session.join().expect("every command runs");
        let known = fs::read_to_string(&path).expect("a transcript");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&path, &now).expect("it can be written");
        } else if known != now {
            let differs = known.lines().zip(now.lines()).position(|(known, now)| known != now);
            let from = differs.unwrap_or(0).saturating_sub(3);
            let part = |text: &str| text.lines().skip(from).take(12).collect::<Vec<_>>().join("\n");
            panic!("{}:\n--- known\n{}\n--- now\n{}", path.display(), part(&known), part(&now));
        }
        played_all += 1;
    }
    assert!(played_all >= 6, "{played_all}");
}

/// The last subcommands of a command, each with what leads to it.
fn leaves(command: &clap::Command, before: &str, found: &mut BTreeSet<String>) {
    let name = format!("{before} {}", command.get_name()).trim().to_owned();
    let mut is_leaf = true;
    for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
        leaves(below, &name, found);
        is_leaf = false;
    }
    if is_leaf {
        found.insert(name);
    }
}

#[test]
fn no_command_is_without_a_transcript() {
    let mut all = BTreeSet::new();
    leaves(&volferry_agent::cli::Arguments::command(), "", &mut all);
    let texts: String =
        transcripts().iter().map(|path| fs::read_to_string(path).expect("a transcript")).collect();
    for command in all {
        // What shells are given is a program of its own, and has its own test.
        if command != "volferry completions" {
            assert!(
                texts.contains(&format!("\n$ {command}"))
                    || texts.starts_with(&format!("$ {command}")),
                "{command}"
            );
        }
    }
}
