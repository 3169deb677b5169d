//! The verifier: is every acknowledged write on the final volume, and did nothing else change?

use std::fmt;
use std::io::{self, Read};

use super::acks::Acks;
use super::block::Stamp;
use super::model::{Content, Model, Verdict};
use super::{Disk, SECTOR};

/// One boot of the guest, in order.
#[derive(Debug, Clone)]
pub struct Boot {
    /// Its seed.
    pub seed: u64,
    /// What it was promised.
    pub acks: Acks,
    /// QEMU was killed: only what a flush covers is certain.
    pub killed: bool,
}

/// The outcome for one or more disks.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Report {
    /// Acknowledged operations.
    pub acknowledged: u64,
    /// Sectors compared.
    pub checked: u64,
    /// Sectors without the content of an acknowledged operation.
    pub missing: u64,
    /// Sectors nobody wrote that changed all the same, sizes that differ included.
    pub unexpected: u64,
    /// The first faults, in words.
    pub faults: Vec<String>,
}

const FAULTS_NAMED: usize = 10;

impl Report {
    /// Nothing missing, nothing changed by anybody else, and something was checked.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.missing == 0 && self.unexpected == 0 && self.checked > 0
    }

    /// Adds another disk's outcome.
    pub fn add(&mut self, other: Report) {
        self.acknowledged += other.acknowledged;
        self.checked += other.checked;
        self.missing += other.missing;
        self.unexpected += other.unexpected;
        self.faults.extend(other.faults);
    }

    fn fault(&mut self, text: impl FnOnce() -> String) {
        if self.faults.len() < FAULTS_NAMED {
            self.faults.push(text());
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { acknowledged, checked, missing, unexpected, faults } = self;
        write!(
            f,
            "acknowledged {acknowledged}, checked sectors {checked}, missing {missing}, unexpected {unexpected}"
        )?;
        faults.iter().try_for_each(|fault| write!(f, "\n  {fault}"))
    }
}

/// Checks one disk: the initial image and the final one as byte streams, and its size in bytes.
///
/// # Errors
/// When an image cannot be read.
pub fn verify_disk(
    disk: Disk,
    size: u64,
    mut initial: impl Read,
    mut last: impl Read,
    boots: &[Boot],
) -> io::Result<Report> {
    let sectors = usize::try_from(size / SECTOR as u64).map_err(io::Error::other)?;
    let mut model = Model::new(disk, sectors);
    let mut report = Report::default();
    for boot in boots {
        model.apply_boot(boot.seed, boot.acks.of(disk), boot.killed);
        report.acknowledged += boot.acks.of(disk);
    }
    let (mut before, mut after) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    let mut sector = 0;
    while sector < model.sectors() {
        let left = usize::try_from(model.sectors() - sector).map_err(io::Error::other)?;
        let bytes = before.len().min(left.saturating_mul(SECTOR));
        initial.read_exact(&mut before[..bytes])?;
        last.read_exact(&mut after[..bytes])?;
        for (was, found) in
            before[..bytes].chunks_exact(SECTOR).zip(after[..bytes].chunks_exact(SECTOR))
        {
            judge(&model, disk, sector, found, was, &mut report);
            sector += 1;
        }
    }
    report.checked = model.sectors();
    if last.read(&mut after)? != 0 {
        report.unexpected += 1;
        report.fault(|| format!("{disk}: the final volume is larger than the initial image"));
    }
    Ok(report)
}

fn judge(model: &Model, disk: Disk, sector: u64, found: &[u8], was: &[u8], report: &mut Report) {
    match model.judge(sector, found, was) {
        Verdict::Fine => {}
        Verdict::Missing(content) => {
            report.missing += 1;
            report.fault(|| {
                format!(
                    "{disk} sector {sector}: {} is missing, found {}",
                    expected(model, content),
                    describe(found, was)
                )
            });
        }
        Verdict::Unexpected => {
            report.unexpected += 1;
            report.fault(|| {
                format!(
                    "{disk} sector {sector}: changed without a write, found {}",
                    describe(found, was)
                )
            });
        }
    }
}

fn expected(model: &Model, content: Content) -> String {
    match content {
        Content::Initial => "the initial content".into(),
        Content::Zero => "zeros".into(),
        Content::Anything => "anything".into(),
        Content::Written { boot, n } => {
            format!("write {n} of boot {boot} (seed {})", model.seed(boot).unwrap_or_default())
        }
    }
}

