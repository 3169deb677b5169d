//! Running a command and saying what went wrong.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::LabError;

/// Runs a command to its end and returns its standard output.
///
/// # Errors
/// When it cannot run or ends with a failure; carries what it said on standard error.
pub fn output(command: &mut Command) -> Result<String, LabError> {
    let shown = || {
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    };
    let shown = shown();
    let failed = |text: String| LabError::Command { command: shown.clone(), text };
    let done = command.stdin(Stdio::null()).output().map_err(|e| failed(e.to_string()))?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        return Err(failed(format!("{}: {}", done.status, said.trim())));
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

/// Polls until `check` gives something, at most `seconds`.
pub(crate) fn wait_for<T>(
    seconds: u64,
    what: &str,
    mut check: impl FnMut() -> Result<Option<T>, LabError>,
) -> Result<T, LabError> {
    let end = Instant::now() + Duration::from_secs(seconds);
    loop {
        if let Some(found) = check()? {
            return Ok(found);
        }
        if Instant::now() >= end {
            return Err(LabError::Timeout { seconds, what: what.to_owned() });
        }
        #[allow(
            clippy::disallowed_methods,
            reason = "no event exists: a condition outside is polled, with a bound"
        )]
        std::thread::sleep(Duration::from_millis(20));
    }
}
