//! Time: the wall clock for records; waiting is tokio's, so that tests can pause it.

use std::time::SystemTime;

/// The wall clock. Durations are measured with tokio's clock, never by subtracting wall times.
pub trait Clock: Send + Sync {
    /// Now, for journals and answers.
    fn now(&self) -> SystemTime;
}

/// The machine's own clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }
}
