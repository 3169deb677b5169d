//! A test that hangs is told: after its time the state of the laboratory is printed and the test program ended, so that
//! a run says what hung instead of never ending. Holds no rule about volferry itself.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::Lab;

/// How long one lab test may take. The longest takes about a minute; a slow machine several.
const LIMIT: Duration = Duration::from_secs(480);

/// The test that runs now, and since when.
struct Watched {
    test: String,
    since: Instant,
    limit: Duration,
}

struct Watch {
    now: Mutex<Watched>,
    changed: Condvar,
}

static WATCH: OnceLock<Watch> = OnceLock::new();

/// From now on `test` is watched instead of the one before; tests of one program run one after the other.
pub fn begin(lab: &Lab, test: &str) {
    begin_with(lab, test, LIMIT);
}

/// The same with a limit of the caller's: a program of many trials begins anew with each.
pub fn begin_with(lab: &Lab, test: &str, limit: Duration) {
    let watched = || Watched { test: test.to_owned(), since: Instant::now(), limit };
    let mut first = false;
    let watch = WATCH.get_or_init(|| {
        first = true;
        Watch { now: Mutex::new(watched()), changed: Condvar::new() }
    });
    *watch.now.lock().unwrap_or_else(PoisonError::into_inner) = watched();
    watch.changed.notify_all();
    if first {
        let lab = lab.clone();
        std::thread::spawn(move || guard(watch, &lab));
    }
}

/// Ends the program once the test that runs has had its time. The program's own end ends this thread.
fn guard(watch: &Watch, lab: &Lab) {
    let mut now = watch.now.lock().unwrap_or_else(PoisonError::into_inner);
    while let Some(left) = now.limit.checked_sub(now.since.elapsed()) {
        let woken = watch.changed.wait_timeout(now, left);
        now = woken.unwrap_or_else(PoisonError::into_inner).0;
    }
    eprintln!("\n{} has not ended after {} s. The laboratory:", now.test, now.limit.as_secs());
    tell(lab);
    std::process::abort();
}

fn tell(lab: &Lab) {
    run("virsh", &["-q", "-c", lab.uri(), "list", "--all"]);
    if let Ok(conf) = lab.setting("VOLFERRY_LAB_CEPH_CONF") {
        run("ceph", &["-c", conf, "--connect-timeout", "5", "status"]);
    }
    if let Ok(folder) = lab.dir() {
        run("df", &["-h", &folder.display().to_string(), "/"]);
        for entry in std::fs::read_dir(folder.join("agents")).into_iter().flatten().flatten() {
            tell_agent(&entry.path());
        }
    }
    run("ps", &["-eo", "pid,ppid,stat,etimes,wchan:24,args", "--sort=etimes"]);
}

/// What a daemon that still answers says of its unfinished operations.
fn tell_agent(folder: &Path) {
    let socket = folder.join("socket").display().to_string();
    let volferry = crate::agent::binary("volferry").display().to_string();
    let list = ["--socket", &socket, "ops", "list", "--running", "--output", "json"];
    if run(&volferry, &list) {
        run("tail", &["-n", "60", &folder.join("log").display().to_string()]);
    }
}

/// Runs a command with a bound in time and lets it print; whether it ended well.
fn run(program: &str, words: &[&str]) -> bool {
    eprintln!("$ {program} {}", words.join(" "));
    let mut command = Command::new("timeout");
    command.args(["--kill-after=2", "10", program]).args(words).stdin(Stdio::null());
    // Standard output is the test's own; all of this belongs to the error.
    match command.output() {
        Ok(output) => {
            eprint!("{}", String::from_utf8_lossy(&output.stdout));
            eprint!("{}", String::from_utf8_lossy(&output.stderr));
            output.status.success()
        }
        Err(error) => {
            eprintln!("{error}");
            false
        }
    }
}
