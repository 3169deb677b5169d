//! PURE: what a copy would lose besides data: snapshots, and checkpoints with their bitmaps.

use super::refusal::{Refusal, RefusalCode};
use crate::facts::SourceFacts;
use crate::ports::Snapshots;
use crate::spec::{MigrateSpec, VolumeLocation};

/// Refuses snapshots, and checkpoints whose loss was not accepted by name. Returns what to warn of.
pub fn check(
    spec: &MigrateSpec,
    domain: &str,
    found: &Snapshots,
) -> Result<Option<String>, Refusal> {
    let refuse = |message: String| Err(Refusal::new(RefusalCode::HasSnapshots, message));
    if !found.snapshots.is_empty() {
        return refuse(format!(
            "domain {domain} has snapshots ({}) that would not survive the copy: delete them first",
            found.snapshots.join(", ")
        ));
    }
    let allowed = |name: &&String| spec.allow_checkpoint_loss.iter().any(|ok| ok.as_str() == *name);
    let (lost, kept): (Vec<&String>, Vec<&String>) = found.checkpoints.iter().partition(allowed);
    if !kept.is_empty() {
        let names: Vec<&str> = kept.into_iter().map(String::as_str).collect();
        return refuse(format!(
            "domain {domain} has checkpoints ({}) whose bitmaps would be lost: delete them first, or accept a full \
             backup next time with --allow-checkpoint-loss NAME for each",
            names.join(", ")
        ));
    }
    let names: Vec<&str> = lost.into_iter().map(String::as_str).collect();
    Ok((!names.is_empty()).then(|| {
        format!(
            "the bitmaps of checkpoints {} are lost as accepted: the next backup must be a full one",
            names.join(", ")
        )
    }))
}

/// Refuses internal snapshots of a qcow2 file.
pub fn check_internal(location: &VolumeLocation, source: &SourceFacts) -> Result<(), Refusal> {
    match source {
        SourceFacts::File(file) if !file.internal_snapshots.is_empty() => Err(Refusal::new(
            RefusalCode::HasSnapshots,
            format!(
                "{location} has internal snapshots ({}) that would not survive the copy: delete them first",
                file.internal_snapshots.join(", ")
            ),
        )),
        _ => Ok(()),
    }
}
