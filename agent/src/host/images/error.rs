//! Failures of rbdutils as classes the engine can act on. No call is made here.

use std::error::Error;

use rbdutils::cluster::ClusterError;
use rbdutils::errno::ErrorClass as Native;
use rbdutils::images::ImageError;

use crate::ports::{ErrorClass, PortError};

/// A failed call, before it is known what was tried.
#[derive(Debug)]
pub(in crate::host) struct Failure {
    native: Native,
    text: String,
}

impl Failure {
    /// Whether only a new connection, perhaps with a new key, can help.
    pub(super) fn ends_connection(&self) -> bool {
        matches!(self.native, Native::Fenced | Native::PermissionDenied)
    }

    /// The failure of `operation`.
    pub(super) fn port_error(self, operation: &str) -> PortError {
        let class = match self.native {
            Native::NotFound => ErrorClass::NotFound,
            Native::Exists => ErrorClass::Exists,
            Native::Busy => ErrorClass::Busy,
            Native::PermissionDenied => ErrorClass::PermissionDenied,
            Native::TimedOut => ErrorClass::NoAnswer,
            Native::Unreachable | Native::Fenced => ErrorClass::Unavailable,
            Native::NoSpace => ErrorClass::NoSpace,
            Native::Replaced => ErrorClass::Replaced,
            Native::WrongPassphrase => ErrorClass::WrongPassphrase,
            Native::NoHeader => ErrorClass::NoHeader,
            Native::Other => ErrorClass::Other,
        };
        PortError::new(class, operation, self.text)
    }
}

impl From<ImageError> for Failure {
    fn from(error: ImageError) -> Self {
        Self { native: error.class(), text: chain(&error) }
    }
}

impl From<ClusterError> for Failure {
    fn from(error: ClusterError) -> Self {
        Self { native: error.class(), text: chain(&error) }
    }
}

/// An error and its causes in one line.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
