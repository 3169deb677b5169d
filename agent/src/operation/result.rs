//! What a finished move tells: where the volume is now, what became of the source, what to know.

use std::fmt;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::spec::{Bytes, EncryptionScheme, Identity, PoolName, VolumeFormat, VolumeLocation};

/// What became of the source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "fate", rename_all = "kebab-case")]
pub enum SourceFate {
    /// Removed.
    Removed,
    /// Kept as asked, under this name.
    Kept {
        /// Where it is now.
        location: VolumeLocation,
    },
    /// In the trash, from where it can be restored for a time.
    Trashed {
        /// A file's place there; the name an image had.
        location: VolumeLocation,
        /// What makes it itself: an image is restored by its id.
        identity: Identity,
        /// Until then it is kept for certain.
        until: SystemTime,
    },
    /// It was gone already.
    AlreadyGone,
    /// Still there; somebody has to remove it.
    LeftBehind {
        /// Where it is now.
        location: VolumeLocation,
        /// Why it could not be removed.
        reason: String,
    },
}

/// The result of a move.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveResult {
    /// The destination pool.
    pub pool: PoolName,
    /// The volume's name there.
    pub volume: String,
    /// Where it is.
    pub location: VolumeLocation,
    /// What makes it itself.
    pub identity: Identity,
    /// Its format.
    pub format: VolumeFormat,
    /// How it is encrypted; none of a plain one.
    #[serde(default)]
    pub encryption: Option<EncryptionScheme>,
    /// What the guest sees.
    pub virtual_size: Bytes,
    /// What it occupies; none when it could not be read.
    pub allocated: Option<Bytes>,
    /// What became of the source.
    pub source: SourceFate,
    /// The snapshot of the source that the volume still shares data with, which must not be removed before a retry of
    /// the leftover that says so; none of an independent volume.
    #[serde(default)]
    pub depends_on: Option<String>,
    /// From the READY callback to the pivot call, microseconds; none when READY was found by reading.
    pub ready_to_pivot_us: Option<u64>,
}

impl SourceFate {
    /// How a source is brought back from the trash.
    pub fn way_back(&self) -> Option<String> {
        let Self::Trashed { location, identity, .. } = self else { return None };
        Some(match (location, identity) {
            (VolumeLocation::Rbd { address, .. }, Identity::Rbd { image_id }) => {
                let namespace = address.namespace.as_ref();
                let namespace =
                    namespace.map_or(String::new(), |name| format!(" --namespace {name}"));
                format!("rbd trash restore --pool {}{namespace} {image_id}", address.pool)
            }
            _ => format!("mv {location} to its pool's folder"),
        })
    }

    /// The stable word.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Removed => "removed",
            Self::Kept { .. } => "kept",
            Self::Trashed { .. } => "trashed",
            Self::AlreadyGone => "already-gone",
            Self::LeftBehind { .. } => "left-behind",
        }
    }
}

impl fmt::Display for SourceFate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Removed => f.write_str("removed"),
            Self::Kept { location } => write!(f, "kept as {location}"),
            Self::Trashed { location, identity, .. } => {
                write!(f, "in the trash as {location} ({identity})")
            }
            Self::AlreadyGone => f.write_str("already gone"),
            Self::LeftBehind { location, reason } => {
                write!(f, "left behind as {location}: {reason}")
            }
        }
    }
}
