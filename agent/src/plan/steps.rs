//! The plan as a value: every step with all the values it needs, so that nothing is looked up to decide later.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ports::FileOwner;
use crate::spec::{
    Bytes, BytesPerSecond, CopyFlags, DiskTarget, DomainUuid, EncryptionScheme, HeaderKind,
    Identity, IoTune, MigrateSpec, PoolName, VolumeFormat, VolumeLocation,
};

/// Everything that will be done, in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The request.
    pub spec: MigrateSpec,
    /// The domain's name, for people.
    pub domain_name: String,
    /// The domain.
    pub domain: DomainUuid,
    /// The run of the domain's QEMU that was planned for; in another one nothing is as it was.
    pub domain_run: String,
    /// Whether a stored definition exists.
    pub persistent: bool,
    /// The disk.
    pub target: DiskTarget,
    /// The disk's alias in QEMU, by which its device is found.
    pub alias: Option<String>,
    /// Where the volume is.
    pub source: VolumeLocation,
    /// The pool of the configuration it is in; none for an RBD pool that is not configured.
    pub source_pool: Option<PoolName>,
    /// The folder of that pool, where it must be a mount.
    #[serde(default)]
    pub source_mount: Option<PathBuf>,
    /// Its format.
    pub source_format: VolumeFormat,
    /// What makes it itself.
    pub source_identity: Identity,
    /// The node QEMU had on top of the device.
    pub source_node: Option<String>,
    /// The destination pool.
    pub destination_pool: PoolName,
    /// That pool is libvirt's, not one of the configuration.
    #[serde(default)]
    pub destination_pool_of_libvirt: bool,
    /// Where the volume goes.
    pub destination: VolumeLocation,
    /// Its format there.
    pub destination_format: VolumeFormat,
    /// The destination `<disk>`.
    pub destination_xml: String,
    /// Flags of the block copy.
    pub flags: CopyFlags,
    /// What the guest sees, exactly.
    pub size: Bytes,
    /// What the source occupies; none in a plan that did not say.
    #[serde(default)]
    pub source_allocated: Option<Bytes>,
    /// How a definition opens the source, to put the disk back on it.
    #[serde(default)]
    pub source_cipher: SourceCipher,
    /// How the source is encrypted, where it is read while nobody uses it; none of a plain one.
    #[serde(default)]
    pub source_encryption: Option<SourceEncryption>,
    /// The encryption of the destination; none of a plain one.
    #[serde(default)]
    pub destination_encryption: Option<PlannedEncryption>,
    /// The steps.
    pub steps: Vec<Step>,
    /// What the client should know beforehand.
    pub warnings: Vec<String>,
}

impl Plan {
    /// Whether the volume is moved while nobody uses it.
    pub fn is_offline(&self) -> bool {
        self.steps.iter().any(|step| step.kind() == StepKind::Switch)
    }

    /// The snapshot of the source that the destination is a clone of until it is flattened, in words; none of a copy.
    pub fn parent_snapshot(&self) -> Option<String> {
        self.steps.iter().find_map(|step| match step {
            Step::Flatten { source, snapshot, .. } => {
                source.first().map(|source| format!("{source}@{snapshot}"))
            }
            _ => None,
        })
    }

    /// What is moved, in words.
    pub fn subject(&self) -> String {
        match self.domain.is_none() {
            true => format!("volume {}", self.source),
            false => format!("disk {} of domain {}", self.target, self.domain_name),
        }
    }
}

/// How a definition opens the source, as far as it takes to put a disk back on it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SourceCipher {
    /// Not known: in a plan that did not say, or in a way that is not written by the agent.
    #[default]
    Unknown,
    /// Not at all.
    Plain,
    /// By this header, with the value of a libvirt secret.
    Header {
        /// Format and engine.
        kind: HeaderKind,
        /// The secret's uuid.
        secret_uuid: String,
    },
}

impl SourceCipher {
    /// That of the source of an offline copy.
    pub fn of(encryption: Option<&SourceEncryption>) -> Self {
        match encryption {
            None => Self::Plain,
            Some(SourceEncryption { header, secret_uuid: Some(uuid) }) => {
                Self::Header { kind: *header, secret_uuid: uuid.clone() }
            }
            Some(SourceEncryption { secret_uuid: None, .. }) => Self::Unknown,
        }
    }
}

