//! Plans as the wire has them.

use super::operation::{disk, domain, volume};
use crate::api::pb;
use crate::plan::render::describe;
use crate::plan::{Plan, Step};

impl From<&Plan> for pb::PlanResponse {
    fn from(plan: &Plan) -> Self {
        let planned = plan.destination_encryption.as_ref();
        let source_pool = plan.source_pool.as_ref().map(ToString::to_string).unwrap_or_default();
        Self {
            domain: domain(&plan.domain_name, &plan.domain),
            disk: disk(&plan.domain, &plan.target),
            source: Some(volume(source_pool, &plan.source)),
            source_format: pb::VolumeFormat::from(plan.source_format).into(),
            destination: Some(volume(plan.destination_pool.to_string(), &plan.destination)),
            destination_format: pb::VolumeFormat::from(plan.destination_format).into(),
            destination_xml: plan.destination_xml.clone(),
            flags: plan.flags.iter().map(ToString::to_string).collect(),
            virtual_bytes: plan.size.0,
            steps: plan.steps.iter().map(pb::PlanStep::from).collect(),
            warnings: plan.warnings.clone(),
            destination_pool_of_libvirt: plan.destination_pool_of_libvirt,
            destination_encryption: planned
                .map(|planned| planned.scheme.to_string())
                .unwrap_or_default(),
            destination_secret_uuid: planned
                .map(|planned| planned.secret_uuid.clone())
                .unwrap_or_default(),
        }
    }
}

impl From<&Step> for pb::PlanStep {
    fn from(step: &Step) -> Self {
        Self { name: step.kind().as_str().to_owned(), text: describe(step) }
    }
}
