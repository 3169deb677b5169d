//! Acknowledgements in a serial log: lines `ACK <disk> <n> <milliseconds>`.
//!
//! The log may also hold kernel messages, lines run into each other, and a last line cut in the
//! middle. Per disk the numbers only grow, one operation at a time, so the highest complete line says it
//! all. A number that jumps back is a log of another boot and an error.

use std::collections::BTreeMap;

use super::Disk;

/// What one serial log acknowledges.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Acks {
    /// Per disk: how many operations were acknowledged (the next one may be in flight).
    pub counts: BTreeMap<Disk, u64>,
    /// Guest's clock of the last acknowledgement, milliseconds since its start.
    pub last_ms: u64,
    /// The longest time between two acknowledgements of one disk, in milliseconds.
    pub longest_gap_ms: u64,
}

/// A log that is not one of a single boot.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("acknowledgement {n} of {disk} after {before}: not the log of one boot")]
pub struct OutOfOrder {
    disk: Disk,
    n: u64,
    before: u64,
}

impl Acks {
    /// Reads a serial log.
    ///
    /// # Errors
    /// When the numbers of a disk do not grow.
    pub fn parse(log: &[u8]) -> Result<Acks, OutOfOrder> {
        let mut acks = Acks::default();
        let mut last = BTreeMap::new();
        for line in log.split_inclusive(|b| *b == b'\n') {
            let Some((disk, n, ms)) = parse_line(line) else { continue };
            let count = acks.counts.entry(disk).or_insert(0);
            if n < *count {
                return Err(OutOfOrder { disk, n, before: *count - 1 });
            }
            *count = n + 1;
            if let Some(before) = last.insert(disk, ms) {
                acks.longest_gap_ms = acks.longest_gap_ms.max(ms.saturating_sub(before));
            }
            acks.last_ms = acks.last_ms.max(ms);
        }
        Ok(acks)
    }

    /// Acknowledged operations of a disk.
    #[must_use]
    pub fn of(&self, disk: Disk) -> u64 {
        self.counts.get(&disk).copied().unwrap_or(0)
    }

    /// Acknowledged operations of all disks.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.values().sum()
    }
}

/// Only a complete line counts: a cut one may show a shortened number.
fn parse_line(line: &[u8]) -> Option<(Disk, u64, u64)> {
    let text = std::str::from_utf8(line).ok()?.strip_suffix('\n')?;
    let text = &text[text.rfind("ACK ")?..];
    let mut words = text.trim_end_matches('\r').split(' ').skip(1);
    let disk = Disk::parse(words.next()?)?;
    let n = words.next()?.parse().ok()?;
    let ms = words.next()?.parse().ok()?;
    words.next().is_none().then_some((disk, n, ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_and_a_cut_last_line_are_passed_over() {
        let log = b"[    0.1] Linux\r\nACK vda 0 5\nACK vdb 0 6\n\xff\xfe\nACK vda 1 9\r\n[ 1.0] xACK vdb 1 30\nACK vda 1234";
        let acks = Acks::parse(log).expect("one boot");
        assert_eq!((acks.of(Disk::VDA), acks.of(Disk::VDB)), (2, 2));
        assert_eq!((acks.last_ms, acks.longest_gap_ms, acks.total()), (30, 24, 4));
    }

    #[test]
    fn a_log_of_two_boots_is_refused() {
        assert!(Acks::parse(b"ACK vda 0 1\nACK vda 1 2\nACK vda 0 1\n").is_err());
    }
}
