//! What Ctrl-C and SIGTERM mean while a migration is followed.

use std::io::{self, IsTerminal};
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

use crate::api::status::Exit;
use crate::cli::failure::Failure;

/// A second Ctrl-C within this time confirms the first.
const CONFIRMS: Duration = Duration::from_secs(5);

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// Ask whether to cancel.
    Ask,
    /// Cancel.
    Cancel,
    /// Ask whether to leave without waiting for the end.
    AskToLeave,
    /// Leave.
    Leave,
}

/// The signals of this process while it follows an operation.
#[derive(Debug)]
pub struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
    decision: Decision,
}

impl Interrupts {
    /// Takes the signals over from the system; from here on they end nothing by themselves.
    pub fn new() -> Result<Self, Failure> {
        let failed = |error| Failure::new(Exit::Failed, format!("cannot take signals: {error}"));
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).map_err(failed)?,
            terminate: signal(SignalKind::terminate()).map_err(failed)?,
            decision: Decision::new(io::stderr().is_terminal()),
        })
    }

    /// The next signal, as a wish. Cancel safe.
    pub async fn next(&mut self) -> Wish {
        tokio::select! {
            _ = self.interrupt.recv() => self.decision.interrupt(Instant::now()),
            _ = self.terminate.recv() => self.decision.terminate(),
        }
    }
}

/// The rule, without signals: with somebody at the terminal a Ctrl-C asks first.
#[derive(Debug)]
struct Decision {
    attended: bool,
    cancelled: bool,
    asked: Option<Instant>,
}

impl Decision {
    const fn new(attended: bool) -> Self {
        Self { attended, cancelled: false, asked: None }
    }

    fn interrupt(&mut self, now: Instant) -> Wish {
        let confirmed = self.asked.is_some_and(|asked| now.duration_since(asked) <= CONFIRMS);
        if self.attended && !confirmed {
            self.asked = Some(now);
            return if self.cancelled { Wish::AskToLeave } else { Wish::Ask };
        }
        self.terminate()
    }

    fn terminate(&mut self) -> Wish {
        self.asked = None;
        if std::mem::replace(&mut self.cancelled, true) { Wish::Leave } else { Wish::Cancel }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_a_terminal_the_first_asks_and_a_quick_second_cancels() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut decision = Decision::new(true);
        assert_eq!(decision.interrupt(at(0)), Wish::Ask);
        assert_eq!(decision.interrupt(at(6)), Wish::Ask, "too late to confirm");
        assert_eq!(decision.interrupt(at(10)), Wish::Cancel);
        assert_eq!(decision.interrupt(at(11)), Wish::AskToLeave);
        assert_eq!(decision.interrupt(at(12)), Wish::Leave);
    }

    #[test]
    fn without_a_terminal_the_first_cancels() {
        let mut decision = Decision::new(false);
        assert_eq!(decision.interrupt(Instant::now()), Wish::Cancel);
        assert_eq!(decision.interrupt(Instant::now()), Wish::Leave);
        assert_eq!(Decision::new(true).terminate(), Wish::Cancel);
    }
}
