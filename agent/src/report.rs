//! The edge of both programs: an error's whole chain as one line, and output that no broken pipe can crash.

use std::error::Error;
use std::io::{self, Write};

/// An error and everything below it, `what: why: the system's words`.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut below = error.source();
    while let Some(source) = below {
        let words = source.to_string();
        // `transparent` errors say the same as what they wrap.
        if !text.ends_with(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        below = source.source();
    }
    text
}

/// A line on standard error; a reader that went away is no reason to fail.
pub fn to_stderr(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// A line on standard output, likewise.
pub fn to_stdout(line: &str) {
    let _ = writeln!(io::stdout().lock(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot listen on /run/x")]
    struct Outer(#[source] io::Error);

    #[derive(Debug, thiserror::Error)]
    #[error(transparent)]
    struct Transparent(#[from] Outer);

    #[test]
    fn the_chain_is_told_once() {
        let error = Transparent(Outer(io::Error::other("no such thing")));
        assert_eq!(chain(&error), "cannot listen on /run/x: no such thing");
    }
}
