//! Edits of a domain's text. Each one touches the bytes of a single `<disk>`, and its result is
//! parsed again before it is handed out.

use std::ops::Range;

use super::DomainXml;
use super::find::list;
use crate::destination::{
    DestinationEncryption, DestinationFormat, DestinationSource, rewrite_source,
};
use crate::disk::Disk;
use crate::malformed::MalformedXml;
use crate::splice::Splices;

/// Why an edit was not made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// No disk has this target.
    #[error("no disk with target {target:?}; there are: {}", list(available))]
    TargetNotFound {
        /// The target asked for.
        target: String,
        /// The targets there are.
        available: Vec<String>,
    },
    /// Several disks have this target, which libvirt would refuse.
    #[error("{count} disks have the target {target:?}")]
    AmbiguousTarget {
        /// The target asked for.
        target: String,
        /// How many disks have it.
        count: usize,
    },
    /// The new text is not one `<disk>` element and nothing else.
    #[error("the replacement for disk {target:?} is not exactly one <disk> element")]
    NotOneDisk {
        /// Target of the disk that was to be replaced.
        target: String,
    },
    /// The new element has another target: the edit would rename the disk.
    #[error("the replacement for disk {target:?} has target {found:?}")]
    TargetChanged {
        /// Target of the disk that was to be replaced.
        target: String,
        /// Target of the replacement.
        found: String,
    },
    /// The document would not be well-formed with the new text in it.
    #[error("the edited domain would be unreadable: {0}")]
    Malformed(#[from] MalformedXml),
}

impl DomainXml {
    /// The domain's text with the whole element of disk `target` replaced by `new_disk_xml`;
    /// everything else stays byte for byte.
    ///
    /// # Errors
    /// [`EditError`] when there is not exactly one such disk, or when `new_disk_xml` is not one
    /// well-formed `<disk>` element with the same target. White space around it is left out.
    pub fn with_disk_replaced(
        &self,
        target: &str,
        new_disk_xml: &str,
    ) -> Result<String, EditError> {
        let disk = self.disk_by_target(target)?;
        let new_disk_xml = new_disk_xml.trim_matches([' ', '\t', '\r', '\n']);
        let span = self.span(disk);
        let mut splices = Splices::default();
        splices.replace(span.clone(), new_disk_xml);
        let edited = splices.apply(self.text(), 0..self.text().len());
        self.check(disk, &edited, span.start..span.start + new_disk_xml.len())?;
        Ok(edited)
    }

    /// The domain's text with disk `target` moved to `destination`: raw on RBD, qcow2 in a file.
    ///
    /// This repairs an inactive configuration that still names the old volume. Source, driver
    /// type, credentials, encryption and backing chain are replaced; alias, address, comments and
    /// everything the guest sees stay as they are.
    ///
    /// # Errors
    /// [`EditError`] when there is not exactly one such disk, or when the destination holds
    /// characters XML cannot carry.
    pub fn with_disk_source_replaced(
        &self,
        target: &str,
        destination: &DestinationSource,
    ) -> Result<String, EditError> {
        let format = match destination {
            DestinationSource::Rbd { .. } => DestinationFormat::Raw,
            DestinationSource::File { .. } => DestinationFormat::Qcow2,
        };
        self.with_disk_volume_replaced(target, destination, format, None)
    }

    /// As [`with_disk_source_replaced`](Self::with_disk_source_replaced), with a format other than
    /// the usual one of the destination, or with encryption.
    ///
    /// # Errors
    /// The same.
    pub fn with_disk_volume_replaced(
        &self,
        target: &str,
        destination: &DestinationSource,
        format: DestinationFormat,
        encryption: Option<&DestinationEncryption>,
    ) -> Result<String, EditError> {
        let disk = self.disk_by_target(target)?;
        let element = rewrite_source(self, disk, destination, format, encryption);
        self.with_disk_replaced(target, &element)
    }

    fn disk_by_target(&self, target: &str) -> Result<&Disk, EditError> {
        let found: Vec<&Disk> = self.disks.iter().filter(|disk| disk.target == target).collect();
        match found.as_slice() {
            [disk] if !target.is_empty() => Ok(disk),
            [] | [_] => Err(EditError::TargetNotFound {
                target: target.to_owned(),
                available: self.disks.iter().map(|disk| disk.target.clone()).collect(),
            }),
            several => {
                Err(EditError::AmbiguousTarget { target: target.to_owned(), count: several.len() })
            }
        }
    }

    /// The edited text must be a domain with the same disks, and the new element must fill `span`.
    fn check(&self, disk: &Disk, edited: &str, span: Range<usize>) -> Result<(), EditError> {
        let edited = DomainXml::parse(edited)?;
        let target = disk.target.clone();
        let Some(new_disk) = edited.disks.iter().find(|new| edited.span(new) == span) else {
            return Err(EditError::NotOneDisk { target });
        };
        if new_disk.target != target {
            return Err(EditError::TargetChanged { target, found: new_disk.target.clone() });
        }
        Ok(())
    }
}
