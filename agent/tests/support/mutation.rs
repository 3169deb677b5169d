//! Hostile bytes out of good ones, each case by its number alone, so that a case can be had again.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::time::{Duration, Instant, SystemTime};

/// How long to go on when nothing else is said.
const SHORT: Duration = Duration::from_secs(2);
/// How long to go on, in seconds.
const SECONDS: &str = "VOLFERRY_FUZZ_SECONDS";
/// The first case; only this one is run when it is said.
const CASE: &str = "VOLFERRY_FUZZ_CASE";

/// The cases of one run.
pub struct Cases {
    next: u64,
    until: Instant,
    only_one: bool,
    /// How many there were.
    pub count: u64,
}

impl Cases {
    /// As the environment says; else a few seconds of cases that no run had before.
    pub fn new() -> Self {
        let number = |name| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
        let only: Option<u64> = number(CASE);
        let length = number(SECONDS).map_or(SHORT, Duration::from_secs);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
        let first = only.unwrap_or(now.as_secs() << 32);
        Self { next: first, until: Instant::now() + length, only_one: only.is_some(), count: 0 }
    }

    /// The number of the next case; none when the time is over.
    pub fn next(&mut self) -> Option<u64> {
        let over = if self.only_one { self.count > 0 } else { Instant::now() >= self.until };
        if over {
            return None;
        }
        self.next += u64::from(self.count > 0);
        self.count += 1;
        Some(self.next)
    }
}

/// Numbers without order, by splitmix64.
pub struct Dice(u64);

impl Dice {
    pub fn new(case: u64) -> Self {
        Self(case)
    }

    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Below `bound`; 0 when that is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        if bound == 0 { 0 } else { usize::try_from(self.roll() >> 8).expect("64 bits") % bound }
    }

    pub fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    pub fn bytes(&mut self, most: usize) -> Vec<u8> {
        let length = self.below(most + 1);
        (0..length).map(|_| self.roll().to_le_bytes()[0]).collect()
    }

    /// A place in `bytes` and a length from there.
    fn range(&mut self, bytes: &[u8]) -> std::ops::Range<usize> {
        let start = self.below(bytes.len() + 1);
        let length = self.below((bytes.len() - start).min(64) + 1);
        start..start + length
    }
}

/// A few changes to `bytes`; what is spliced in comes from `others`.
pub fn mutate(dice: &mut Dice, mut bytes: Vec<u8>, others: &[Vec<u8>]) -> Vec<u8> {
    for _ in 0..=dice.below(6) {
        let range = dice.range(&bytes);
        match dice.below(9) {
            0 if !bytes.is_empty() => {
                let place = dice.below(bytes.len());
                bytes[place] ^= 1 << dice.below(8);
            }
            1 if !bytes.is_empty() => {
                let place = dice.below(bytes.len());
                bytes[place] = *dice.pick(&[0, 1, 0x7f, 0x80, 0xff, b'"', b'/', b'\n', b'[']);
            }
            2 => drop(bytes.drain(range)),
            3 => {
                let copy = bytes[range.clone()].to_vec();
                bytes.splice(range.start..range.start, copy);
            }
            4 => {
                let other = dice.pick(others).clone();
                let taken = dice.range(&other);
                bytes.splice(range, other[taken].iter().copied());
            }
            5 => {
                let new = dice.bytes(16);
                bytes.splice(range.start..range.start, new);
            }
            6 => bytes.truncate(range.end),
            7 => {
                // A number as long as protobuf allows, or longer.
                let long = vec![0xff; dice.below(12)];
                bytes.splice(range.start..range.start, long);
            }
            _ => {
                let again = bytes[range].repeat(dice.below(40));
                bytes.extend(again);
            }
        }
        bytes.truncate(256 * 1024);
    }
    bytes
}

/// A few bytes in their places changed, so that what says how long something is stays right.
pub fn mutate_in_place(dice: &mut Dice, mut bytes: Vec<u8>) -> Vec<u8> {
    for _ in 0..=dice.below(4) {
        if bytes.is_empty() {
            break;
        }
        let place = dice.below(bytes.len());
        bytes[place] = match dice.below(3) {
            0 => bytes[place] ^ (1 << dice.below(8)),
            1 => *dice.pick(&b"/.-@:;\"'[]%\n\0 "[..]),
            _ => b' ' + u8::try_from(dice.below(95)).expect("ASCII"),
        };
    }
    bytes
}

/// Kibibytes of this process by a line of `/proc/self/status`.
pub fn memory(line: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("procfs");
    let found = status.lines().find_map(|text| text.strip_prefix(line));
    let number = found.and_then(|rest| rest.trim_matches([':', ' ', '\t', 'k', 'B']).parse().ok());
    number.expect("a number of kibibytes")
}
