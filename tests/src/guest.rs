//! The guest's workload, shared by the program that runs in the guest and by the verifier: both
//! compute the same operations and the same block contents from (seed, disk, number).

pub mod acks;
pub mod block;
pub mod image;
pub mod model;
pub mod ops;
pub mod verify;

/// Bytes in a sector: the unit of every operation and of every check.
pub const SECTOR: usize = 512;

/// Sectors at the start of the first disk that hold the partition table and the root file system.
/// The writer writes there too, but only the bytes it has just read.
pub const ROOT_SECTORS: u64 = 33 * 2048;

/// The target name of a guest's disk: `vda` holds the root file system, the others data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Disk(u8);

impl Disk {
    /// The root disk.
    pub const VDA: Disk = Disk(b'a');
    /// The data disk.
    pub const VDB: Disk = Disk(b'b');
    /// A disk that only some guests have, and leave alone.
    pub const VDC: Disk = Disk(b'c');

    /// Reads `vda` to `vdz`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Disk> {
        match text.as_bytes() {
            [b'v', b'd', letter @ b'a'..=b'z'] => Some(Disk(*letter)),
            _ => None,
        }
    }

    /// The letter that tells it from the others, as stored in blocks.
    #[must_use]
    pub fn letter(self) -> u8 {
        self.0
    }

    /// Sectors at its start whose content never changes.
    #[must_use]
    pub fn kept_sectors(self) -> u64 {
        if self == Disk::VDA { ROOT_SECTORS } else { 0 }
    }
}

impl std::fmt::Display for Disk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "vd{}", char::from(self.0))
    }
}

/// One step of SplitMix64: small, and good enough to spread operations and fill blocks.
#[must_use]
pub(crate) fn mix(state: u64) -> u64 {
    let mut z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
