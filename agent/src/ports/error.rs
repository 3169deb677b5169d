//! The one error of all ports: a class the engine can act on, and the system's own words.

use std::fmt;

/// What the engine may conclude from an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// The thing named does not exist.
    NotFound,
    /// A thing of that name exists already.
    Exists,
    /// In use, or a lock is held elsewhere; nothing was changed; the same call may succeed later.
    Busy,
    /// The block job is not ready for a pivot yet; nothing was changed.
    NotReady,
    /// The daemon or cluster behind the port cannot be reached; the call had no effect or is lost with it.
    Unavailable,
    /// No answer within the bound: the effect may have happened, may happen later, or never.
    NoAnswer,
    /// This libvirt, QEMU or cluster cannot do it.
    Unsupported,
    /// Not allowed by the operating system, Ceph or libvirt.
    PermissionDenied,
    /// No space left.
    NoSpace,
    /// The volume is no longer the one that was recorded.
    Replaced,
    /// The passphrase does not open the volume.
    WrongPassphrase,
    /// The volume has no header of the encryption it should have.
    NoHeader,
    /// Something else; the message has it.
    Other,
}

/// A failed call to the world.
///
/// The message names the call and the thing, and carries the system's own text.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{operation}: {message}")]
pub struct PortError {
    /// The class, for decisions.
    pub class: ErrorClass,
    /// What was tried, on what.
    pub operation: String,
    /// The system's own words.
    pub message: String,
}

impl PortError {
    /// An error of `class` while trying `operation`, in the system's own words.
    pub fn new(
        class: ErrorClass,
        operation: impl Into<String>,
        message: impl fmt::Display,
    ) -> Self {
        Self { class, operation: operation.into(), message: message.to_string() }
    }

    /// True when the daemon behind the port is away and waiting is right.
    pub fn is_unavailable(&self) -> bool {
        self.class == ErrorClass::Unavailable
    }
}

impl From<(String, std::io::Error)> for PortError {
    fn from((operation, error): (String, std::io::Error)) -> Self {
        use std::io::ErrorKind;
        let class = match error.kind() {
            ErrorKind::NotFound => ErrorClass::NotFound,
            ErrorKind::AlreadyExists => ErrorClass::Exists,
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                ErrorClass::PermissionDenied
            }
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => ErrorClass::NoSpace,
            ErrorKind::Unsupported => ErrorClass::Unsupported,
            ErrorKind::ResourceBusy => ErrorClass::Busy,
            ErrorKind::TimedOut => ErrorClass::NoAnswer,
            _ => ErrorClass::Other,
        };
        Self::new(class, operation, error)
    }
}
