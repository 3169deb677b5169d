//! A connection to a Ceph cluster, made from values alone: no ceph.conf, no keyring file.
//!
//! All calls block, bounded by [`Timeouts`]; run them where blocking is allowed. Images are in
//! [`crate::images`]; the form of a key is checked in `key`.

mod key;

use std::sync::Arc;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};

use crate::errno::{Errno, ErrorClass};
use crate::ffi::{ClusterHandle, PoolHandle};
use crate::images::Pool;
use crate::monitors::{MonitorList, Protocol};
use crate::names::{NamespaceName, PoolName};

/// How to reach a cluster.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// Its monitors.
    pub monitors: MonitorList,
    /// The user without `client.`; `None` is `admin`, as for Ceph's own tools.
    pub user: Option<String>,
    /// The user's key in base64, as Ceph prints it. Without one the cluster is asked to let anybody
    /// in (`auth_client_required = none`).
    pub key: Option<SecretString>,
    /// How long to wait for answers.
    pub timeouts: Timeouts,
}

/// Bounds for waiting; a call that consists of several requests may take a multiple.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For the connection to be made (`client_mount_timeout`), rounded up to whole seconds. Finding
    /// out why it failed may take two seconds more.
    pub connect: Duration,
    /// For one answer of the monitors (`rados_mon_op_timeout`), rounded up to whole seconds.
    pub monitor: Duration,
    /// For one answer of an OSD (`rados_osd_op_timeout`), rounded up to whole seconds.
    pub osd: Duration,
}

impl Default for Timeouts {
    /// Ten seconds each.
    fn default() -> Self {
        let ten = Duration::from_secs(10);
        Self { connect: ten, monitor: ten, osd: ten }
    }
}

/// Why the cluster could not be used.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The key is not in the form in which Ceph prints keys; nothing was asked of the cluster.
    #[error("the key of client.{user} is no ceph key in base64")]
    Key {
        /// The user.
        user: String,
    },
    /// librados refuses an option.
    #[error("ceph refuses the option {option}")]
    Option {
        /// The option's name.
        option: &'static str,
        /// What librados said.
        #[source]
        source: Errno,
    },
    /// No connection.
    #[error("cannot connect to the monitors {monitors} as client.{user}")]
    Connect {
        /// The monitors.
        monitors: String,
        /// The user.
        user: String,
        /// What librados said.
        #[source]
        source: Errno,
    },
    /// The pool cannot be opened.
    #[error("cannot open the pool {pool}")]
    Pool {
        /// The pool.
        pool: PoolName,
        /// What librados said.
        #[source]
        source: Errno,
    },
    /// A request to the monitors failed.
    #[error("the monitors refuse {command:?}: {text}")]
    Command {
        /// The command, without arguments.
        command: &'static str,
        /// The monitors' own words.
        text: String,
        /// The number they sent.
        #[source]
        source: Errno,
    },
    /// The cluster's identity cannot be read.
    #[error("cannot read the cluster's id")]
    Fsid(#[source] Errno),
    /// The images of a pool cannot be listed.
    #[error("cannot list the images of pool {0}")]
    List(PoolName, #[source] Errno),
    /// The monitors' answer is not what it should be.
    #[error("cannot read the monitors' answer to {command:?}")]
    Answer {
        /// The command, without arguments.
        command: &'static str,
        /// Where it is wrong.
        #[source]
        source: serde_json::Error,
    },
    /// The pool is not in the monitors' answer.
    #[error("the monitors do not list the pool {0}")]
    NotListed(PoolName),
}

impl ClusterError {
    /// The kind of failure.
    pub fn class(&self) -> ErrorClass {
        match self {
            // Nobody answered (ETIMEDOUT), or not one name was resolved (ENOENT, EINVAL).
            Self::Connect {
                source: Errno(libc::ETIMEDOUT | libc::ENOENT | libc::EINVAL), ..
            } => ErrorClass::Unreachable,
            // The monitors want another way of authentication than ours.
            Self::Key { .. } | Self::Connect { source: Errno(libc::EOPNOTSUPP), .. } => {
                ErrorClass::PermissionDenied
            }
            Self::Connect { source, .. }
            | Self::Pool { source, .. }
            | Self::Command { source, .. }
            | Self::List(_, source)
            | Self::Fsid(source) => source.class(),
            Self::NotListed(_) => ErrorClass::NotFound,
            Self::Option { .. } | Self::Answer { .. } => ErrorClass::Other,
        }
    }

    /// The error number, where the cluster or its library gave one.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Option { source, .. }
            | Self::Connect { source, .. }
            | Self::Pool { source, .. }
            | Self::Command { source, .. }
            | Self::List(_, source)
            | Self::Fsid(source) => Some(*source),
            Self::Key { .. } | Self::Answer { .. } | Self::NotListed(_) => None,
        }
    }
}

/// How long each further look at a failed connection may take; a refusal comes at once.
const DIAGNOSIS: Duration = Duration::from_secs(1);

