//! libvirt domain XML: facts out, edited text in, everything else untouched.
//!
//! [`Document`] is a strict, non-expanding index over the original text; [`DomainXml`] and [`Disk`]
//! are the facts read from it; [`build_destination`] and the `with_*` methods of [`DomainXml`]
//! produce new text by splicing, so bytes that were not edited are the bytes that came in.
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
