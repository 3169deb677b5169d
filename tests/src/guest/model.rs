//! What each sector of a disk may hold after what the guest did and was promised.

use std::collections::HashMap;

use super::block::Stamp;
use super::ops::{Kind, Op, op};
use super::{Disk, SECTOR};

/// One content a sector may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// What the initial image has there.
    Initial,
    /// Zeros.
    Zero,
    /// Whatever: QEMU was killed after a discard or zero write that no flush covered. Qcow2 may have given the
    /// freed cluster to other data, with the old mapping still in the file (seen).
    Anything,
    /// What operation `n` of a boot (by its place in the list of boots) wrote there.
    Written {
        /// Index of the boot.
        boot: u16,
        /// Number of the operation.
        n: u64,
    },
}

/// A disk as a set of allowed contents per sector.
#[derive(Debug)]
pub struct Model {
    disk: Disk,
    seeds: Vec<u64>,
    newest: Vec<Content>,
    /// Sectors that may also hold something else.
    also: HashMap<u64, Vec<Content>>,
}

/// The verdict on one sector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// One of the allowed contents.
    Fine,
    /// An acknowledged operation's content is not there; the newest allowed one is named.
    Missing(Content),
    /// A sector nobody wrote differs from the initial image.
    Unexpected,
}

impl Model {
    /// A disk nobody has written to.
    #[must_use]
    pub fn new(disk: Disk, sectors: usize) -> Model {
        Model {
            disk,
            seeds: Vec::new(),
            newest: vec![Content::Initial; sectors],
            also: HashMap::new(),
        }
    }

    /// Sectors of the disk.
    #[must_use]
    pub fn sectors(&self) -> u64 {
        self.newest.len() as u64
    }

    /// The seed of a boot applied before.
    #[must_use]
    pub fn seed(&self, boot: u16) -> Option<u64> {
        self.seeds.get(usize::from(boot)).copied()
    }

    /// Applies one boot: the first `acknowledged` operations happened, the next may have.
    /// With `killed` only what a completed flush covers is certain: for QEMU processes that were killed while
    /// their image format still held metadata in memory.
    pub fn apply_boot(&mut self, seed: u64, acknowledged: u64, killed: bool) {
        let boot = u16::try_from(self.seeds.len()).expect("a test has few boots");
        self.seeds.push(seed);
        let sectors = self.sectors();
        let mut certain = acknowledged;
        if killed {
            let flush = |n: &u64| op(seed, self.disk, *n, sectors).kind == Kind::Flush;
            certain = (0..acknowledged).rev().find(flush).map_or(0, |n| n + 1);
        }
        for n in 0..=acknowledged {
            let op = op(seed, self.disk, n, sectors);
            self.apply(op, boot, n, n < certain);
            if killed && n >= certain && matches!(op.kind, Kind::Zero | Kind::Discard) {
                for sector in op.sector..op.sector + op.count {
                    self.also.entry(sector).or_default().push(Content::Anything);
                }
            }
        }
    }

    fn apply(&mut self, op: Op, boot: u16, n: u64, certain: bool) {
        let new = match op.kind {
            Kind::Rewrite | Kind::Flush => return,
            Kind::Write => Content::Written { boot, n },
            Kind::Zero | Kind::Discard => Content::Zero,
        };
        let replaces = certain && op.kind != Kind::Discard;
        for sector in op.sector..op.sector + op.count {
            let newest = &mut self.newest[usize::try_from(sector).expect("a disk fits in memory")];
            if replaces {
                self.also.remove(&sector);
            } else if *newest != new {
                let also = self.also.entry(sector).or_default();
                if !also.contains(newest) {
                    also.push(*newest);
                }
            }
            *newest = new;
        }
    }

    /// Judges what was found in a sector; `initial` is what the initial image has there.
    #[must_use]
    pub fn judge(&self, sector: u64, found: &[u8], initial: &[u8]) -> Verdict {
        let newest = self.newest[usize::try_from(sector).expect("a disk fits in memory")];
        let also = self.also.get(&sector).map_or(&[][..], Vec::as_slice);
        let allowed = || std::iter::once(newest).chain(also.iter().copied());
        if allowed().any(|content| self.is(content, sector, found, initial)) {
            return Verdict::Fine;
        }
        match allowed().any(|content| content == Content::Initial) {
            true => Verdict::Unexpected,
            false => Verdict::Missing(newest),
        }
    }

    fn is(&self, content: Content, sector: u64, found: &[u8], initial: &[u8]) -> bool {
        match content {
            Content::Initial => found == initial,
            Content::Anything => true,
            Content::Zero => found == [0; SECTOR],
            Content::Written { boot, n } => self
                .seed(boot)
                .is_some_and(|seed| Stamp { seed, disk: self.disk, n, sector }.matches(found)),
        }
    }
}
