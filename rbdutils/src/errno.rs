//! Error numbers of the Ceph libraries, and the few classes a caller acts upon.

use std::fmt;

/// An error number as the C libraries return it, positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(
    /// The number, such as 2 for ENOENT.
    pub i32,
);

/// What kind of failure it was. What to do about each is the caller's decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// Pool, image, snapshot or metadata key does not exist.
    NotFound,
    /// The name is taken.
    Exists,
    /// In use: watchers, a lock, snapshots or clones are in the way.
    Busy,
    /// The user may not do it, or its key is wrong.
    PermissionDenied,
    /// No answer within the timeouts; whether the call took effect is unknown.
    TimedOut,
    /// No monitor can be reached.
    Unreachable,
    /// The pool, its quota or the cluster is full.
    NoSpace,
    /// This client was fenced (blocklisted); only a new connection helps.
    Fenced,
    /// The image of that name is another one than expected.
    Replaced,
    /// The passphrase opens no key of the image.
    WrongPassphrase,
    /// The image has no encryption header of the kind it should have.
    NoHeader,
    /// Anything else.
    Other,
}

impl Errno {
    /// The class of the number where nothing more is known than the number.
    pub fn class(self) -> ErrorClass {
        match self.0 {
            libc::ENOENT => ErrorClass::NotFound,
            libc::EEXIST => ErrorClass::Exists,
            libc::EBUSY | libc::ENOTEMPTY => ErrorClass::Busy,
            libc::EPERM | libc::EACCES => ErrorClass::PermissionDenied,
            libc::ETIMEDOUT => ErrorClass::TimedOut,
            libc::ECONNREFUSED | libc::EHOSTUNREACH | libc::ENETUNREACH | libc::ENOTCONN => {
                ErrorClass::Unreachable
            }
            libc::ENOSPC | libc::EDQUOT => ErrorClass::NoSpace,
            libc::ESHUTDOWN => ErrorClass::Fenced,
            _ => ErrorClass::Other,
        }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", std::io::Error::from_raw_os_error(self.0))
    }
}

impl std::error::Error for Errno {}

/// The result of a call that returns a negative error number or success.
pub(crate) fn check(result: i32) -> Result<(), Errno> {
    check_size(result).map(|_| ())
}

/// The result of a call that returns a negative error number or a size.
pub(crate) fn check_size(result: i32) -> Result<usize, Errno> {
    usize::try_from(result).map_err(|_| Errno(result.saturating_neg()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negative_results_are_errors() {
        assert_eq!(check_size(7), Ok(7));
        assert_eq!(check(-2), Err(Errno(libc::ENOENT)));
        assert_eq!(Errno(libc::ENOTEMPTY).class(), ErrorClass::Busy);
        assert_eq!(Errno(libc::EACCES).to_string(), "Permission denied (os error 13)");
    }
}
