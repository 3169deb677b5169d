//! PURE: one volume under two names, told by what was seen: the cluster's id where monitor lists have nothing in
//! common, device and inode where paths lead to one file.

use super::refusal::{Refusal, RefusalCode};
use crate::facts::{ClusterIds, DestinationFacts, SourceFacts};
use crate::spec::VolumeLocation;

/// Refuses a destination that is the source.
pub fn check(
    source: (&VolumeLocation, &SourceFacts),
    destination: (&VolumeLocation, &DestinationFacts),
    clusters: Option<&ClusterIds>,
) -> Result<(), Refusal> {
    let why = match (source, destination) {
        (
            (VolumeLocation::Rbd { address, image }, _),
            (VolumeLocation::Rbd { address: other, image: other_image }, _),
        ) => clusters
            .filter(|clusters| clusters.source == clusters.destination)
            .filter(|_| address.image_path(image) == other.image_path(other_image))
            .map(|clusters| {
                format!(
                    "the monitors {} and {} are of one cluster, {}",
                    address.monitors, other.monitors, clusters.source
                )
            }),
        ((_, source), (_, DestinationFacts::File { existing: Some(found), .. })) => {
            (source.identity() == *found).then(|| format!("both paths lead to one file ({found})"))
        }
        _ => None,
    };
    let Some(why) = why else { return Ok(()) };
    let (from, to) = (source.0, destination.0);
    Err(Refusal::new(
        RefusalCode::SameVolume,
        format!("the destination {to} is the source {from} itself: {why}"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::{FileObservation, FileOwner, FolderObservation};
    use crate::spec::{Bytes, Identity};

    fn identity(inode: u64) -> Identity {
        Identity::File { device: 40, inode }
    }

    fn file(inode: u64) -> SourceFacts {
        SourceFacts::File(FileObservation {
            link: false,
            identity: identity(inode),
            length: Bytes(0),
            allocated: Bytes(0),
            owner: FileOwner { uid: 0, gid: 0, mode: 0o600 },
            internal_snapshots: vec![],
            header: None,
        })
    }

    fn folder(existing: Option<Identity>) -> DestinationFacts {
        let folder = FolderObservation { available: Bytes(1), total: Bytes(1), mounted: true };
        DestinationFacts::File { existing, folder, access: None }
    }

    #[test]
    fn a_file_reached_by_two_paths_is_one_volume() {
        let from = VolumeLocation::File { path: "/mnt/a/v.qcow2".into() };
        let to = VolumeLocation::File { path: "/srv/a/v.qcow2".into() };
        let decide = |existing| check((&from, &file(7)), (&to, &folder(existing)), None);
        let refusal = decide(Some(identity(7))).expect_err("one file");
        assert_eq!(refusal.code, RefusalCode::SameVolume);
        assert!(refusal.message.contains("device 40 inode 7"), "{refusal}");
        assert_eq!(decide(Some(identity(8))), Ok(()));
        assert_eq!(decide(None), Ok(()));
    }
}
