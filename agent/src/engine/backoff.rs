//! Waiting longer from try to try, up to a bound.

use std::time::Duration;

use tokio::time::Instant;

use super::context::Tuning;

/// The waits between tries of one call.
#[derive(Debug)]
pub struct Backoff {
    next: Duration,
    longest: Duration,
    until: Option<Instant>,
}

impl Backoff {
    /// Tries for ever.
    pub fn unbounded(tuning: &Tuning) -> Self {
        Self { next: tuning.backoff.0, longest: tuning.backoff.1, until: None }
    }

    /// Gives up after `patience`.
    pub fn bounded(tuning: &Tuning, patience: Duration) -> Self {
        Self { until: Some(Instant::now() + patience), ..Self::unbounded(tuning) }
    }

    /// Waits; false when patience is at its end.
    pub async fn wait(&mut self) -> bool {
        if self.until.is_some_and(|until| Instant::now() + self.next > until) {
            return false;
        }
        tokio::time::sleep(self.next).await;
        self.next = (self.next * 2).min(self.longest);
        true
    }
}