/// How the source of an offline copy is encrypted, and what the stored definition opens it with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceEncryption {
    /// Its header.
    pub header: HeaderKind,
    /// The libvirt secret the definition names; none of a volume that no domain uses.
    pub secret_uuid: Option<String>,
}

/// How the destination is encrypted, and the libvirt secret with its passphrase. A volume that no domain uses gets no
/// secret: it is the one it would have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedEncryption {
    /// Header and engine.
    pub scheme: EncryptionScheme,
    /// The secret's uuid.
    pub secret_uuid: String,
    /// The volume the secret is for, as libvirt is told.
    pub secret_usage: String,
    /// libvirt has the secret already; its value is set anew.
    pub secret_reused: bool,
    /// The passphrase is another one than the source's, or the first.
    pub rekeyed: bool,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "kebab-case")]
pub enum Step {
    /// Set the libvirt secret that opens the destination.
    SetSecret {
        /// Its uuid.
        uuid: String,
        /// The volume it is for.
        usage: String,
        /// It was there before: its value is set, and it stays whatever happens.
        reused: bool,
    },
    /// Make the destination under the operation's private name and record its identity.
    CreateDestination {
        /// Where, under the private name.
        volume: VolumeLocation,
        /// The format.
        format: VolumeFormat,
        /// What the guest sees.
        size: Bytes,
        /// Owner and mode of a file.
        owner: Option<FileOwner>,
        /// The folder must lie on another mount than the root file system.
        #[serde(default)]
        must_be_mounted: bool,
        /// The header it is made with; none of a plain one.
        #[serde(default)]
        encryption: Option<EncryptionScheme>,
    },
    /// Give it its final name, replacing nothing.
    PublishDestination {
        /// The private name.
        from: VolumeLocation,
        /// The final name.
        to: VolumeLocation,
    },
    /// Start the block copy.
    StartCopy {
        /// Limit at the start.
        bandwidth: Option<BytesPerSecond>,
    },
    /// Wait for READY.
    AwaitReady {
        /// Give up after this time.
        deadline: Option<Duration>,
        /// Then wait for the operator's word.
        manual_pivot: bool,
    },
    /// Look at the destination again, then switch.
    Pivot,
    /// Compare QEMU, live XML and stored XML; repair the stored one.
    VerifyMove,
    /// Copy the image while nobody uses it.
    CopyImage {
        /// From where to where.
        copy: PlannedCopy,
        /// Limit of what is written.
        bandwidth: Option<BytesPerSecond>,
        /// Why this way, where another one could be expected.
        #[serde(default)]
        why: Option<String>,
    },
    /// Make a snapshot of the source, and the destination as its clone under the operation's private name, whose identity
    /// is recorded.
    CloneSource {
        /// The source.
        from: VolumeLocation,
        /// The snapshot, whose name only this operation can have.
        snapshot: String,
        /// The clone, under the private name.
        to: VolumeLocation,
    },
    /// Compare the copy with its source.
    CompareImages {
        /// What was copied.
        copy: PlannedCopy,
    },
    /// Look once more whether anybody uses the source, then point the stored definition at the destination.
    Switch {
        /// Wait for the operator's word first.
        manual_pivot: bool,
        /// There is a domain whose definition names the volume.
        definition: bool,
    },
    /// Limit the disk's input and output, running and stored.
    SetIotune {
        /// The limits.
        tune: IoTune,
    },
    /// Give the source its retired name.
    RetireSource {
        /// Its name now.
        from: VolumeLocation,
        /// Its retired name.
        to: VolumeLocation,
        /// Why it stays under that name although nobody asked for it.
        #[serde(default)]
        stays: Option<String>,
    },
    /// Copy what the clone still shares with the source, then delete the snapshot it was made from.
    Flatten {
        /// The clone, under its final name.
        volume: VolumeLocation,
        /// The names the source can have by now.
        source: Vec<VolumeLocation>,
        /// The snapshot.
        snapshot: String,
    },
    /// Delete the snapshots of the source, so that it can be removed.
    DeleteSourceSnapshots {
        /// Under its retired name.
        volume: VolumeLocation,
        /// Their names.
        snapshots: Vec<String>,
    },
    /// Put the source into the trash of its pool instead of removing it.
    TrashSource {
        /// Under its retired name.
        volume: VolumeLocation,
        /// A file's place in the trash; an image has its retired name when it is restored.
        to: VolumeLocation,
        /// How long it can be restored.
        keep: Duration,
    },
    /// Remove the source.
    RemoveSource {
        /// Under its retired name.
        volume: VolumeLocation,
    },
    /// Remove the libvirt secret of the source, once the source is gone.
    RemoveSourceSecret {
        /// Its uuid.
        uuid: String,
    },
}