fn describe(found: &[u8], was: &[u8]) -> String {
    if found == was {
        return "the initial content".into();
    }
    if found.iter().all(|b| *b == 0) {
        return "zeros".into();
    }
    match Stamp::read(found) {
        Some(Stamp { seed, disk, n, sector }) => {
            format!("write {n} of seed {seed} for {disk} sector {sector}")
        }
        None => "unknown bytes".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::image::MemoryDisk;
    use crate::guest::mix;
    use crate::guest::ops::{Kind, op};

    const SIZE: usize = 40 << 20;

    fn initial(disk: Disk) -> Vec<u8> {
        let mut bytes = vec![0; SIZE];
        // Every other 64 KiB has content of its own.
        for (i, chunk) in bytes.chunks_mut(64 << 10).enumerate().filter(|(i, _)| i % 2 == 0) {
            chunk.fill(
                u8::try_from(mix(i as u64 ^ u64::from(disk.letter())) % 255).expect("a byte") + 1,
            );
        }
        bytes
    }

    fn acked(disk: Disk, count: u64) -> Acks {
        Acks { counts: [(disk, count)].into(), ..Acks::default() }
    }

    fn boot(disk: Disk, seed: u64, count: u64) -> Boot {
        Boot { seed, acks: acked(disk, count), killed: false }
    }

    /// A disk after two boots, the second with an operation in flight that happened.
    fn written(disk: Disk) -> (MemoryDisk, Vec<Boot>) {
        let mut image = MemoryDisk::new(disk, initial(disk));
        (0..150).for_each(|n| image.run(1, n));
        (0..61).for_each(|n| image.run(2, n));
        (image, vec![boot(disk, 1, 150), boot(disk, 2, 60)])
    }

    fn check(disk: Disk, image: &MemoryDisk, boots: &[Boot]) -> Report {
        let size = SIZE as u64;
        verify_disk(disk, size, &initial(disk)[..], &image.bytes[..], boots).expect("in memory")
    }

    #[test]
    fn a_faithful_disk_passes() {
        for disk in [Disk::VDA, Disk::VDB] {
            let (image, boots) = written(disk);
            let report = check(disk, &image, &boots);
            assert!(report.is_good(), "{report}");
            assert_eq!((report.acknowledged, report.checked), (210, (SIZE / SECTOR) as u64));
        }
    }

    #[test]
    fn a_damaged_acknowledged_block_is_named() {
        let (mut image, boots) = written(Disk::VDB);
        let at = image
            .bytes
            .chunks(SECTOR)
            .position(|s| Stamp::read(s).is_some_and(|s| s.seed == 1))
            .expect("written");
        image.bytes[at * SECTOR + 300] ^= 0x10;
        let report = check(Disk::VDB, &image, &boots);
        assert_eq!((report.missing, report.is_good()), (1, false));
        assert!(report.faults[0].contains(&format!("vdb sector {at}: write ")), "{report}");
    }

    #[test]
    fn a_changed_unwritten_block_is_found() {
        for (disk, at) in [(Disk::VDA, 5000), (Disk::VDB, 0)] {
            let (mut image, boots) = written(disk);
            let before = initial(disk);
            let quiet = |s: &usize| {
                let range = s * SECTOR..(s + 1) * SECTOR;
                image.bytes[range.clone()] == before[range] && before[s * SECTOR] != 0
            };
            let at = (at..SIZE / SECTOR).find(quiet).expect("an untouched sector");
            image.bytes[at * SECTOR] ^= 1;
            let report = check(disk, &image, &boots);
            assert_eq!((report.missing, report.unexpected), (0, 1), "{report}");
        }
    }

    #[test]
    fn a_lost_write_is_found() {
        let disk = Disk::VDB;
        let mut image = MemoryDisk::new(disk, initial(disk));
        let lost =
            (1..100).rev().find(|n| op(1, disk, *n, (SIZE / SECTOR) as u64).kind == Kind::Write);
        (0..100).filter(|n| Some(*n) != lost).for_each(|n| image.run(1, n));
        assert!(!check(disk, &image, &[boot(disk, 1, 100)]).is_good());
    }

    #[test]
    fn a_killed_qemu_may_lose_what_no_flush_covered() {
        let disk = Disk::VDB;
        let sectors = (SIZE / SECTOR) as u64;
        let flush =
            (40..200).find(|n| op(1, disk, *n, sectors).kind == Kind::Flush).expect("a flush");
        let count =
            (flush + 1..).find(|n| op(1, disk, *n, sectors).kind == Kind::Write).expect("a write")
                + 1;
        let mut image = MemoryDisk::new(disk, initial(disk));
        (0..=flush).for_each(|n| image.run(1, n));
        let mut boots = [boot(disk, 1, count)];
        assert!(!check(disk, &image, &boots).is_good());
        boots[0].killed = true;
        assert!(check(disk, &image, &boots).is_good());
    }
}
