//! PURE: what a copy would lose besides data: snapshots, and checkpoints with their bitmaps.

use super::refusal::{Refusal, RefusalCode};
use crate::facts::SourceFacts;
use crate::ports::Snapshots;
use crate::spec::{CheckpointName, MigrateSpec, VolumeLocation};

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

/// Refuses names of checkpoints that the domain does not have: who is mistaken about one may be about all.
pub fn check_names(spec: &MigrateSpec, domain: &str, found: &Snapshots) -> Result<(), Refusal> {
    let there = |name: &CheckpointName| found.checkpoints.iter().any(|one| one == name.as_str());
    let Some(name) = spec.allow_checkpoint_loss.iter().find(|name| !there(name)) else {
        return Ok(());
    };
    let there = match found.checkpoints.as_slice() {
        [] => "it has none".to_owned(),
        names => format!("it has: {}", names.join(", ")),
    };
    Err(Refusal::new(
        RefusalCode::InvalidName,
        format!("domain {domain} has no checkpoint {name} whose loss could be allowed; {there}"),
    ))
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
