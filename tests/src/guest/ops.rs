//! The stream of operations on one disk: operation `n` is a pure function of (seed, disk, n, size),
//! so that the verifier knows what the guest did from the numbers it acknowledged.

use super::{Disk, mix};

/// What one operation does to its sectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// New stamped content.
    Write,
    /// The bytes that are there, read and written back (root file system).
    Rewrite,
    /// Zeros (`BLKZEROOUT`).
    Zero,
    /// `BLKDISCARD`: afterwards each sector reads as before or as zeros.
    Discard,
    /// A flush of the device's cache; no sectors.
    Flush,
}

/// One operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Op {
    /// What is done.
    pub kind: Kind,
    /// First sector.
    pub sector: u64,
    /// Number of sectors, at most [`MAX_SECTORS`]; 0 for a flush.
    pub count: u64,
}

/// The longest operation: 1 MiB.
pub const MAX_SECTORS: u64 = 2048;

/// Every eighth operation belongs to a sequential sweep, so that the whole disk is covered soon.
const SWEEP_EVERY: u64 = 8;

/// Operation `n` on a disk of `sectors` sectors.
#[must_use]
pub fn op(seed: u64, disk: Disk, n: u64, sectors: u64) -> Op {
    assert!(sectors > 0, "an empty disk has no operations");
    if n.is_multiple_of(SWEEP_EVERY) {
        let steps = sectors.div_ceil(MAX_SECTORS);
        // Each boot begins its sweep elsewhere.
        let step = (n / SWEEP_EVERY + mix(seed)) % steps;
        return placed(disk, sectors, Kind::Write, step * MAX_SECTORS, MAX_SECTORS);
    }
    let mut state = mix(seed ^ mix(u64::from(disk.letter()) ^ mix(n)));
    let mut draw = |below: u64| {
        state = mix(state);
        state % below
    };
    let kind = match draw(100) {
        0..10 => return Op { kind: Kind::Flush, sector: 0, count: 0 },
        10..18 => Kind::Discard,
        18..26 => Kind::Zero,
        _ => Kind::Write,
    };
    // Lengths spread over the orders of magnitude from 512 B to 1 MiB.
    let most = 1 << draw(12);
    let count = 1 + draw(most);
    let sector = draw(sectors);
    // Every other long operation is aligned, as file systems' are, so that discards free clusters.
    let sector = if draw(2) == 0 { sector & !127 } else { sector };
    placed(disk, sectors, kind, sector, count)
}

/// Keeps an operation inside the disk and the root file system's content unchanged.
fn placed(disk: Disk, sectors: u64, kind: Kind, sector: u64, count: u64) -> Op {
    let kept = disk.kept_sectors();
    if sector < kept {
        let count = count.min(kept - sector).min(sectors - sector);
        return Op { kind: Kind::Rewrite, sector, count };
    }
    Op { kind, sector, count: count.min(sectors - sector) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_stay_inside_and_cover_the_whole_disk() {
        for (disk, sectors) in [(Disk::VDA, 96 * 2048), (Disk::VDB, 16 * 2048 + 3)] {
            let mut touched = vec![false; usize::try_from(sectors).expect("small")];
            let mut kinds = std::collections::HashMap::new();
            for n in 0..2000 {
                let op = op(5, disk, n, sectors);
                assert!(op.sector + op.count <= sectors && op.count <= MAX_SECTORS, "{n}: {op:?}");
                assert_eq!(op.count == 0, op.kind == Kind::Flush, "{n}: {op:?}");
                if op.kind != Kind::Rewrite && op.kind != Kind::Flush {
                    assert!(op.sector >= disk.kept_sectors(), "{n}: {op:?}");
                }
                *kinds.entry(format!("{:?}", op.kind)).or_insert(0) += 1;
                let from = usize::try_from(op.sector).expect("small");
                let count = usize::try_from(op.count).expect("small");
                touched[from..from + count].fill(true);
            }
            assert!(touched.iter().all(|t| *t), "{disk} not covered");
            assert!(kinds.len() >= 4, "{kinds:?}");
        }
    }

    #[test]
    fn the_stream_depends_on_seed_disk_and_number() {
        let some = op(1, Disk::VDB, 9, 4096);
        assert_eq!(some, op(1, Disk::VDB, 9, 4096));
        assert!((9..30).any(|n| op(1, Disk::VDB, n, 4096) != op(2, Disk::VDB, n, 4096)));
    }
}
