//! The destination of a copy as a `<disk>` element: what a caller names, and how the element of
//! the source disk becomes that of the destination. The new `<source>` is written in
//! `destination/source.rs`; which volume to name is the caller's decision.

mod driver;
mod rewrite;
mod source;

use crate::disk::Disk;
use crate::domain::DomainXml;
use rewrite::{Destination, Purpose, rewrite};

/// The volume a disk is copied to.
///
/// Values are plain text; they are escaped when written. The caller has checked them with
/// [`is_representable`](crate::is_representable).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DestinationSource {
    /// An RBD image.
    Rbd {
        /// `pool/image` or `pool/namespace/image`.
        name: String,
        /// Monitors; without any, librados asks its ceph.conf.
        hosts: Vec<DestinationHost>,
        /// Ceph user without `client.`; no `<auth>` is written when there is none.
        user: Option<String>,
        /// Uuid of the libvirt secret with the user's key. libvirt refuses a user without one.
        secret_uuid: Option<String>,
    },
    /// A file.
    File {
        /// Absolute path.
        path: String,
    },
}

/// One monitor of an RBD destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DestinationHost {
    /// Host name or address; an IPv6 address without brackets.
    pub name: String,
    /// Port, or none to leave it to Ceph.
    pub port: Option<u16>,
}

/// Format of the destination image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DestinationFormat {
    /// `raw`.
    Raw,
    /// `qcow2`.
    Qcow2,
}

impl DestinationFormat {
    /// The name libvirt and QEMU know the format by.
    pub fn as_str(self) -> &'static str {
        match self {
            DestinationFormat::Raw => "raw",
            DestinationFormat::Qcow2 => "qcow2",
        }
    }
}

/// Encryption of the destination image, written under its `<source>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DestinationEncryption {
    /// Header format.
    pub format: EncryptionFormat,
    /// Who encrypts.
    pub engine: EncryptionEngine,
    /// Uuid of the libvirt secret with the passphrase.
    pub secret_uuid: String,
}

/// Header format of an encrypted destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EncryptionFormat {
    /// LUKS version 1.
    Luks,
    /// LUKS version 2; only librbd knows it.
    Luks2,
}

/// Who encrypts the destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EncryptionEngine {
    /// QEMU, libvirt's default; not written, so that libvirt before 7.9 reads it as well.
    Qemu,
    /// librbd.
    Librbd,
}

/// The `<disk>` element for a block copy of `disk` to `source`.
///
/// Kept as the original bytes: device and snapshot, target, everything under `<driver>` the guest
/// sees, iotune, throttle groups, serial, wwn, vendor, product, boot, blockio, geometry, address
/// and whatever this crate does not know. Left out, because it belongs to the old volume, to the
/// running device or to another way of sharing: source with all its children, backing chain,
/// mirror, credentials and encryption in both places, private data, alias, acpi index, shareable,
/// transient, readonly, and comments. Namespace prefixes declared outside the disk are declared on it.
///
/// libvirt takes only type, driver type and source from it (`virDomainBlockCopy`); the rest is
/// there so that the element can be shown and compared.
///
/// # Panics
/// When `disk` was not read from `domain`.
pub fn build_destination(
    domain: &DomainXml,
    disk: &Disk,
    source: &DestinationSource,
    format: DestinationFormat,
) -> String {
    let destination = Destination { source, format, encryption: None };
    rewrite(domain, disk, &destination, Purpose::BlockCopy)
}

/// As [`build_destination`], for a destination with an encryption header of its own.
///
/// # Panics
/// When `disk` was not read from `domain`.
pub fn build_encrypted_destination(
    domain: &DomainXml,
    disk: &Disk,
    source: &DestinationSource,
    format: DestinationFormat,
    encryption: &DestinationEncryption,
) -> String {
    let destination = Destination { source, format, encryption: Some(encryption) };
    rewrite(domain, disk, &destination, Purpose::BlockCopy)
}

/// The element of a disk in an inactive configuration, moved to `source`.
pub(crate) fn rewrite_source(
    domain: &DomainXml,
    disk: &Disk,
    source: &DestinationSource,
    format: DestinationFormat,
    encryption: Option<&DestinationEncryption>,
) -> String {
    let destination = Destination { source, format, encryption };
    rewrite(domain, disk, &destination, Purpose::Configuration)
}
