//! Running `qemu-img`: bounded in time, with an empty environment, its words as classes of errors.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use crate::ports::{ErrorClass, PortError};

/// The program.
#[derive(Debug, Clone)]
pub struct QemuImg {
    program: PathBuf,
}

impl QemuImg {
    /// This program, looked up in the system's folders when it is a bare name.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into() }
    }

    /// Runs it and returns its standard output. A child that takes longer than `bound` is killed.
    ///
    /// Errors: `Unsupported` when it cannot be run, `NoAnswer` after the bound, else by its own words.
    pub async fn run(
        &self,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
        bound: Duration,
        operation: &str,
    ) -> Result<Vec<u8>, PortError> {
        let child = alone(&self.program).args(arguments).spawn().map_err(|error| {
            let text = format!("cannot run {}: {error}", self.program.display());
            PortError::new(ErrorClass::Unsupported, operation, text)
        })?;
        let Ok(output) = tokio::time::timeout(bound, child.wait_with_output()).await else {
            let text = format!("qemu-img has not ended for {bound:?}");
            return Err(PortError::new(ErrorClass::NoAnswer, operation, text));
        };
        let output = output.map_err(|error| PortError::new(ErrorClass::Other, operation, error))?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        let class = class_of(&text);
        let text = if text.is_empty() { output.status.to_string() } else { text };
        Err(PortError::new(class, operation, text))
    }
}

/// A child that inherits no environment, is listened to, speaks English, and ends with its future.
pub(super) fn alone(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

/// What its words mean. librbd says no more of a header than the number of an error.
pub(super) fn class_of(text: &str) -> ErrorClass {
    let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
    // First: where it cannot remove what it was making, it says that too.
    if says(&["Unable to get accurate CPU usage"]) {
        ErrorClass::Busy
    } else if says(&["No space left on device", "Disk quota exceeded"]) {
        ErrorClass::NoSpace
    } else if says(&[
        "Invalid password",
        "cannot unlock any keyslot",
        "encryption load fail: Operation not permitted",
    ]) {
        ErrorClass::WrongPassphrase
    } else if says(&[
        "not in LUKS format",
        "No encryption in image header",
        "encryption load fail: Invalid argument",
    ]) {
        ErrorClass::NoHeader
    } else if says(&["Permission denied", "Operation not permitted"]) {
        ErrorClass::PermissionDenied
    } else {
        ErrorClass::Other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_words_are_classes() {
        for (text, class) in [
            (
                "qemu-img: Could not open 'x': Invalid password, cannot unlock any keyslot",
                ErrorClass::WrongPassphrase,
            ),
            ("qemu-img: Could not open 'x': Volume is not in LUKS format", ErrorClass::NoHeader),
            (
                "qemu-img: Could not open 'x': encryption load fail: Operation not permitted",
                ErrorClass::WrongPassphrase,
            ),
            (
                "qemu-img: Could not open 'x': encryption load fail: Invalid argument",
                ErrorClass::NoHeader,
            ),
            ("qemu-img: x: Operation not permitted", ErrorClass::PermissionDenied),
            ("qemu-img: x: Unable to get accurate CPU usage", ErrorClass::Busy),
            (
                "qemu-img: Error when deleting file x: Operation not permitted\n\
                 qemu-img: x: Unable to get accurate CPU usage",
                ErrorClass::Busy,
            ),
            ("qemu-img: x: No space left on device", ErrorClass::NoSpace),
            ("qemu-img: Could not open 'x'", ErrorClass::Other),
        ] {
            assert_eq!(class_of(text), class, "{text}");
        }
    }

    #[tokio::test]
    async fn what_cannot_be_run_is_told() {
        let none = QemuImg::new("/nonexistent/qemu-img");
        let error = none.run(["--version"], Duration::from_secs(5), "look").await.err();
        assert_eq!(error.map(|error| error.class), Some(ErrorClass::Unsupported));
    }
}
