//! Programs of the system that tests ask for their opinion. A missing one skips the test aloud, or fails it where
//! `VOLFERRY_REQUIRE_TOOLS=1` is set.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A command for the program, `None` where it is not installed.
pub fn tool(test: &str, program: &str) -> Option<Command> {
    // Prometheus's own checker comes without its service: tests/lab/install.sh puts it there.
    let given = std::env::var_os(format!("VOLFERRY_{}", program.to_uppercase()));
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let installed = std::env::split_paths(&folders).map(|folder| folder.join(program));
    let found = given.map(PathBuf::from).into_iter().chain(installed).find(|path| path.is_file());
    if let Some(path) = found {
        return Some(Command::new(path));
    }
    let required = std::env::var("VOLFERRY_REQUIRE_TOOLS").is_ok_and(|value| value == "1");
    assert!(!required, "{test} needs {program}, which is not installed");
    // Past the test harness, which keeps the output of passed tests to itself.
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {program} is not installed");
    None
}

/// A file of the repository.
pub fn shipped(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}
