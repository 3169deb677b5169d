//! Where a volume lives, in the form that plans, journals and ports share.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Everything needed to reach one Ceph pool, without any secret.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RbdPoolAddress {
    /// Monitors in the form of ceph.conf, ports included.
    pub monitors: String,
    /// Ceph user without `client.`; none for clusters without authentication.
    pub user: Option<String>,
    /// The libvirt secret that holds the user's key.
    pub secret_uuid: Option<String>,
    /// A file that holds the key, readable by the agent only.
    pub key_file: Option<PathBuf>,
    /// The Ceph pool.
    pub pool: String,
    /// The namespace inside the pool.
    pub namespace: Option<String>,
}

impl RbdPoolAddress {
    /// `pool/image` or `pool/namespace/image`, the name libvirt and QEMU use.
    pub fn image_path(&self, image: &str) -> String {
        match &self.namespace {
            Some(namespace) => format!("{}/{namespace}/{image}", self.pool),
            None => format!("{}/{image}", self.pool),
        }
    }
}

/// One volume.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum VolumeLocation {
    /// An RBD image.
    Rbd {
        /// The Ceph pool that holds it.
        address: RbdPoolAddress,
        /// The image's name.
        image: String,
    },
    /// A file.
    File {
        /// Its absolute path.
        path: PathBuf,
    },
}

impl VolumeLocation {
    /// The same place under another name (image name or file name).
    pub fn renamed(&self, name: &str) -> Self {
        match self {
            Self::Rbd { address, .. } => {
                Self::Rbd { address: address.clone(), image: name.to_owned() }
            }
            Self::File { path } => Self::File { path: path.with_file_name(name) },
        }
    }

    /// The image's or file's own name.
    pub fn name(&self) -> String {
        match self {
            Self::Rbd { image, .. } => image.clone(),
            Self::File { path } => {
                path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
            }
        }
    }
}

impl fmt::Display for VolumeLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rbd { address, image } => write!(f, "rbd:{}", address.image_path(image)),
            Self::File { path } => write!(f, "{}", path.display()),
        }
    }
}

/// What makes a volume itself, whatever its name: names can be taken over, these cannot.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Identity {
    /// The id of an RBD image.
    Rbd {
        /// As `rbd info` prints it.
        image_id: String,
    },
    /// Device and inode of a file.
    File {
        /// `st_dev`.
        device: u64,
        /// `st_ino`.
        inode: u64,
    },
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rbd { image_id } => write!(f, "image id {image_id}"),
            Self::File { device, inode } => write!(f, "device {device} inode {inode}"),
        }
    }
}

/// The format of a volume's content as QEMU reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VolumeFormat {
    /// No header.
    Raw,
    /// QEMU's copy-on-write format.
    Qcow2,
}

impl VolumeFormat {
    /// QEMU's name of the format.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Qcow2 => "qcow2",
        }
    }
}

impl fmt::Display for VolumeFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