/// A connected cluster. Clones share the connection, which ends with the last user of it.
///
/// A connection costs about twenty threads of the C library: keep one per cluster and user.
#[derive(Clone, Debug)]
pub struct Cluster {
    handle: Arc<ClusterHandle>,
}

impl Cluster {
    /// Connects.
    ///
    /// # Errors
    /// [`ClusterError::Key`] for a malformed key, [`ClusterError::Connect`] with class
    /// `Unreachable` when no monitor answers and `PermissionDenied` for a wrong user or key.
    pub fn connect(options: &ConnectOptions) -> Result<Self, ClusterError> {
        match connect(options) {
            Ok(handle) => Ok(Self { handle: Arc::new(handle) }),
            Err(error) if error.class() == ErrorClass::Unreachable => Err(diagnose(options, error)),
            Err(error) => Err(error),
        }
    }

    /// The cluster's id. Equal ids are the proof that two lists of monitors lead to one cluster.
    ///
    /// # Errors
    /// [`ClusterError::Fsid`].
    pub fn fsid(&self) -> Result<String, ClusterError> {
        self.handle.fsid().map_err(ClusterError::Fsid)
    }

    /// Opens a pool, in its default namespace or another. In a full pool its writes fail at once
    /// instead of hanging, and removals pass. Whether the namespace exists is only seen
    /// when an image is created or opened there.
    ///
    /// # Errors
    /// [`ClusterError::Pool`] with class `NotFound` when there is no such pool.
    pub fn pool(
        &self,
        pool: &PoolName,
        namespace: Option<&NamespaceName>,
    ) -> Result<Pool, ClusterError> {
        let namespace_text = namespace.map(NamespaceName::as_str);
        let handle = PoolHandle::open(Arc::clone(&self.handle), pool.as_str(), namespace_text)
            .map_err(|source| ClusterError::Pool { pool: pool.clone(), source })?;
        Ok(Pool::new(handle, Arc::clone(&self.handle), pool.clone(), namespace.cloned()))
    }
}

fn connect(options: &ConnectOptions) -> Result<ClusterHandle, ClusterError> {
    let user = options.user.as_deref().unwrap_or("admin");
    if options.key.as_ref().is_some_and(|key| !key::is_well_formed(key.expose_secret())) {
        return Err(ClusterError::Key { user: user.to_owned() });
    }
    let mut handle = ClusterHandle::new(&format!("client.{user}"))
        .map_err(|source| ClusterError::Option { option: "id", source })?;
    configure(&mut handle, options)?;
    handle.connect().map_err(|source| ClusterError::Connect {
        monitors: options.monitors.to_ceph_conf(),
        user: user.to_owned(),
        source,
    })?;
    Ok(handle)
}

/// Tells a refusal from silence: a client that tries one port as v2 and as v1 waits for the silent
/// one of the two until the time is over, also when the other has refused its key long ago.
fn diagnose(options: &ConnectOptions, error: ClusterError) -> ClusterError {
    for protocol in [Protocol::V2, Protocol::V1] {
        let Some(monitors) = options.monitors.limited_to(protocol) else {
            continue;
        };
        let connect_timeout = options.timeouts.connect.min(DIAGNOSIS);
        let timeouts = Timeouts { connect: connect_timeout, ..options.timeouts };
        match connect(&ConnectOptions { monitors, timeouts, ..options.clone() }) {
            Err(refusal) if refusal.class() == ErrorClass::PermissionDenied => return refusal,
            _ => {}
        }
    }
    error
}

fn configure(handle: &mut ClusterHandle, options: &ConnectOptions) -> Result<(), ClusterError> {
    let mut set = |option: &'static str, value: &str| {
        handle.set(option, value).map_err(|source| ClusterError::Option { option, source })
    };
    set("mon_host", &options.monitors.to_ceph_conf())?;
    match &options.key {
        Some(key) => {
            set("auth_client_required", "cephx")?;
            set("key", key.expose_secret().trim())?;
        }
        None => set("auth_client_required", "none")?,
    }
    // No file of the host has a say, and nothing is written to standard error or a log.
    for option in ["keyring", "log_file", "admin_socket"] {
        set(option, "")?;
    }
    for option in ["log_to_stderr", "err_to_stderr", "log_to_syslog"] {
        set(option, "false")?;
    }
    set("client_mount_timeout", &seconds(options.timeouts.connect))?;
    set("rados_mon_op_timeout", &seconds(options.timeouts.monitor))?;
    set("rados_osd_op_timeout", &seconds(options.timeouts.osd))
}

/// Whole seconds, at least one: 0 would mean "wait for ever" to Ceph.
fn seconds(duration: Duration) -> String {
    let whole = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
    whole.max(1).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_never_zero() {
        assert_eq!(seconds(Duration::ZERO), "1");
        assert_eq!(seconds(Duration::from_millis(1500)), "2");
        assert_eq!(seconds(Duration::from_secs(10)), "10");
    }
}
