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
    /// The copy is done and compared with its source.
    Comparing,
    /// What the destination shares with its source is copied.
    Flattening,
}

/// Whether a copy gets in step with its source at the rates seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Converges {
    /// Too little was seen to tell.
    #[default]
    Unknown,
    /// The rest shrinks.
    Yes,
    /// The guest dirties at least as much as is copied.
    No,
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
    /// Bytes per second the guest dirties; zero while unknown.
    #[serde(default)]
    pub dirty_rate: Bytes,
    /// Whether READY is reached at these rates.
    #[serde(default)]
    pub converges: Converges,
}

/// Turns looks at a job into rates. Time comes in from outside.
#[derive(Debug, Clone, Default)]
pub struct RateMeter {
    looks: VecDeque<Look>,
    outrun_since: Option<Duration>,
}

/// libvirt's numbers at one moment.
#[derive(Debug, Clone, Copy)]
struct Look {
    at: Duration,
    current: Bytes,
    end: Bytes,
}

/// What happened between two looks, in bytes per second.
#[derive(Debug, Clone, Copy, Default)]
struct Rates {
    copied: u64,
    dirtied: u64,
    /// Over which time; nothing can be said about convergence from a short one.
    span: Duration,
}

impl RateMeter {
    const WINDOW: Duration = Duration::from_secs(5);
    /// A shorter span says nothing about convergence: copies go in bursts.
    const TELLING: Duration = Duration::from_secs(2);

    /// Takes a look at `elapsed` since the copy began: done so far, to do in all (libvirt's `cur` and `end`).
    pub fn look(&mut self, elapsed: Duration, current: Bytes, end: Bytes, ready: bool) -> Progress {
        let phase = match (ready, current.0) {
            (true, _) => Phase::InStep,
            (false, 0) => Phase::Zeroing,
            (false, _) => Phase::Copying,
        };
        if phase == Phase::Zeroing {
            // What there is to copy is not counted yet; its sudden growth is no writing of the guest.
            self.looks.clear();
        }
        self.looks.push_back(Look { at: elapsed, current, end });
        while self.looks.len() > 2
            && elapsed.saturating_sub(self.looks.front().map_or(elapsed, |look| look.at))
                > Self::WINDOW
        {
            self.looks.pop_front();
        }
        let remaining = Bytes(end.0.saturating_sub(current.0));
        let rates = self.rates();
        let converges = converges(phase, rates, remaining);
        match converges {
            Converges::No => self.outrun_since = self.outrun_since.or(Some(elapsed)),
            Converges::Yes | Converges::Unknown => self.outrun_since = None,
        }
        let shrink = rates.copied.saturating_sub(rates.dirtied);
        let estimate = (phase == Phase::Copying && shrink > 0)
            .then(|| Duration::from_millis((remaining.0 / shrink).saturating_mul(1000)));
        Progress {
            phase,
            total: end,
            copied: current,
            remaining,
            rate: Bytes(rates.copied),
            estimate,
            dirty_rate: Bytes(rates.dirtied),
            converges,
        }
    }

    /// For how long the guest has outrun the copy, at `elapsed`.
    pub fn outrun_for(&self, elapsed: Duration) -> Option<Duration> {
        self.outrun_since.map(|since| elapsed.saturating_sub(since))
    }

    fn rates(&self) -> Rates {
        let (Some(first), Some(last)) = (self.looks.front(), self.looks.back()) else {
            return Rates::default();
        };
        let span = last.at.saturating_sub(first.at);
        if span.is_zero() {
            return Rates::default();
        }
        let per_second = |from: Bytes, to: Bytes| {
            let bytes = u128::from(to.0.saturating_sub(from.0));
            u64::try_from(bytes * 1_000_000 / span.as_micros().max(1)).unwrap_or(u64::MAX)
        };
        Rates {
            copied: per_second(first.current, last.current),
            // `end` is what was copied and what is left: it grows by what the guest dirtied.
            dirtied: per_second(first.end, last.end),
            span,
        }
    }
}

fn converges(phase: Phase, rates: Rates, remaining: Bytes) -> Converges {
    match phase {
        Phase::InStep => Converges::Yes,
        Phase::None | Phase::Zeroing | Phase::Comparing | Phase::Flattening => Converges::Unknown,
        Phase::Copying if rates.span < RateMeter::TELLING => Converges::Unknown,
        Phase::Copying if rates.copied > rates.dirtied => Converges::Yes,
        // Nothing moves: something hangs, and nothing is known about rates.
        Phase::Copying if rates.copied == 0 || remaining.0 == 0 => Converges::Unknown,
        Phase::Copying => Converges::No,
    }
}

/// Nobody asks QEMU anything while READY is nearer than this: the question would be in the way of the pivot.
const NEAR_READY: Duration = Duration::from_secs(2);

