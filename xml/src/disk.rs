//! What one `<disk>` of a domain says, as plain facts. Reading lives in `disk/read.rs`; nothing
//! here decides what may be done with a disk.

mod read;
mod source;

pub use source::{Host, Source};

pub(crate) use read::{read_auths, read_disk};
pub(crate) use source::read_hosts;

use crate::document::ElementId;
use crate::domain::DomainXml;

/// One `<disk>` below `<domain>/<devices>`.
///
/// Only libvirt's own elements and attributes count: comments, CDATA and elements in a namespace
/// never become facts. Where an element is repeated, the first one counts, as in libvirt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// `<target dev=>`, the name block jobs go by; empty when the element has none.
    pub target: String,
    /// `<target bus=>`.
    pub bus: Option<String>,
    /// `device=`: what the guest sees. libvirt's default is a disk.
    pub device: DeviceKind,
    /// Where the data are.
    pub source: Source,
    /// `<driver>`; all defaults when the element is missing.
    pub driver: Driver,
    /// The layers below the top image, in order, as far as `<backingStore>` tells.
    pub backing_chain: Vec<BackingLayer>,
    /// Whether there is a `<backingStore>` at all, that is, whether the chain was looked at.
    pub backing_known: bool,
    /// Whether the chain ends in an empty `<backingStore/>`, that is, nothing lies below it.
    pub backing_complete: bool,
    /// A block job that is active on the disk.
    pub mirror: Option<Mirror>,
    /// `<encryption>` of the top image.
    pub encryption: Option<Encryption>,
    /// Every `<auth>` of the disk; two of them make libvirt fail.
    pub auths: Vec<Auth>,
    /// `<shareable/>`: other guests write the image too.
    pub shareable: bool,
    /// `<transient/>`: libvirt throws the changes away at shutdown.
    pub transient: bool,
    /// `<readonly/>`.
    pub readonly: bool,
    /// `<serial>`.
    pub serial: Option<String>,
    /// `<wwn>`.
    pub wwn: Option<String>,
    /// `<alias name=>`, the name of the device inside QEMU.
    pub alias: Option<String>,
    /// `snapshot=` of the disk: how libvirt's snapshots treat it.
    pub snapshot: Option<String>,
    /// `<boot order=>`.
    pub boot_order: Option<String>,
    /// `<driver><iothreads>`: which I/O thread serves which queues.
    pub iothreads: Vec<IothreadMapping>,
    /// `<source index=>`: the number of the top image in names of block nodes.
    pub source_index: Option<String>,
    /// `<slices>` under the source: the disk is a part of the named file.
    pub slices: bool,
    /// `<reservations>` under the source: SCSI persistent reservations.
    pub reservations: bool,
    /// `<dataStore>` under the source: the named image holds only metadata.
    pub data_store: bool,
    /// `fdgroup=` of the source: libvirt was handed open files, the path is only a label.
    pub fd_group: Option<String>,
    pub(crate) element: ElementId,
}

impl Disk {
    /// The element as written, from `<disk` to `</disk>`. `domain` is the one the disk was read
    /// from; for a domain without such an element the text is empty.
    pub fn element_text<'a>(&self, domain: &'a DomainXml) -> &'a str {
        domain.element_text(self)
    }

    /// The credentials of the source. The place under `<disk>` is looked at first.
    pub fn auth(&self) -> Option<&Auth> {
        self.auths.iter().min_by_key(|auth| auth.place == Placement::Source)
    }

    /// Whether any layer is encrypted, said by `<encryption>` or by the old `type='luks'`.
    pub fn is_encrypted(&self) -> bool {
        self.encryption.is_some()
            || self.driver.format.as_deref() == Some("luks")
            || self.backing_chain.iter().any(|layer| layer.encrypted)
    }
}

/// `device=` of a disk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum DeviceKind {
    /// A hard disk, also when the attribute is missing.
    #[default]
    Disk,
    /// A CD-ROM, also a config drive.
    Cdrom,
    /// A floppy.
    Floppy,
    /// SCSI passthrough of a whole unit.
    Lun,
    /// A value this crate does not know.
    Other(String),
}

/// `<driver>` of a disk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Driver {
    /// `name=`, `qemu` in practice.
    pub name: Option<String>,
    /// `type=`: the format of the top image.
    pub format: Option<String>,
    /// `cache=`.
    pub cache: Option<String>,
    /// `io=`.
    pub io: Option<String>,
    /// `discard=`.
    pub discard: Option<String>,
    /// `detect_zeroes=`.
    pub detect_zeroes: Option<String>,
    /// `error_policy=`.
    pub error_policy: Option<String>,
    /// `rerror_policy=`.
    pub rerror_policy: Option<String>,
    /// `iothread=`.
    pub iothread: Option<String>,
    /// `queues=`.
    pub queues: Option<String>,
    /// Every attribute in order, decoded, also the ones above.
    pub attributes: Vec<(String, String)>,
}

/// One `<iothread>` below `<driver><iothreads>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IothreadMapping {
    /// `id=` of the I/O thread.
    pub id: String,
    /// `id=` of each `<queue>` it serves; empty when libvirt shares them out.
    pub queues: Vec<String>,
}

/// One `<backingStore>` that names an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackingLayer {
    /// `<format type=>`.
    pub format: Option<String>,
    /// Where the layer is.
    pub source: Source,
    /// Whether its source has `<encryption>`.
    pub encrypted: bool,
}

/// `<mirror>`: a block job on the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mirror {
    /// `job=`, `copy` or `active-commit`; old libvirt left it out for copies.
    pub job: Option<String>,
    /// `ready=`: `yes`, `abort` or `pivot`; absent while still copying.
    pub ready: Option<String>,
    /// Format of the destination.
    pub format: Option<String>,
    /// The destination.
    pub source: Source,
}

/// Whether `<auth>` or `<encryption>` stands under `<disk>` or under its `<source>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// Directly under `<disk>`, the older place.
    Disk,
    /// Under `<source>`, accepted since libvirt 3.9.
    Source,
}

/// `<encryption>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encryption {
    /// `format=`: `luks`, `luks2`, `luks-any`, `qcow`.
    pub format: Option<String>,
    /// `engine=`: `qemu` or `librbd`; the default is `qemu`.
    pub engine: Option<String>,
    /// `uuid=` of the first `<secret>`.
    pub secret_uuid: Option<String>,
    /// `usage=` of the first `<secret>`.
    pub secret_usage: Option<String>,
    /// Where it stands.
    pub place: Placement,
}

/// `<auth>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Auth {
    /// Where it stands.
    pub place: Placement,
    /// `username=`.
    pub username: Option<String>,
    /// `type=` of its `<secret>`.
    pub secret_type: Option<String>,
    /// `uuid=` of its `<secret>`.
    pub uuid: Option<String>,
    /// `usage=` of its `<secret>`.
    pub usage: Option<String>,
}