/// Two images, one to be copied into the other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedCopy {
    /// The source.
    pub from: VolumeLocation,
    /// Its format.
    pub from_format: VolumeFormat,
    /// Its encryption header; none of a plain one.
    #[serde(default)]
    pub from_header: Option<HeaderKind>,
    /// The destination, under its private name.
    pub to: VolumeLocation,
    /// Its format.
    pub to_format: VolumeFormat,
    /// Its encryption header; none of a plain one.
    #[serde(default)]
    pub to_header: Option<HeaderKind>,
}

/// A step's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StepKind {
    /// [`Step::SetSecret`]
    SetSecret,
    /// [`Step::CreateDestination`]
    CreateDestination,
    /// [`Step::PublishDestination`]
    PublishDestination,
    /// [`Step::StartCopy`]
    StartCopy,
    /// [`Step::AwaitReady`]
    AwaitReady,
    /// [`Step::Pivot`]
    Pivot,
    /// [`Step::VerifyMove`]
    VerifyMove,
    /// [`Step::CopyImage`]
    CopyImage,
    /// [`Step::CloneSource`]
    CloneSource,
    /// [`Step::CompareImages`]
    CompareImages,
    /// [`Step::Switch`]
    Switch,
    /// [`Step::SetIotune`]
    SetIotune,
    /// [`Step::RetireSource`]
    RetireSource,
    /// [`Step::Flatten`]
    Flatten,
    /// [`Step::DeleteSourceSnapshots`]
    DeleteSourceSnapshots,
    /// [`Step::TrashSource`]
    TrashSource,
    /// [`Step::RemoveSource`]
    RemoveSource,
    /// [`Step::RemoveSourceSecret`]
    RemoveSourceSecret,
}

impl Step {
    /// Which step it is.
    pub const fn kind(&self) -> StepKind {
        match self {
            Self::SetSecret { .. } => StepKind::SetSecret,
            Self::CreateDestination { .. } => StepKind::CreateDestination,
            Self::PublishDestination { .. } => StepKind::PublishDestination,
            Self::StartCopy { .. } => StepKind::StartCopy,
            Self::AwaitReady { .. } => StepKind::AwaitReady,
            Self::Pivot => StepKind::Pivot,
            Self::VerifyMove => StepKind::VerifyMove,
            Self::CopyImage { .. } => StepKind::CopyImage,
            Self::CloneSource { .. } => StepKind::CloneSource,
            Self::CompareImages { .. } => StepKind::CompareImages,
            Self::Switch { .. } => StepKind::Switch,
            Self::SetIotune { .. } => StepKind::SetIotune,
            Self::RetireSource { .. } => StepKind::RetireSource,
            Self::Flatten { .. } => StepKind::Flatten,
            Self::DeleteSourceSnapshots { .. } => StepKind::DeleteSourceSnapshots,
            Self::TrashSource { .. } => StepKind::TrashSource,
            Self::RemoveSource { .. } => StepKind::RemoveSource,
            Self::RemoveSourceSecret { .. } => StepKind::RemoveSourceSecret,
        }
    }
}

impl StepKind {
    /// The stable word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SetSecret => "set-secret",
            Self::CreateDestination => "create-destination",
            Self::PublishDestination => "publish-destination",
            Self::StartCopy => "start-copy",
            Self::AwaitReady => "await-ready",
            Self::Pivot => "pivot",
            Self::VerifyMove => "verify-move",
            Self::CopyImage => "copy-image",
            Self::CloneSource => "clone-source",
            Self::CompareImages => "compare-images",
            Self::Switch => "switch",
            Self::SetIotune => "set-iotune",
            Self::RetireSource => "retire-source",
            Self::Flatten => "flatten",
            Self::DeleteSourceSnapshots => "delete-source-snapshots",
            Self::TrashSource => "trash-source",
            Self::RemoveSource => "remove-source",
            Self::RemoveSourceSecret => "remove-source-secret",
        }
    }
}
