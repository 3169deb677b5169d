//! Programs of the system that tests ask for their opinion. A missing one skips the test aloud, or
//! fails it where `VOLFERRY_REQUIRE_TOOLS=1` is set.

use std::io::Write;
use std::process::{Command, Stdio};

/// A command for the program, `None` where it is not installed.
pub fn tool(test: &str, program: &str) -> Option<Command> {
    let probe = Command::new(program).arg("--version").stdout(Stdio::null()).status();
    if probe.is_ok() {
        return Some(Command::new(program));
    }
    let required = std::env::var("VOLFERRY_REQUIRE_TOOLS").is_ok_and(|value| value == "1");
    assert!(!required, "{test} needs {program}, which is not installed");
    skipped(&format!("SKIPPED {test}: {program} is not installed"));
    None
}

/// Past the test harness, which keeps the output of passed tests to itself.
fn skipped(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
