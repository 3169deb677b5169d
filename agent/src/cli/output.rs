//! Where text goes: standard output that survives a reader who left, and colour only where people look.

use std::env;
use std::io::{self, IsTerminal, Write};

use serde_json::Value;

use super::arguments::Format;
use crate::report;

/// Standard output in the format that was asked for.
#[derive(Debug)]
pub struct Output {
    format: Format,
    colour: bool,
    closed: bool,
}

/// What a colour says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// It went well.
    Good,
    /// Somebody should look.
    Bad,
    /// It goes on.
    Busy,
    /// Nothing special.
    Plain,
}

impl Output {
    /// Output of this process.
    pub fn new(format: Format) -> Self {
        let colour = io::stdout().is_terminal() && env::var_os("NO_COLOR").is_none();
        Self { format, colour, closed: false }
    }

    /// The same format once more, for what is written elsewhere.
    pub fn another(&self) -> Self {
        Self { format: self.format, colour: self.colour, closed: true }
    }

    /// Whether programs read it.
    pub fn is_json(&self) -> bool {
        self.format == Format::Json
    }

    /// Writes text as it is. A reader who left ends the writing, not the command.
    pub fn text(&mut self, text: &str) {
        let mut stdout = io::stdout().lock();
        if !self.closed && stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).is_err()
        {
            self.closed = true;
        }
    }

    /// Writes one line.
    pub fn line(&mut self, line: &str) {
        self.text(&format!("{line}\n"));
    }

    /// Writes one JSON document on one line.
    pub fn json(&mut self, value: &Value) {
        self.line(&value.to_string());
    }

    /// Text in the colour of its tone, where colours are wanted.
    pub fn paint(&self, text: &str, tone: Tone) -> String {
        let code = match tone {
            Tone::Good => "32",
            Tone::Bad => "31",
            Tone::Busy => "36",
            Tone::Plain => "0",
        };
        if self.colour && tone != Tone::Plain {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}

/// A line on standard error.
pub fn note(line: &str) {
    report::to_stderr(line);
}

/// Text of others on one line: a control character could forge a line or drive the terminal.
pub fn one_line(text: &str) -> String {
    text.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_others_cannot_drive_the_terminal() {
        assert_eq!(one_line(" a\nb\x1b[31m "), "a b [31m");
    }
}
