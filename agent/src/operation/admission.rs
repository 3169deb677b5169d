//! PURE: may this request begin? Accepted, the same operation again, or refused.

use crate::spec::{DiskTarget, DomainUuid, MigrateSpec, OperationId, VolumeLocation};

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// A new operation.
    Accepted,
    /// The request was made before: the same operation.
    Same(OperationId),
    /// The id was used for a different request.
    IdTaken,
    /// Another operation works on the disk.
    Busy(OperationId),
}

/// What admission knows of an operation.
#[derive(Debug, Clone, Copy)]
pub struct Known<'a> {
    /// Its request.
    pub spec: &'a MigrateSpec,
    /// Its domain.
    pub domain: &'a DomainUuid,
    /// Its disk.
    pub target: &'a DiskTarget,
    /// The volume it moves, where that is known.
    pub source: Option<&'a VolumeLocation>,
    /// Whether it has ended.
    pub finished: bool,
}

/// Decides on a request for `target` of `domain`, or for the volume `source`, given every operation known.
pub fn admit<'a>(
    spec: &MigrateSpec,
    domain: &DomainUuid,
    target: &DiskTarget,
    source: Option<&VolumeLocation>,
    known: impl Iterator<Item = Known<'a>>,
) -> Admission {
    let mut busy = None;
    for other in known {
        if other.spec.operation == spec.operation {
            return if other.spec == spec {
                Admission::Same(spec.operation.clone())
            } else {
                Admission::IdTaken
            };
        }
        let same_disk = !domain.is_none() && (other.domain, other.target) == (domain, target);
        let same_volume = source.is_some() && other.source == source;
        if !other.finished && (same_disk || same_volume) {
            busy = Some(other.spec.operation.clone());
        }
    }
    busy.map_or(Admission::Accepted, Admission::Busy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{DiskReference, DomainReference, PoolName, Subject, VolumeName};

    fn spec(id: &str, to: &str) -> MigrateSpec {
        MigrateSpec {
            operation: OperationId::new(id).expect("a plain id"),
            subject: Subject::Disk {
                domain: DomainReference::new("web").expect("a plain name"),
                disk: DiskReference::new("vda").expect("a plain name"),
            },
            to: PoolName::new(to).expect("a plain name"),
            pool: None,
            destination_volume: None,
            bandwidth: None,
            keep_source: false,
            keep_source_name: false,
            delete_source_snapshots: false,
            write_blocking: false,
            manual_pivot: false,
            deadline: None,
            allow_checkpoint_loss: Default::default(),
            live: false,
            no_compare: false,
            expected_size: None,
            encryption: Default::default(),
            passphrases: Default::default(),
            method: Default::default(),
            iotune: None,
        }
    }

    fn decide(request: &MigrateSpec, other: &MigrateSpec, finished: bool) -> Admission {
        let domain = DomainUuid::new("70000000-0000-4000-8000-000000000007").expect("a uuid");
        let target = DiskTarget::new("vda").expect("a target");
        let known = Known { spec: other, domain: &domain, target: &target, source: None, finished };
        admit(request, &domain, &target, None, std::iter::once(known))
    }

    #[test]
    fn the_same_request_is_the_same_operation_even_when_finished() {
        let request = spec("a", "ceph");
        for finished in [false, true] {
            let same = Admission::Same(request.operation.clone());
            assert_eq!(decide(&request, &request, finished), same);
        }
    }

    #[test]
    fn an_id_means_one_request() {
        assert_eq!(decide(&spec("a", "nfs"), &spec("a", "ceph"), true), Admission::IdTaken);
    }

    #[test]
    fn a_busy_disk_is_refused_with_the_operation_that_has_it() {
        let other = spec("b", "ceph");
        let busy = Admission::Busy(other.operation.clone());
        assert_eq!(decide(&spec("a", "ceph"), &other, false), busy);
        assert_eq!(decide(&spec("a", "ceph"), &other, true), Admission::Accepted);
    }

    #[test]
    fn a_volume_is_busy_whoever_asks_for_it() {
        let place = |name: &str| VolumeLocation::File { path: format!("/srv/{name}").into() };
        let (one, other) = (place("one"), place("other"));
        let (none, volume) = (DomainUuid::none(), DiskTarget::of_volume());
        let disk = spec("b", "ceph");
        let (web, vda) =
            (DomainUuid::new("70000000-0000-4000-8000-000000000007"), DiskTarget::new("vda"));
        let (web, vda) = (web.expect("a uuid"), vda.expect("a target"));
        let decide = |place| {
            let known = Known {
                spec: &disk,
                domain: &web,
                target: &vda,
                source: Some(&one),
                finished: false,
            };
            let request = MigrateSpec {
                subject: Subject::Volume {
                    volume_pool: PoolName::new("smp").expect("a plain name"),
                    volume_name: VolumeName::new("one").expect("a plain name"),
                    volume_format: crate::spec::VolumeFormat::Raw,
                    volume_encryption: None,
                },
                ..spec("a", "ceph")
            };
            admit(&request, &none, &volume, Some(place), std::iter::once(known))
        };
        assert_eq!(decide(&one), Admission::Busy(disk.operation.clone()));
        // Two volumes without a domain have nothing in common.
        assert_eq!(decide(&other), Admission::Accepted);
    }
}
