//! The little of qcow2 that the agent reads itself: its header and the names of internal snapshots. Pure reading,
//! nothing is locked.
//!
//! A running QEMU may write meanwhile; every number is bounded before it is used.

use std::io::{self, Read, Seek, SeekFrom};

use crate::ports::{BackingName, ImageHeader};
use crate::spec::Bytes;

const MAGIC: &[u8; 4] = b"QFI\xfb";
/// Version 2 ends here; all that is needed lies before.
const HEADER: usize = 72;
/// Version 3 has at least this much.
pub(super) const LONG_HEADER: usize = 104;
/// The feature of an image whose data lie in another file.
const DATA_FILE: u64 = 1 << 2;
/// The feature of an image that QEMU opens for reading only: damaged, or sealed.
const CORRUPT: u64 = 1 << 1;
/// Where the features stand without which an image must not be opened.
const INCOMPATIBLE: usize = 72;
/// The extension that names the backing file's format.
const BACKING_FORMAT: u32 = 0xe279_2aca;
const MOST_EXTENSIONS: usize = 64;
const SNAPSHOT_HEADER: usize = 40;
/// QEMU's own limits.
const MOST_SNAPSHOTS: u32 = 65_536;
const MOST_EXTRA_BYTES: u32 = 1024;
const MOST_BACKING_BYTES: u32 = 1023;

/// Names of the internal snapshots; a snapshot without a name is told by its id.
pub(super) fn snapshot_names(image: &mut (impl Read + Seek)) -> io::Result<Vec<String>> {
    let mut header = [0; HEADER];
    image.seek(SeekFrom::Start(0))?;
    image.read_exact(&mut header).map_err(|_| broken("it is too short for a qcow2 image"))?;
    if &header[..4] != MAGIC {
        return Err(broken("it is no qcow2 image"));
    }
    let count = u32_at(&header, 60);
    if count == 0 {
        return Ok(Vec::new());
    }
    if count > MOST_SNAPSHOTS {
        return Err(broken("its number of snapshots is beyond all bounds"));
    }
    image.seek(SeekFrom::Start(u64_at(&header, 64)))?;
    (0..count).map(|_| next_name(image)).collect()
}

/// The name of the backing file as it is written in the header; none without one, and of what is no qcow2 image.
pub(super) fn backing_file(image: &mut (impl Read + Seek)) -> io::Result<Option<String>> {
    let mut header = Vec::with_capacity(HEADER);
    image.seek(SeekFrom::Start(0))?;
    image.take(HEADER as u64).read_to_end(&mut header)?;
    if header.len() < HEADER || &header[..4] != MAGIC {
        return Ok(None);
    }
    let (offset, size) = (u64_at(&header, 8), u32_at(&header, 16));
    if offset == 0 || size == 0 {
        return Ok(None);
    }
    if size > MOST_BACKING_BYTES {
        return Err(broken("the name of its backing file is beyond all bounds"));
    }
    let mut name = vec![0; size as usize];
    image.seek(SeekFrom::Start(offset))?;
    image.read_exact(&mut name).map_err(|_| broken("the name of its backing file is cut off"))?;
    Ok(Some(String::from_utf8_lossy(&name).into_owned()))
}

/// Where a header of which this is the beginning has its incompatible features, and those of a sealed image; none of what
/// is no qcow2 image of version 3.
pub(super) fn sealed_features(header: &[u8]) -> Option<(u64, [u8; 8])> {
    let is_long = header.len() >= LONG_HEADER && &header[..4] == MAGIC && u32_at(header, 4) >= 3;
    let sealed = || (u64_at(header, INCOMPATIBLE) | CORRUPT).to_be_bytes();
    is_long.then(|| (INCOMPATIBLE as u64, sealed()))
}