/// How long the job is left alone after a look: `period`, or until READY is overdue when it is near.
pub fn next_look(progress: &Progress, period: Duration) -> Duration {
    let Some(left) = time_to_ready(progress) else { return period };
    if left > NEAR_READY + period { period } else { period.max(left + NEAR_READY) }
}

/// Until READY if the guest stopped writing now; none when that cannot be told.
fn time_to_ready(progress: &Progress) -> Option<Duration> {
    // A copy that is outrun is not near, however little is left of it.
    if progress.phase != Phase::Copying || progress.rate.0 == 0 || progress.estimate.is_none() {
        return None;
    }
    let millis = u128::from(progress.remaining.0) * 1000 / u128::from(progress.rate.0);
    Some(Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX)))
}

/// What to do about a guest that outruns its copy, in one line.
pub fn outrun_hint(progress: &Progress, limited: bool) -> String {
    let way_out = if limited { "--write-blocking or a higher limit" } else { "--write-blocking" };
    format!(
        "the guest writes {}/s and the copy moves {}/s: at this rate it never gets in step; use {way_out}",
        progress.dirty_rate, progress.rate
    )
}

impl Converges {
    /// The stable word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Yes => "yes",
            Self::No => "no",
        }
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
            Self::Comparing => "comparing",
            Self::Flattening => "flattening",
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

    fn watch(copied: u64, dirtied: u64, seconds: u64) -> (RateMeter, Progress) {
        let mut meter = RateMeter::default();
        let mut last = Progress::default();
        for second in 0..=seconds {
            let (current, end) = (10 + copied * second, 500 + dirtied * second);
            let at = Duration::from_secs(second);
            last = meter.look(at, Bytes::mib(current), Bytes::mib(end), false);
        }
        (meter, last)
    }

    #[test]
    fn the_dirty_rate_is_how_fast_the_whole_grows() {
        let cases = [
            ((20, 5, 4), Converges::Yes),
            ((20, 20, 4), Converges::No),
            ((5, 20, 4), Converges::No),
            ((20, 5, 1), Converges::Unknown),
            ((0, 0, 4), Converges::Unknown),
            ((0, 9, 4), Converges::Unknown),
        ];
        for ((copied, dirtied, seconds), converges) in cases {
            let (_, seen) = watch(copied, dirtied, seconds);
            assert_eq!(seen.converges, converges, "{copied} {dirtied} {seconds}");
            assert_eq!((seen.rate, seen.dirty_rate), (Bytes::mib(copied), Bytes::mib(dirtied)));
        }
    }

    #[test]
    fn a_guest_outruns_its_copy_from_the_first_look_that_says_so() {
        let (meter, _) = watch(5, 20, 12);
        assert_eq!(meter.outrun_for(Duration::from_secs(12)), Some(Duration::from_secs(10)));
        assert_eq!(watch(20, 5, 12).0.outrun_for(Duration::from_secs(12)), None);
    }

    #[test]
    fn what_is_counted_after_zeroing_is_not_what_the_guest_wrote() {
        let mut meter = RateMeter::default();
        let seconds = Duration::from_secs;
        for second in 0..100 {
            let look = meter.look(seconds(second), Bytes(0), Bytes(1), false);
            assert_eq!((look.phase, look.converges), (Phase::Zeroing, Converges::Unknown));
        }
        meter.look(seconds(100), Bytes::mib(1), Bytes::mib(4096), false);
        let look = meter.look(seconds(103), Bytes::mib(31), Bytes::mib(4096), false);
        assert_eq!(look.phase, Phase::Copying);
        let look = meter.look(seconds(106), Bytes::mib(61), Bytes::mib(4096), false);
        assert_eq!((look.rate, look.dirty_rate), (Bytes::mib(10), Bytes(0)));
    }

    #[test]
    fn near_ready_the_job_is_left_alone_until_ready_is_overdue() {
        let period = Duration::from_secs(1);
        let at = |remaining, rate, estimate: Option<u64>| Progress {
            phase: Phase::Copying,
            remaining: Bytes::mib(remaining),
            rate: Bytes::mib(rate),
            estimate: estimate.map(Duration::from_secs),
            ..Progress::default()
        };
        let cases = [
            (at(1000, 100, Some(10)), 1000),
            (at(301, 100, Some(3)), 1000),
            (at(300, 100, Some(3)), 5000),
            (at(10, 100, Some(0)), 2100),
            (at(10, 100, None), 1000),
            (at(10, 0, None), 1000),
            (Progress::default(), 1000),
        ];
        for (progress, millis) in cases {
            assert_eq!(next_look(&progress, period), Duration::from_millis(millis), "{progress:?}");
        }
    }

    #[test]
    fn a_hint_names_only_ways_that_are_open() {
        let (_, seen) = watch(5, 20, 4);
        assert!(outrun_hint(&seen, true).contains("--write-blocking or a higher limit"));
        assert!(!outrun_hint(&seen, false).contains("limit"));
        assert!(outrun_hint(&seen, false).contains("writes 20 MiB/s"));
    }
}
