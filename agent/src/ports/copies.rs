//! Copies of volumes that no virtual machine uses, and their comparison.
//!
//! Both last as long as the data are many. Dropping the future ends the work: nothing goes on writing for longer than
//! the system takes to end a process, also when the agent itself is killed.

use std::fmt;

use async_trait::async_trait;
use tokio::sync::watch;

use super::error::PortError;
use crate::spec::{
    Bytes, BytesPerSecond, HeaderKind, OperationId, Passphrase, VolumeFormat, VolumeLocation,
};

/// One side of a copy. Its format is said, never found out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Where it is.
    pub location: VolumeLocation,
    /// Its format.
    pub format: VolumeFormat,
    /// What opens its encryption header; none of a plain one.
    pub key: Option<ImageKey>,
}

/// An encryption header and the passphrase that opens it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageKey {
    /// The header.
    pub header: HeaderKind,
    /// The passphrase.
    pub passphrase: Passphrase,
}

impl Image {
    /// Whether what was never written reads as zeros. What lies behind a header around a raw image is decrypted from
    /// what was never encrypted.
    pub fn begins_as_zeros(&self) -> bool {
        self.key.is_none() || self.format == VolumeFormat::Qcow2
    }
}

/// A copy to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageCopy {
    /// The operation it is made for.
    pub operation: OperationId,
    /// What is read.
    pub from: Image,
    /// What is written: it exists, is new, and holds exactly the size of `from`, behind its header where it has one.
    pub to: Image,
    /// What both hold, in bytes.
    pub size: Bytes,
    /// Limit of what is written; none for no limit.
    pub bandwidth: Option<BytesPerSecond>,
}

/// The side a copy failed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CopySide {
    /// Reading.
    Source,
    /// Writing.
    Destination,
    /// It cannot be told.
    Unknown,
}

/// Why a copy or a comparison could not be brought to its end.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the copy failed on {side}")]
pub struct CopyError {
    /// Whose side it is on.
    pub side: CopySide,
    /// The system's own words.
    #[source]
    pub error: PortError,
}

/// What a comparison found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Comparison {
    /// Every byte a guest would read is the same.
    Identical,
    /// They differ; where, in words.
    Different(String),
}

/// How many bytes of the whole are done, as far as it is told.
pub type Done = watch::Sender<Bytes>;

/// Copying and comparing.
#[async_trait]
pub trait ImageCopies: Send + Sync {
    /// Copies all of one image into another and returns when it is on stable storage. Zeros are left out where the
    /// destination has them already. `WrongPassphrase`, `NoHeader`, on the side it is about, before anything is written.
    async fn copy(&self, copy: &ImageCopy, done: &Done) -> Result<(), CopyError>;

    /// Compares what both hold as a guest reads it, from storage and not from memory where that is possible.
    async fn compare(&self, copy: &ImageCopy, done: &Done) -> Result<Comparison, CopyError>;
}

impl fmt::Display for CopySide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Source => "source",
            Self::Destination => "destination",
            Self::Unknown => "either side",
        })
    }
}
