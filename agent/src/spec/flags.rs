//! The flags of a block copy, by libvirt's names without prefix.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

/// One flag of `virDomainBlockCopy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum CopyFlag {
    /// Copy the top layer only; RBD to RBD with a source of one layer, nowhere else.
    Shallow,
    /// The destination exists already, made by the agent with the right format and size.
    ReuseExt,
    /// The job ends with the virtual machine; needed on persistent domains (libvirt 3.5).
    TransientJob,
    /// Guest writes wait for both sides (libvirt 8.0).
    SynchronousWrites,
}

/// A set of flags, in a fixed order.
pub type CopyFlags = BTreeSet<CopyFlag>;

impl CopyFlag {
    /// libvirt's name without its prefix.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Shallow => "SHALLOW",
            Self::ReuseExt => "REUSE_EXT",
            Self::TransientJob => "TRANSIENT_JOB",
            Self::SynchronousWrites => "SYNCHRONOUS_WRITES",
        }
    }
}

impl fmt::Display for CopyFlag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
