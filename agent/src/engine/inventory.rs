//! Read-only answers about the host that are no operation: disks, pools, capabilities.

use crate::plan::RefusalCode;
use crate::ports::HostVersions;
use crate::spec::{Bytes, DiskTarget, PoolName};

/// One disk of a domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskListing {
    /// Its target.
    pub target: DiskTarget,
    /// Its source in words, `rbd pool/image` or a path.
    pub source: String,
    /// Its format, as the XML says.
    pub format: Option<String>,
    /// The pool of the configuration it lies in.
    pub pool: Option<PoolName>,
    /// Why it cannot be moved live whatever the destination; none when it may.
    pub immovable: Option<(RefusalCode, String)>,
}

/// One pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolListing {
    /// Its name.
    pub name: PoolName,
    /// Its type as the configuration spells it.
    pub type_name: &'static str,
    /// Where it is, in words.
    pub location: String,
    /// Space left; none when it cannot be told.
    pub available: Option<Bytes>,
    /// Why it cannot be used at this moment.
    pub problem: Option<String>,
}

/// What this host can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostListing {
    /// The host's name of the configuration.
    pub host_name: String,
    /// The agent's version.
    pub agent_version: &'static str,
    /// libvirt and QEMU; none while libvirt is away.
    pub versions: Option<HostVersions>,
    /// Whether libvirt can be reached.
    pub connected: bool,
}
