//! The content of one written sector: who wrote it, when in the stream, where, a checksum, and a
//! filling that follows from these.
//!
//! Layout, little endian: 0 magic, 4 crc32 of bytes 8 to 511, 8 seed, 16 number of the operation,
//! 24 sector, 32 letter of the disk (7 zero bytes after it), 40 filling.

use super::{Disk, SECTOR, mix};

const MAGIC: [u8; 4] = *b"VFbk";
const FILL_FROM: usize = 40;

/// Identity of one written sector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// Seed of the boot that wrote it.
    pub seed: u64,
    /// Disk it was meant for.
    pub disk: Disk,
    /// Number of the operation in that boot's stream for the disk.
    pub n: u64,
    /// Sector it was meant for.
    pub sector: u64,
}

impl Stamp {
    /// Writes the sector's whole content.
    pub fn fill(&self, out: &mut [u8]) {
        debug_assert_eq!(out.len(), SECTOR);
        out[8..16].copy_from_slice(&self.seed.to_le_bytes());
        out[16..24].copy_from_slice(&self.n.to_le_bytes());
        out[24..32].copy_from_slice(&self.sector.to_le_bytes());
        out[32..40].copy_from_slice(&u64::from(self.disk.letter()).to_le_bytes());
        let mut word = mix(mix(self.seed ^ self.n.rotate_left(20)) ^ self.sector) | 1;
        for chunk in out[FILL_FROM..].chunks_exact_mut(8) {
            word ^= word << 13;
            word ^= word >> 7;
            word ^= word << 17;
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        let crc = crc32fast::hash(&out[8..]);
        out[..4].copy_from_slice(&MAGIC);
        out[4..8].copy_from_slice(&crc.to_le_bytes());
    }

    /// Is this sector exactly what `fill` makes?
    #[must_use]
    pub fn matches(&self, found: &[u8]) -> bool {
        if found.len() != SECTOR || found[..4] != MAGIC || found[16..24] != self.n.to_le_bytes() {
            return false;
        }
        let mut want = [0; SECTOR];
        self.fill(&mut want);
        want == found
    }

    /// The stamp a sector claims, if its checksum holds; to say in a report what was found.
    #[must_use]
    pub fn read(found: &[u8]) -> Option<Stamp> {
        let word = |at: usize| Some(u64::from_le_bytes(found.get(at..at + 8)?.try_into().ok()?));
        if found.len() != SECTOR || found[..4] != MAGIC {
            return None;
        }
        if crc32fast::hash(&found[8..]).to_le_bytes() != found[4..8] {
            return None;
        }
        let letter = u8::try_from(word(32)?).ok()?;
        let disk = Disk::parse(&format!("vd{}", char::from(letter)))?;
        Some(Stamp { seed: word(8)?, disk, n: word(16)?, sector: word(24)? })
    }
}

/// Fills a buffer of whole sectors that will be written from `first` on.
pub fn fill_range(seed: u64, disk: Disk, n: u64, first: u64, out: &mut [u8]) {
    for (sector, chunk) in (first..).zip(out.chunks_exact_mut(SECTOR)) {
        Stamp { seed, disk, n, sector }.fill(chunk);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_reads_back_and_damage_is_seen() {
        let stamp = Stamp { seed: 7, disk: Disk::VDB, n: 41, sector: 99 };
        let mut block = [0; SECTOR];
        stamp.fill(&mut block);
        assert!(stamp.matches(&block));
        assert_eq!(Stamp::read(&block), Some(stamp));
        for at in 0..SECTOR {
            let mut damaged = block;
            damaged[at] ^= 1;
            assert!(!stamp.matches(&damaged), "byte {at}");
            assert_eq!(Stamp::read(&damaged), None, "byte {at}");
        }
    }
}
