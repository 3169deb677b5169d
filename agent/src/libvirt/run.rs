//! What tells one run of a QEMU from any other: a vCPU thread of it, that thread's start, and the host's boot.

use std::fs;
use std::io::ErrorKind;

use serde_json::Value;

use crate::ports::{ErrorClass, PortError};

/// The command, as the monitor takes it.
pub(super) const COMMAND: &str = r#"{"execute":"query-cpus-fast"}"#;

/// Another one after every boot of the host.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// Reads the answer and what the kernel says of the thread.
pub(super) fn parse(operation: &str, answer: &str) -> Result<String, PortError> {
    let thread = thread_id(answer).ok_or_else(|| {
        PortError::new(ErrorClass::Other, operation, "QEMU names no thread of a vCPU")
    })?;
    let read = |path: &str| {
        fs::read_to_string(path).map_err(|error| PortError::from((operation.to_owned(), error)))
    };
    let boot = read(BOOT)?;
    let stat = read(&format!("/proc/{thread}/stat"))?;
    let started = start_time(&stat).ok_or_else(|| {
        PortError::new(
            ErrorClass::Other,
            operation,
            "the kernel's words on the thread are not understood",
        )
    })?;
    Ok(format!("boot {} thread {thread} started {started}", boot.trim()))
}

/// Whether that thread is still there.
pub(super) fn is_alive(run: &str) -> Result<bool, PortError> {
    let operation = "look for a run of QEMU".to_owned();
    let words: Vec<&str> = run.split(' ').collect();
    let ["boot", boot, "thread", thread, "started", started] = words.as_slice() else {
        return Err(PortError::new(ErrorClass::Other, operation, format!("{run:?} is no run")));
    };
    let failed = |error| PortError::from((operation.clone(), error));
    if fs::read_to_string(BOOT).map_err(failed)?.trim() != *boot {
        return Ok(false);
    }
    match fs::read_to_string(format!("/proc/{thread}/stat")) {
        Ok(stat) => Ok(start_time(&stat).is_some_and(|found| found.to_string() == *started)),
        // The second: it ended between the opening and the reading.
        Err(error)
            if error.kind() == ErrorKind::NotFound
                || error.raw_os_error() == Some(nix::libc::ESRCH) =>
        {
            Ok(false)
        }
        Err(error) => Err(failed(error)),
    }
}

fn thread_id(answer: &str) -> Option<u64> {
    let answer: Value = serde_json::from_str(answer).ok()?;
    answer.get("return")?.as_array()?.first()?.get("thread-id")?.as_u64()
}

/// Field 22 of `stat`, in clock ticks since the boot; the name before it, in parentheses, may hold anything.
fn start_time(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_read_from_the_answer() {
        let answer =
            r#"{"return":[{"thread-id":25627,"props":{},"cpu-index":0}],"id":"libvirt-9"}"#;
        assert_eq!(thread_id(answer), Some(25627));
        assert_eq!(thread_id(r#"{"return":[]}"#), None);
    }

    #[test]
    fn a_name_with_blanks_and_parentheses_does_not_shift_the_fields() {
        let stat = "7 (CPU 0/TCG) x) S 1 7 7 0 -1 64 1 2 3 4 5 6 7 8 20 0 3 0 424242 99 1";
        assert_eq!(start_time(stat), Some(424_242));
    }

    #[test]
    fn this_very_thread_has_a_start() {
        let answer = format!(r#"{{"return":[{{"thread-id":{}}}]}}"#, std::process::id());
        let run = parse("ask", &answer).expect("the kernel knows this process");
        assert_eq!(parse("ask", &answer).expect("it still does"), run);
        assert!(is_alive(&run).expect("it is a run"));
        for other in [run.replacen("boot ", "boot 0", 1), format!("{run}1")] {
            assert!(!is_alive(&other).expect("it is a run"), "{other}");
        }
        assert!(is_alive("run 7").is_err());
    }
}
