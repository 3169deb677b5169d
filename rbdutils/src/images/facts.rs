//! What one look at an image tells. Values only; no operation changes anything here.

use std::fmt;

use crate::errno::Errno;
use crate::ffi::{ImageHandle, Linked};

/// More than an `rbd_id.NAME` object ever holds: a length of four bytes and the id.
pub(super) const ID_OBJECT_BYTES: usize = 256;

/// The identity of an image, given by RBD when it is made; names come and go.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImageId(String);

impl ImageId {
    /// Takes an id that was recorded before. An id RBD never gave equals no image's.
    pub fn new(id: impl Into<String>) -> Self {
        Self(id.into())
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Reads Ceph's encoding of a string: its length in four bytes, little end first, then itself.
    pub(super) fn decode(content: &[u8]) -> Option<Self> {
        let (length, id) = content.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
        let id = std::str::from_utf8(id.get(..length)?).ok()?;
        (!id.is_empty()).then(|| Self(id.to_owned()))
    }
}

impl fmt::Display for ImageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The feature bits of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Features(u64);

impl Features {
    /// Cloning.
    pub const LAYERING: Self = Self(1);
    /// Striping of its own.
    pub const STRIPING: Self = Self(1 << 1);
    /// One writer at a time.
    pub const EXCLUSIVE_LOCK: Self = Self(1 << 2);
    /// A map of the objects that exist.
    pub const OBJECT_MAP: Self = Self(1 << 3);
    /// Quick differences from the object map.
    pub const FAST_DIFF: Self = Self(1 << 4);
    /// Flattening of snapshots.
    pub const DEEP_FLATTEN: Self = Self(1 << 5);
    /// A journal of all writes.
    pub const JOURNALING: Self = Self(1 << 6);
    /// The data lie in another pool.
    pub const DATA_POOL: Self = Self(1 << 7);

    /// Takes the bits as librbd counts them.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The bits as librbd counts them.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Whether all features of the other are among these.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The features of both.
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// A snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Its number within the pool.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// The size of the image at that time.
    pub size_bytes: u64,
    /// Made by a person; otherwise by a group, mirroring, or kept in the trash because of clones.
    pub by_user: bool,
}

/// An image on the other end of a clone relation. Names as RBD has them, unchecked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkedImage {
    /// Its pool.
    pub pool: String,
    /// Its namespace; empty for the default namespace.
    pub namespace: String,
    /// Its name.
    pub image: String,
    /// Its id.
    pub id: ImageId,
    /// Whether it lies in the trash.
    pub in_trash: bool,
}

impl From<Linked> for LinkedImage {
    fn from(l: Linked) -> Self {
        let (pool, namespace, image, in_trash) = (l.pool, l.namespace, l.image, l.in_trash);
        Self { pool, namespace, image, id: ImageId(l.id), in_trash }
    }
}

impl fmt::Display for LinkedImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/", self.pool)?;
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.image)
    }
}

/// What an image was cloned from and still depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parent {
    /// The image.
    pub image: LinkedImage,
    /// The name of its snapshot.
    pub snapshot: String,
}

/// A client that has the image open for writing. QEMU is one for each disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watcher {
    /// `ip:port/nonce`, the address that fencing (`ceph osd blocklist add`) takes.
    pub address: String,
    /// The client's number.
    pub client: i64,
    /// The number of the watch within the client.
    pub cookie: u64,
}

impl fmt::Display for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (client.{})", self.address, self.client)
    }
}

/// One look at an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageFacts {
    /// Its identity.
    pub id: ImageId,
    /// The size the guest sees.
    pub size_bytes: u64,
    /// The size of its objects.
    pub object_size_bytes: u64,
    /// Its features.
    pub features: Features,
    /// All snapshots, the hidden ones too: each of them keeps the image from being removed.
    pub snapshots: Vec<Snapshot>,
    /// The clones of its snapshots; `None` when the user may not look for them.
    pub children: Option<Vec<LinkedImage>>,
    /// What it was cloned from.
    pub parent: Option<Parent>,
    /// Who has it open for writing.
    pub watchers: Vec<Watcher>,
}

pub(super) fn read(image: &ImageHandle<'_>) -> Result<ImageFacts, Errno> {
    let (size_bytes, object_size_bytes) = image.sizes()?;
    let watcher = |(address, client, cookie)| Watcher { address, client, cookie };
    let parent = match image.parent() {
        Ok((parent, snapshot)) => Some(Parent { image: parent.into(), snapshot }),
        Err(Errno(libc::ENOENT)) => None,
        Err(errno) => return Err(errno),
    };
    let children = match image.children() {
        Ok(children) => Some(children.into_iter().map(LinkedImage::from).collect()),
        Err(Errno(libc::EPERM | libc::EACCES)) => None,
        Err(errno) => return Err(errno),
    };
    let mut snapshots = Vec::new();
    for (id, name, size_bytes) in image.snapshots()? {
        snapshots.push(Snapshot { id, name, size_bytes, by_user: image.is_user_snapshot(id)? });
    }
    Ok(ImageFacts {
        id: ImageId(image.id()?),
        size_bytes,
        object_size_bytes,
        features: Features(image.features()?),
        snapshots,
        children,
        parent,
        watchers: image.watchers()?.into_iter().map(watcher).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_object_is_a_counted_string() {
        assert_eq!(ImageId::decode(b"\x04\x00\x00\x00106a").unwrap().as_str(), "106a");
        for broken in
            [&b""[..], b"\x04\0\0", b"\x04\x00\x00\x00106", b"\0\0\0\0", b"\xff\xff\xff\xffx"]
        {
            assert_eq!(ImageId::decode(broken), None);
        }
    }
}
