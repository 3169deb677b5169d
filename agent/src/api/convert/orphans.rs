//! Orphans as the wire has them.

use crate::api::pb;
use crate::engine::doctor::{Orphan, Orphans};

impl From<&Orphans> for pb::ListOrphansResponse {
    fn from(orphans: &Orphans) -> Self {
        let unread = orphans.unread.iter().map(|(pool, reason)| pb::UnreadPool {
            pool: pool.to_string(),
            reason: reason.clone(),
        });
        Self {
            orphans: orphans.found.iter().map(pb::Orphan::from).collect(),
            unread: unread.collect(),
        }
    }
}

impl From<&Orphan> for pb::Orphan {
    fn from(orphan: &Orphan) -> Self {
        let volume = &orphan.volume;
        let job = orphan.job.as_ref();
        Self {
            operation_id: volume.operation.to_string(),
            pool: orphan.pool.to_string(),
            location: volume.location.to_string(),
            identity: volume.identity.to_string(),
            made_by: volume.host.clone().unwrap_or_default(),
            copied_by_domain: job.map(|job| job.domain_name.clone()).unwrap_or_default(),
            copied_by_disk: job.map(|job| job.target.to_string()).unwrap_or_default(),
            kept: orphan.kept.clone().unwrap_or_default(),
        }
    }
}
