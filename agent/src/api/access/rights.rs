//! The one table from calls to the role they take. A test holds it against the descriptors: a call without an entry
//! here takes admin, and fails that test.

use super::super::pb;
use crate::config::access::Role;

/// Every call of every service that is served, and what it takes.
pub const RIGHTS: &[(&str, Role)] = &[
    ("/volferry.v1.Volferry/Migrate", Role::Operate),
    ("/volferry.v1.Volferry/Plan", Role::Observe),
    ("/volferry.v1.Volferry/GetOperation", Role::Observe),
    ("/volferry.v1.Volferry/ListOperations", Role::Observe),
    ("/volferry.v1.Volferry/WatchOperation", Role::Observe),
    ("/volferry.v1.Volferry/CancelOperation", Role::Operate),
    ("/volferry.v1.Volferry/CompleteOperation", Role::Operate),
    ("/volferry.v1.Volferry/ResolveOperation", Role::Admin),
    ("/volferry.v1.Volferry/SettleOperation", Role::Admin),
    ("/volferry.v1.Volferry/SetBandwidth", Role::Operate),
    ("/volferry.v1.Volferry/ListLeftovers", Role::Observe),
    ("/volferry.v1.Volferry/RetryLeftover", Role::Operate),
    ("/volferry.v1.Volferry/ForgetLeftover", Role::Admin),
    ("/volferry.v1.Volferry/ListOrphans", Role::Observe),
    ("/volferry.v1.Volferry/RemoveOrphan", Role::Admin),
    ("/volferry.v1.Volferry/ListDisks", Role::Observe),
    ("/volferry.v1.Volferry/ListPools", Role::Observe),
    ("/volferry.v1.Volferry/GetHistory", Role::Observe),
    ("/volferry.v1.Volferry/CheckHost", Role::Observe),
    ("/volferry.v1.Volferry/GetHostCapabilities", Role::Observe),
    ("/grpc.health.v1.Health/Check", Role::Observe),
    ("/grpc.health.v1.Health/Watch", Role::Observe),
    ("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", Role::Observe),
];

/// The role a call takes by its path; one nobody thought of takes the most.
pub fn needed(path: &str) -> Role {
    let found = RIGHTS.iter().find(|(known, _)| *known == path);
    found.map_or(Role::Admin, |(_, role)| *role)
}

/// What a request takes by its content, beyond its call.
///
/// A pool of its own leads where nobody configured anything, and deleted snapshots do not come back. A plan that opens
/// volumes or tries out what this host can do is more than a look.
pub fn needed_by_content(request: &pb::MigrateRequest) -> (Role, &'static str) {
    if request.pool.is_some() {
        return (Role::Admin, "a pool of the request");
    }
    if request.delete_source_snapshots {
        return (Role::Admin, "the deletion of snapshots");
    }
    let opens = [&request.passphrase, &request.destination_passphrase];
    if opens.iter().any(|passphrase| !passphrase.is_empty()) {
        return (Role::Operate, "a passphrase");
    }
    if !request.accept_encryption.is_empty() {
        return (Role::Operate, "a wish for another encryption");
    }
    (Role::Observe, "a request")
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message as _;
    use prost_types::FileDescriptorSet;

    #[test]
    fn every_call_of_the_descriptors_has_its_role_and_no_other_has_one() {
        let mut served = Vec::new();
        for set in [
            pb::DESCRIPTORS,
            tonic_health::pb::FILE_DESCRIPTOR_SET,
            tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET,
        ] {
            let set = FileDescriptorSet::decode(set).expect("descriptors of this build");
            for file in &set.file {
                for service in &file.service {
                    served.extend(service.method.iter().map(|method| {
                        format!("/{}.{}/{}", file.package(), service.name(), method.name())
                    }));
                }
            }
        }
        let mut listed: Vec<_> = RIGHTS.iter().map(|(path, _)| (*path).to_owned()).collect();
        served.sort();
        listed.sort();
        assert_eq!(listed, served);
        assert!(listed.len() > 20);
        assert_eq!(needed("/volferry.v1.Volferry/Unheard"), Role::Admin);
    }

    #[test]
    fn what_a_request_brings_along_may_take_more() {
        let with = |change: fn(&mut pb::MigrateRequest)| {
            let mut request = pb::MigrateRequest::default();
            change(&mut request);
            needed_by_content(&request).0
        };
        assert_eq!(with(|_| {}), Role::Observe);
        assert_eq!(with(|request| request.pool = Some(pb::RequestPool::default())), Role::Admin);
        assert_eq!(with(|request| request.delete_source_snapshots = true), Role::Admin);
        assert_eq!(with(|request| request.passphrase = vec![1]), Role::Operate);
        assert_eq!(with(|request| request.destination_passphrase = vec![1]), Role::Operate);
        assert_eq!(with(|request| request.accept_encryption = vec!["a".into()]), Role::Operate);
    }
}
