//! Points of the real daemon's journal at which a test lets it die or stand still. Not compiled into the agent.
//!
//! - `VOLFERRY_POINT="kill:N:NAME"`: SIGKILL to itself when point NAME (`after append intent pivot`) is reached for
//!   the Nth time; `stop:` sends SIGSTOP instead, and the tester decides when it goes on.
//! - `VOLFERRY_POINTS_FILE`: every point that is reached is written there, a line each.

use std::fs::File;
use std::io::Write as _;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use nix::sys::signal::{Signal, kill};
use nix::unistd::getpid;

use crate::journal::{Journal, JournalError};

/// What to do at which point.
struct Point {
    signal: Signal,
    name: String,
    left: AtomicU32,
}

impl Point {
    fn parse(text: &str) -> Option<Point> {
        let mut parts = text.splitn(3, ':');
        let signal = match parts.next()? {
            "kill" => Signal::SIGKILL,
            "stop" => Signal::SIGSTOP,
            _ => return None,
        };
        let left = AtomicU32::new(parts.next()?.parse().ok()?);
        Some(Point { signal, left, name: parts.next()?.to_owned() })
    }

    fn reached(&self, name: &str) -> bool {
        name == self.name && self.left.fetch_sub(1, Ordering::SeqCst) == 1
    }
}

/// The journal with the points of the environment; as it was when there are none.
pub fn arm(journal: Journal) -> Journal {
    let point = std::env::var("VOLFERRY_POINT").ok();
    let file = std::env::var_os("VOLFERRY_POINTS_FILE");
    if point.is_none() && file.is_none() {
        return journal;
    }
    let point = point.map(|text| Point::parse(&text).expect("VOLFERRY_POINT is kill|stop:N:NAME"));
    let file = file
        .map(|path| Mutex::new(File::create(path).expect("VOLFERRY_POINTS_FILE can be written")));
    let shared = Arc::new((point, file));
    journal.with_hook(Arc::new(move |name| {
        let shared = Arc::clone(&shared);
        Box::pin(async move { reach(&shared.0, &shared.1, &name) })
    }))
}

fn reach(
    point: &Option<Point>,
    file: &Option<Mutex<File>>,
    name: &str,
) -> Result<(), JournalError> {
    if let Some(file) = file {
        let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
        writeln!(file, "{name}").expect("VOLFERRY_POINTS_FILE can be written");
    }
    if let Some(point) = point
        && point.reached(name)
    {
        // A signal to oneself is delivered before the call returns.
        kill(getpid(), point.signal).expect("a process may signal itself");
    }
    Ok(())
}
