//! libvirt's errors as classes the engine can act on.
//!
//! By code first; by text only where one code stands for different things. No call is made here.

use std::ffi::CString;

use virt::error::{Error, ErrorDomain, ErrorNumber};

use crate::ports::{ErrorClass, PortError};

/// What went wrong with `operation`, by libvirt's code and text.
pub(super) fn port_error(operation: &str, error: &Error) -> PortError {
    PortError::new(class_of(error), operation, error.message())
}

/// Text for libvirt: it must not contain a NUL, which the crate would panic on.
pub(super) fn c_string(operation: &str, text: &str) -> Result<CString, PortError> {
    CString::new(text).map_err(|_| {
        PortError::new(ErrorClass::Other, operation, "a text for libvirt contains a NUL character")
    })
}

/// The class of an error, by code, domain and text.
pub(super) fn class_of(error: &Error) -> ErrorClass {
    let code = Result::from(error.code()).ok();
    let domain = Result::from(error.domain()).ok();
    classify(code, domain, error.message())
}

fn classify(code: Option<ErrorNumber>, domain: Option<ErrorDomain>, message: &str) -> ErrorClass {
    use ErrorNumber as N;
    let Some(code) = code else { return ErrorClass::Other };
    match code {
        N::NoDomain | N::NoSecret | N::NoStoragePool | N::NoStorageVolume | N::DeviceMissing => {
            ErrorClass::NotFound
        }
        N::BlockCopyActive if message.contains("not ready for pivot") => ErrorClass::NotReady,
        N::BlockCopyActive | N::OperationTimeout | N::ResourceBusy => ErrorClass::Busy,
        N::NoSupport | N::ConfigUnsupported | N::OperationUnsupported | N::ArgumentUnsupported => {
            if message.contains("already exists") {
                ErrorClass::Exists
            } else {
                ErrorClass::Unsupported
            }
        }
        N::AuthFailed
        | N::AuthCancelled
        | N::AuthUnavailable
        | N::OperationDenied
        | N::AccessDenied => ErrorClass::PermissionDenied,
        N::DomExist | N::StorageVolExist => ErrorClass::Exists,
        N::NoConnect | N::InvalidConn | N::Rpc => ErrorClass::Unavailable,
        _ => by_text(code, domain, message),
    }
}

fn by_text(code: ErrorNumber, domain: Option<ErrorDomain>, message: &str) -> ErrorClass {
    let says = |texts: &[&str]| texts.iter().any(|text| message.contains(text));
    // What is asked for is the job or the QEMU of a domain that exists.
    if says(&["does not have an active block job", "domain is not running"]) {
        return ErrorClass::NotFound;
    }
    if says(&["Invalid password", "cannot unlock any keyslot"]) {
        return ErrorClass::WrongPassphrase;
    }
    if says(&["already defined for use"]) {
        return ErrorClass::Exists;
    }
    if says(&["is still being ended", "has active block job"]) {
        return ErrorClass::Busy;
    }
    if says(&["Permission denied"]) {
        return ErrorClass::PermissionDenied;
    }
    if says(&["No space left on device"]) {
        return ErrorClass::NoSpace;
    }
    if domain == Some(ErrorDomain::Rpc) || domain == Some(ErrorDomain::Remote) {
        return ErrorClass::Unavailable;
    }
    if code == ErrorNumber::SystemError && says(&["Failed to connect socket"]) {
        return ErrorClass::Unavailable;
    }
    if code == ErrorNumber::InvalidArg
        && says(&["invalid path", "not found in domain", "not found in the domain"])
    {
        return ErrorClass::NotFound;
    }
    ErrorClass::Other
}

/// The class of an error of a pivot call, where `Other` claims that the disk is still on its source: only QEMU's
/// refusals say that. Anything unforeseen leaves the outcome open.
pub(super) fn pivot_error(operation: &str, error: &Error) -> PortError {
    let refused = ["failed while pivoting", "unable to execute QEMU command"];
    let class = match class_of(error) {
        ErrorClass::Other if !refused.iter().any(|text| error.message().contains(text)) => {
            ErrorClass::NoAnswer
        }
        class => class,
    };
    PortError::new(class, operation, error.message())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn expect(code: ErrorNumber, domain: ErrorDomain, message: &str, class: ErrorClass) {
        assert_eq!(classify(Some(code), Some(domain), message), class, "{message}");
    }

    #[test]
    fn a_job_that_is_not_ready_is_told_from_one_that_is_in_the_way() {
        use {ErrorDomain::Qemu, ErrorNumber::BlockCopyActive};
        let pivot = "block copy still active: block job 'copy-vda-libvirt-2-format' not ready for pivot yet";
        expect(BlockCopyActive, Qemu, pivot, ErrorClass::NotReady);
        let start = "block copy still active: disk 'vda' already in active block job";
        expect(BlockCopyActive, Qemu, start, ErrorClass::Busy);
    }

    #[test]
    fn a_daemon_that_is_away_is_unavailable_however_it_is_said() {
        use {ErrorDomain::Rpc, ErrorNumber as N};
        for (code, message) in [
            (N::SystemError, "Failed to connect socket to '/run/x': Connection refused"),
            (N::SystemError, "Failed to connect socket to '/run/x': No such file or directory"),
            (N::SystemError, "End of file while reading data: Input/output error"),
            (N::SystemError, "Cannot recv data: Connection reset by peer"),
            (N::InternalError, "internal error: client socket is closed"),
            (N::InternalError, "internal error: connection closed due to keepalive timeout"),
        ] {
            expect(code, Rpc, message, ErrorClass::Unavailable);
        }
        let denied = "Failed to connect socket to '/run/x': Permission denied";
        expect(N::SystemError, Rpc, denied, ErrorClass::PermissionDenied);
    }

    #[test]
    fn a_disk_that_is_not_there_is_not_found_however_it_is_said() {
        for text in [
            "invalid argument: disk 'vdz' not found in domain",
            "invalid argument: invalid path vdz not assigned to domain",
        ] {
            expect(ErrorNumber::InvalidArg, ErrorDomain::Qemu, text, ErrorClass::NotFound);
        }
    }

    #[test]
    fn a_lock_that_is_held_is_busy_and_not_a_failure() {
        let text =
            "Timed out during operation: cannot acquire state change lock (held by monitor=x)";
        expect(ErrorNumber::OperationTimeout, ErrorDomain::Qemu, text, ErrorClass::Busy);
    }

    #[test]
    fn a_code_newer_than_the_crate_is_other() {
        assert_eq!(classify(None, None, "new"), ErrorClass::Other);
    }
}
