//! PURE: what becomes of the source after the move: another name, then its removal, as far as the request and what
//! depends on the source allow.

use std::time::Duration;

use super::route::Route;
use super::steps::Step;
use crate::facts::SourceFacts;
use crate::ports::ImageObservation;
use crate::spec::{MigrateSpec, VolumeLocation};

/// Names of images are limited by librbd, names of files by every file system in use.
const LONGEST_IMAGE_NAME: usize = 95;
const LONGEST_FILE_NAME: usize = 255;

/// Beside the files it keeps.
const TRASH_FOLDER: &str = ".volferry-trash";

/// The steps after the move is verified.
pub fn source_steps(
    spec: &MigrateSpec,
    route: &Route,
    facts: &SourceFacts,
    warnings: &mut Vec<String>,
) -> Vec<Step> {
    let source = &route.source.location;
    let holders = Holders::of(facts);
    if spec.keep_source_name {
        warnings.push(format!(
            "the source stays under its own name {source}: an old record can still boot its old data"
        ));
        return vec![];
    }
    let retired = retired(source, spec);
    let deleted = holders.deletable(spec);
    let stays = if spec.keep_source { None } else { holders.stay(deleted.is_some()) };
    if let Some(holders) = holders.text() {
        warnings.push(match (&deleted, &stays) {
            (Some(_), None) => format!("the source's {holders} are deleted after the move"),
            _ => format!("the source has {holders} and stays as {retired}; they are not copied"),
        });
    }
    let removed = !spec.keep_source && stays.is_none();
    let mut steps = vec![Step::RetireSource { from: source.clone(), to: retired.clone(), stays }];
    if let (true, Some(snapshots)) = (removed, deleted) {
        steps.push(Step::DeleteSourceSnapshots { volume: retired.clone(), snapshots });
    }
    if removed {
        steps.push(match route.source_retention {
            Duration::ZERO => Step::RemoveSource { volume: retired },
            keep => Step::TrashSource { to: trashed(&retired), volume: retired, keep },
        });
    }
    steps
}

/// Where a volume is while it is in the trash: a file beside its pool's others, so that a rename brings it there; an
/// image without a name in the trash of its pool.
fn trashed(retired: &VolumeLocation) -> VolumeLocation {
    match retired {
        VolumeLocation::Rbd { .. } => retired.clone(),
        VolumeLocation::File { path } => {
            let folder = path.with_file_name(TRASH_FOLDER);
            VolumeLocation::File { path: folder.join(retired.name()) }
        }
    }
}

/// What depends on an RBD source and keeps it from being removed.
struct Holders<'a>(Option<&'a ImageObservation>);

impl<'a> Holders<'a> {
    fn of(source: &'a SourceFacts) -> Self {
        match source {
            SourceFacts::Image(image) => Self(Some(image)),
            SourceFacts::File(_) => Self(None),
        }
    }

    fn text(&self) -> Option<String> {
        let image = self.0?;
        let mut parts = Vec::new();
        if !image.snapshots.is_empty() {
            parts.push(format!("snapshots ({})", image.snapshots.join(", ")));
        }
        if !image.children.is_empty() {
            parts.push(format!("clones ({})", image.children.join(", ")));
        }
        (!parts.is_empty()).then(|| parts.join(" and "))
    }

    /// The snapshots that may be deleted: only where it was asked for, and never below a clone.
    fn deletable(&self, spec: &MigrateSpec) -> Option<Vec<String>> {
        let image = self.0.filter(|image| image.children.is_empty())?;
        let wanted = spec.delete_source_snapshots && !image.snapshots.is_empty();
        wanted.then(|| image.snapshots.clone())
    }

    /// Why the source stays, unless its snapshots are deleted.
    fn stay(&self, deleted: bool) -> Option<String> {
        if deleted { None } else { self.text().map(|holders| format!("it has {holders}")) }
    }
}

/// `NAME.moved-OPERATION`, the name cut where the whole would be too long for its pool.
fn retired(source: &VolumeLocation, spec: &MigrateSpec) -> VolumeLocation {
    let longest = match source {
        VolumeLocation::Rbd { .. } => LONGEST_IMAGE_NAME,
        VolumeLocation::File { .. } => LONGEST_FILE_NAME,
    };
    let ending = format!(".moved-{}", spec.operation);
    let name = source.name();
    let mut keep = name.len().min(longest.saturating_sub(ending.len()));
    while !name.is_char_boundary(keep) {
        keep -= 1;
    }
    source.renamed(&format!("{}{ending}", &name[..keep]))
}
