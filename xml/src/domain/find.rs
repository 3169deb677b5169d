//! Which disk a caller means. Names are compared as wholes, never in part.

use super::DomainXml;
use crate::disk::Disk;

/// Why a reference does not lead to one disk.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FindDiskError {
    /// No disk has this target or source.
    #[error("no disk {reference:?}; there are: {}", list(available))]
    NotFound {
        /// What was asked for.
        reference: String,
        /// Target and source of each disk there is.
        available: Vec<String>,
    },
    /// Several disks have this source (or, in a broken document, this target).
    #[error("{reference:?} is the source of several disks: {}", targets.join(", "))]
    Ambiguous {
        /// What was asked for.
        reference: String,
        /// Targets of the disks it could mean.
        targets: Vec<String>,
    },
}

impl DomainXml {
    /// The disk with this target device or, when there is none, with exactly this source.
    ///
    /// The source is the path of a file or block device, the `name=` of a network source
    /// (`pool/image`, `pool/namespace/image`), or `pool/volume` of a libvirt storage volume.
    ///
    /// # Errors
    /// [`FindDiskError`] when no disk fits or several do.
    pub fn find_disk(&self, reference: &str) -> Result<&Disk, FindDiskError> {
        let mut found: Vec<&Disk> = Vec::new();
        if !reference.is_empty() {
            found.extend(self.disks.iter().filter(|disk| disk.target == reference));
        }
        if found.is_empty() {
            let is_source = |disk: &&Disk| {
                !reference.is_empty() && disk.source.reference().as_deref() == Some(reference)
            };
            found.extend(self.disks.iter().filter(is_source));
        }
        match found.as_slice() {
            [disk] => Ok(disk),
            [] => Err(FindDiskError::NotFound {
                reference: reference.to_owned(),
                available: self.disks.iter().map(describe).collect(),
            }),
            several => Err(FindDiskError::Ambiguous {
                reference: reference.to_owned(),
                targets: several.iter().map(|disk| disk.target.clone()).collect(),
            }),
        }
    }
}

/// Names for a message; a domain may have no disks at all.
pub(super) fn list(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn describe(disk: &Disk) -> String {
    match disk.source.reference() {
        Some(source) => format!("{} ({source})", disk.target),
        None => disk.target.clone(),
    }
}