/// What the header says; none of what is no qcow2 image.
pub(super) fn header(image: &mut (impl Read + Seek)) -> io::Result<Option<ImageHeader>> {
    let mut header = Vec::with_capacity(LONG_HEADER);
    image.seek(SeekFrom::Start(0))?;
    image.by_ref().take(LONG_HEADER as u64).read_to_end(&mut header)?;
    if header.len() < HEADER || &header[..4] != MAGIC {
        return Ok(None);
    }
    let long = u32_at(&header, 4) >= 3 && header.len() == LONG_HEADER;
    let extensions = if long { u64::from(u32_at(&header, 100)) } else { HEADER as u64 };
    let incompatible = if long { u64_at(&header, INCOMPATIBLE) } else { 0 };
    let backing = match backing_file(image)? {
        Some(name) => Some(BackingName { name, format: backing_format(image, extensions)? }),
        None => None,
    };
    Ok(Some(ImageHeader {
        virtual_size: Bytes(u64_at(&header, 24)),
        backing,
        has_data_file: incompatible & DATA_FILE != 0,
        is_encrypted: u32_at(&header, 32) != 0,
        is_sealed: incompatible & CORRUPT != 0,
    }))
}

/// The format of the backing file, where an extension of the header says it.
fn backing_format(image: &mut (impl Read + Seek), at: u64) -> io::Result<Option<String>> {
    image.seek(SeekFrom::Start(at))?;
    for _ in 0..MOST_EXTENSIONS {
        let mut head = [0; 8];
        image
            .read_exact(&mut head)
            .map_err(|_| broken("the extensions of its header are cut off"))?;
        let (kind, length) = (u32_at(&head, 0), u32_at(&head, 4));
        if kind == 0 {
            break;
        }
        if kind == BACKING_FORMAT && length <= MOST_BACKING_BYTES {
            let mut name = vec![0; length as usize];
            image
                .read_exact(&mut name)
                .map_err(|_| broken("the extensions of its header are cut off"))?;
            return Ok(Some(String::from_utf8_lossy(&name).into_owned()));
        }
        image.seek_relative(i64::from(length.next_multiple_of(8)))?;
    }
    Ok(None)
}

fn next_name(image: &mut (impl Read + Seek)) -> io::Result<String> {
    let mut header = [0; SNAPSHOT_HEADER];
    let cut = |_| broken("its table of snapshots is cut off");
    image.read_exact(&mut header).map_err(cut)?;
    let (id_size, name_size) = (u16_at(&header, 12), u16_at(&header, 14));
    let extra = u32_at(&header, 36);
    if extra > MOST_EXTRA_BYTES {
        return Err(broken("its table of snapshots is damaged"));
    }
    let mut text = vec![0; extra as usize + usize::from(id_size) + usize::from(name_size)];
    image.read_exact(&mut text).map_err(cut)?;
    // Entries begin at multiples of eight.
    let padding = (SNAPSHOT_HEADER + text.len()).next_multiple_of(8) - SNAPSHOT_HEADER - text.len();
    image.seek_relative(padding as i64)?;
    let (id, name) = text[extra as usize..].split_at(usize::from(id_size));
    let shown = if name.is_empty() { id } else { name };
    Ok(String::from_utf8_lossy(shown).into_owned())
}

