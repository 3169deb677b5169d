//! PURE: whether an offline move inside one Ceph cluster is a clone that is made independent after the switch, or a
//! copy; with the reason, which the plan says.

use super::route::Route;
use super::steps::{PlannedEncryption, SourceEncryption};
use crate::facts::{ClusterIds, SourceFacts};
use crate::spec::{HeaderKind, MigrateSpec, VolumeLocation};

/// The way of an offline move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    /// A clone of a snapshot of the source, usable at once, flattened after the switch.
    Clone,
    /// A copy. Why not a clone; none where nobody would expect one.
    Copy(Option<String>),
}

/// Chooses.
pub fn choose(
    spec: &MigrateSpec,
    route: &Route,
    source: &SourceFacts,
    clusters: Option<&ClusterIds>,
    ciphers: (Option<&SourceEncryption>, Option<&PlannedEncryption>),
) -> Way {
    let (
        SourceFacts::Image(image),
        VolumeLocation::Rbd { address: from, .. },
        VolumeLocation::Rbd { address: to, .. },
    ) = (source, &route.source.location, &route.destination.location)
    else {
        return Way::Copy(None);
    };
    // By their ids, whatever monitors are named.
    if clusters.is_none_or(|clusters| clusters.source != clusters.destination) {
        return Way::Copy(None);
    }
    let why = if spec.bandwidth.is_some() {
        Some("what follows a clone cannot be limited")
    } else if from.user != to.user {
        Some("the user of one pool may not be allowed in the other")
    } else if !image.clonable {
        Some(
            "the source does not have the feature layering, without which there are no clones of it",
        )
    } else {
        other_bytes(ciphers.0, ciphers.1)
    };
    match why {
        Some(why) => Way::Copy(Some(format!("copied and not cloned within the cluster: {why}"))),
        None => Way::Clone,
    }
}

/// Why the bytes of the destination are not those of the source; none where they are.
fn other_bytes(
    source: Option<&SourceEncryption>,
    destination: Option<&PlannedEncryption>,
) -> Option<&'static str> {
    match (source, destination) {
        (None, None) => None,
        (Some(source), Some(planned)) if source.header != planned.scheme.header() => {
            Some("the destination gets another header")
        }
        (Some(_), Some(planned)) if planned.rekeyed => {
            Some("the destination gets another passphrase")
        }
        // Releases of librbd differ in how a clone of an image they encrypt is opened and flattened.
        (Some(source), Some(_)) if source.header != HeaderKind::QemuLuks1 => {
            Some("librbd encrypts it")
        }
        (Some(_), Some(_)) => None,
        (None, Some(_)) => Some("the destination is encrypted first"),
        (Some(_), None) => Some("the destination is decrypted"),
    }
}
