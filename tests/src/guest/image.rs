//! A disk in memory that obeys the operations; what the guest's disk does, for the verifier's tests.

use super::block::fill_range;
use super::ops::{Kind, op};
use super::{Disk, SECTOR};

/// A simulated disk.
#[derive(Debug, Clone)]
pub struct MemoryDisk {
    disk: Disk,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl MemoryDisk {
    /// A disk with this content.
    #[must_use]
    pub fn new(disk: Disk, bytes: Vec<u8>) -> MemoryDisk {
        assert!(bytes.len().is_multiple_of(SECTOR), "whole sectors");
        MemoryDisk { disk, bytes }
    }

    /// Runs operation `n`. Discards free whole 64 KiB clusters only, as qcow2 does.
    pub fn run(&mut self, seed: u64, n: u64) {
        let op = op(seed, self.disk, n, (self.bytes.len() / SECTOR) as u64);
        let from = usize::try_from(op.sector).expect("in memory") * SECTOR;
        let to = from + usize::try_from(op.count).expect("in memory") * SECTOR;
        match op.kind {
            Kind::Write => fill_range(seed, self.disk, n, op.sector, &mut self.bytes[from..to]),
            Kind::Zero => self.bytes[from..to].fill(0),
            Kind::Discard => {
                const CLUSTER: usize = 64 << 10;
                let (from, to) = (from.next_multiple_of(CLUSTER), to / CLUSTER * CLUSTER);
                if from < to {
                    self.bytes[from..to].fill(0);
                }
            }
            Kind::Rewrite | Kind::Flush => {}
        }
    }
}