fn broken(text: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[at..at + N]);
    field
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(field(bytes, at))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(field(bytes, at))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(field(bytes, at))
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use proptest::prelude::*;

    use super::*;

    fn entry(id: &str, name: &str, extra: u32) -> Vec<u8> {
        let mut entry = vec![0; SNAPSHOT_HEADER];
        entry[12..14].copy_from_slice(&(id.len() as u16).to_be_bytes());
        entry[14..16].copy_from_slice(&(name.len() as u16).to_be_bytes());
        entry[36..40].copy_from_slice(&extra.to_be_bytes());
        entry.resize(SNAPSHOT_HEADER + extra as usize, 0xee);
        entry.extend(id.bytes().chain(name.bytes()));
        entry.resize(entry.len().next_multiple_of(8), 0);
        entry
    }

    fn image(entries: &[Vec<u8>], count: u32) -> Cursor<Vec<u8>> {
        let mut image = vec![0; 1024];
        image[..4].copy_from_slice(MAGIC);
        image[60..64].copy_from_slice(&count.to_be_bytes());
        image[64..72].copy_from_slice(&1024_u64.to_be_bytes());
        image.extend(entries.concat());
        Cursor::new(image)
    }

    #[test]
    fn a_backing_file_is_read_by_its_name() {
        let mut overlay = image(&[], 0).into_inner();
        overlay[8..16].copy_from_slice(&512_u64.to_be_bytes());
        overlay[16..20].copy_from_slice(&9_u32.to_be_bytes());
        overlay[512..521].copy_from_slice(b"base.qcow");
        let read = |bytes: &[u8]| backing_file(&mut Cursor::new(bytes.to_vec()));
        assert_eq!(read(&overlay).ok(), Some(Some("base.qcow".to_owned())));
        assert_eq!(read(&image(&[], 0).into_inner()).ok(), Some(None));
        assert_eq!(read(b"no image").ok(), Some(None));
        overlay[16..20].copy_from_slice(&5000_u32.to_be_bytes());
        assert!(read(&overlay).is_err());
    }

    #[test]
    fn a_header_says_what_a_guest_sees_and_what_lies_below() {
        let mut bytes = image(&[], 0).into_inner();
        bytes[4..8].copy_from_slice(&3_u32.to_be_bytes());
        bytes[8..16].copy_from_slice(&512_u64.to_be_bytes());
        bytes[16..20].copy_from_slice(&4_u32.to_be_bytes());
        bytes[24..32].copy_from_slice(&(4_u64 << 30).to_be_bytes());
        bytes[100..104].copy_from_slice(&112_u32.to_be_bytes());
        let extension = |kind: u32, text: &[u8]| {
            let mut bytes = [kind.to_be_bytes(), (text.len() as u32).to_be_bytes()].concat();
            bytes.extend(text);
            bytes.resize(bytes.len().next_multiple_of(8), 0);
            bytes
        };
        let extensions = [extension(0x6803_f857, b"names"), extension(BACKING_FORMAT, b"raw")];
        let extensions = extensions.concat();
        bytes[112..112 + extensions.len()].copy_from_slice(&extensions);
        bytes[512..516].copy_from_slice(b"base");
        let read = |bytes: &[u8]| header(&mut Cursor::new(bytes.to_vec())).expect("readable");
        let seen = read(&bytes).expect("a header");
        let backing = BackingName { name: "base".into(), format: Some("raw".into()) };
        assert_eq!(seen.backing, Some(backing));
        assert_eq!(seen.virtual_size, Bytes(4 << 30));
        assert!(!seen.has_data_file && !seen.is_encrypted);
        bytes[79] = 4;
        bytes[35] = 2;
        let seen = read(&bytes).expect("a header");
        assert!(seen.has_data_file && seen.is_encrypted);
        assert_eq!(read(b"no image"), None);

        assert!(!seen.is_sealed);
        let (at, features) = sealed_features(&bytes).expect("a header of version 3");
        bytes[at as usize..at as usize + 8].copy_from_slice(&features);
        let sealed = read(&bytes).expect("a header");
        assert_eq!(sealed, ImageHeader { is_sealed: true, ..seen });
        assert_eq!(sealed_features(&bytes), Some((at, features)), "once is enough");
        bytes[7] = 2;
        assert_eq!((sealed_features(&bytes), sealed_features(b"QFI\xfb")), (None, None));
    }

    #[test]
    fn snapshots_are_read_by_name() {
        let entries = [entry("1", "before-upgrade", 16), entry("2", "", 24), entry("33", "ü", 0)];
        let names = snapshot_names(&mut image(&entries, 3)).ok();
        assert_eq!(names, Some(vec!["before-upgrade".into(), "2".into(), "ü".into()]));
        assert_eq!(snapshot_names(&mut image(&[], 0)).ok(), Some(vec![]));
    }

    #[test]
    fn what_is_cut_off_or_absurd_is_an_error() {
        assert!(snapshot_names(&mut Cursor::new(b"QFI\xfb".to_vec())).is_err());
        assert!(snapshot_names(&mut Cursor::new(vec![0; 100])).is_err());
        assert!(snapshot_names(&mut image(&[entry("1", "a", 0)], 2)).is_err());
        assert!(snapshot_names(&mut image(&[entry("1", "a", 0)], u32::MAX)).is_err());
        let mut huge = entry("1", "a", 0);
        huge[36..40].copy_from_slice(&u32::MAX.to_be_bytes());
        assert!(snapshot_names(&mut image(&[huge], 1)).is_err());
    }

    proptest! {
        #[test]
        fn no_content_makes_it_panic(count: u32, offset: u64, rest in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut bytes = image(&[rest], count).into_inner();
            bytes[64..72].copy_from_slice(&offset.to_be_bytes());
            let _ = header(&mut Cursor::new(bytes.clone()));
            let _ = snapshot_names(&mut Cursor::new(bytes));
        }
    }
}
