//! Progress that does not lie: bytes copied, to do, the rate seen, and an estimate only where one can be made.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::spec::Bytes;

/// The part of a copy that runs at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// No copy runs.
    #[default]
    None,
    /// QEMU clears the destination; it reports no bytes meanwhile.
    Zeroing,
    /// Bytes move.
    Copying,
    /// Source and destination are in step.
    InStep,
}

/// One look at a running copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Progress {
    /// What runs.
    pub phase: Phase,
    /// All there is to copy; grows when the guest writes.
    pub total: Bytes,
    /// Copied so far, rewrites included.
    pub copied: Bytes,
    /// Still to copy.
    pub remaining: Bytes,
    /// Bytes per second over the last seconds; zero while unknown.
    pub rate: Bytes,
    /// Until READY at this rate; none when it would never come or cannot be told.
    pub estimate: Option<Duration>,
}

/// Turns looks at a job into a rate. Time comes in from outside.
#[derive(Debug, Clone, Default)]
pub struct RateMeter {
    looks: VecDeque<(Duration, Bytes, Bytes)>,
}

impl RateMeter {
    const WINDOW: Duration = Duration::from_secs(5);

    /// Takes a look at `elapsed` since the copy began: done so far, to do in all (libvirt's `cur` and `end`).
    pub fn look(&mut self, elapsed: Duration, current: Bytes, end: Bytes, ready: bool) -> Progress {
        self.looks.push_back((elapsed, current, end));
        while self.looks.len() > 2
            && elapsed.saturating_sub(self.looks.front().map_or(elapsed, |look| look.0))
                > Self::WINDOW
        {
            self.looks.pop_front();
        }
        let remaining = Bytes(end.0.saturating_sub(current.0));
        let (rate, shrink) = self.rates(elapsed, current, remaining);
        let phase = match (ready, current.0) {
            (true, _) => Phase::InStep,
            (false, 0) => Phase::Zeroing,
            (false, _) => Phase::Copying,
        };
        let estimate = (phase == Phase::Copying && shrink > 0)
            .then(|| Duration::from_millis((remaining.0 / shrink).saturating_mul(1000)));
        Progress { phase, total: end, copied: current, remaining, rate, estimate }
    }

    /// Copied bytes per second, and by how much the rest shrinks per second.
    fn rates(&self, elapsed: Duration, current: Bytes, remaining: Bytes) -> (Bytes, u64) {
        let Some((first, copied, end)) = self.looks.front() else { return (Bytes(0), 0) };
        let span = elapsed.saturating_sub(*first).as_millis();
        if span == 0 {
            return (Bytes(0), 0);
        }
        let per_second =
            |bytes: u64| u64::try_from(u128::from(bytes) * 1000 / span).unwrap_or(u64::MAX);
        let before = end.0.saturating_sub(copied.0);
        (
            Bytes(per_second(current.0.saturating_sub(copied.0))),
            per_second(before.saturating_sub(remaining.0)),
        )
    }
}

impl Phase {
    /// The stable word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Zeroing => "zeroing",
            Self::Copying => "copying",
            Self::InStep => "in-step",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_numbers_are_not_ready() {
        let mut meter = RateMeter::default();
        let look = meter.look(Duration::from_secs(1), Bytes::mib(8), Bytes::mib(8), false);
        assert_eq!(look.phase, Phase::Copying);
        let look = meter.look(Duration::from_secs(2), Bytes::mib(8), Bytes::mib(8), true);
        assert_eq!(look.phase, Phase::InStep);
    }

    #[test]
    fn an_estimate_is_made_only_while_the_rest_shrinks() {
        let mut meter = RateMeter::default();
        meter.look(Duration::ZERO, Bytes::mib(0), Bytes::mib(100), false);
        let look = meter.look(Duration::from_secs(1), Bytes::mib(10), Bytes::mib(100), false);
        assert_eq!(look.rate, Bytes::mib(10));
        assert_eq!(look.estimate, Some(Duration::from_secs(9)));
        let mut busy = RateMeter::default();
        busy.look(Duration::ZERO, Bytes::mib(0), Bytes::mib(100), false);
        let look = busy.look(Duration::from_secs(1), Bytes::mib(10), Bytes::mib(120), false);
        assert_eq!(look.estimate, None, "the guest writes faster than the copy");
    }

    #[test]
    fn numbers_running_backwards_do_no_harm() {
        let mut meter = RateMeter::default();
        meter.look(Duration::ZERO, Bytes::mib(50), Bytes::mib(40), false);
        let look = meter.look(Duration::from_secs(1), Bytes::mib(20), Bytes::mib(100), false);
        assert_eq!((look.rate, look.estimate), (Bytes(0), None));
    }
}
