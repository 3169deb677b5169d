//! libvirt domain XML: facts out, edited text in, everything else untouched.
//!
//! [`Document`] is a strict, non-expanding index over the original text; [`DomainXml`], [`Disk`] and
//! [`StoragePoolXml`] are the facts read from it; [`build_destination`] and the `with_*` methods of [`DomainXml`]
//! produce new text by splicing, so bytes that were not edited are the bytes that came in.
//!
//! ```
//! use volferry_xml::{DestinationFormat, DestinationSource, DomainXml, build_destination};
//!
//! let domain = DomainXml::parse(
//!     "<domain><devices><disk type='network'><driver name='qemu' type='raw' cache='none'/>\
//!      <source protocol='rbd' name='pool/vol-1'/><target dev='vda'/></disk></devices></domain>",
//! )?;
//! let disk = domain.find_disk("pool/vol-1")?;
//! let copy = DestinationSource::File { path: "/srv/a & b/vol-1.qcow2".to_owned() };
//! assert_eq!(
//!     build_destination(&domain, disk, &copy, DestinationFormat::Qcow2),
//!     "<disk type='file'><driver name='qemu' type='qcow2' cache='none'/>\
//!      <source file='/srv/a &amp; b/vol-1.qcow2'/><target dev='vda'/></disk>",
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What must not live here: input or output of any kind, libvirt calls, and policy (which disk may
//! move where). This crate says what the XML says and writes what it is told to write.

#![forbid(unsafe_code)]

mod destination;
mod disk;
mod document;
mod domain;
mod escape;
mod malformed;
mod pool;
mod secret;
mod splice;

pub use destination::{
    DestinationEncryption, DestinationFormat, DestinationHost, DestinationSource, EncryptionEngine,
    EncryptionFormat, build_destination, build_encrypted_destination,
};
pub use disk::{
    Auth, BackingLayer, DeviceKind, Disk, Driver, Encryption, Host, IothreadMapping, Mirror,
    Placement, Source,
};
pub use document::Document;
pub use domain::{DomainXml, EditError, FindDiskError};
pub use escape::is_representable;
pub use malformed::{MalformedRule, MalformedXml};
pub use pool::StoragePoolXml;
pub use secret::SecretXml;
