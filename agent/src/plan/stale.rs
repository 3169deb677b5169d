//! PURE: whether a plan still holds when its turn comes, and what it means when it does not. Nothing was changed.

use super::refusal::{Refusal, RefusalCode};
use super::steps::Plan;
use crate::operation::{Failure, FailureCause, Side};

/// Whether the plan made now moves what the one that was accepted moves. What else has changed meanwhile (a guest
/// that was started again, another size) is taken from the new one.
///
/// Errors: it would move something else, or somewhere else.
pub fn still_holds(accepted: &Plan, now: &Plan) -> Result<(), Failure> {
    let disk = accepted.subject();
    let source = |text: String| Err(Failure::new(FailureCause::VolumeInUse, Side::Source, text));
    if (&accepted.domain, &accepted.target) != (&now.domain, &now.target) {
        return source(format!(
            "the request was about {disk} and is now about disk {}",
            now.target
        ));
    }
    if accepted.source != now.source {
        let (was, is) = (&accepted.source, &now.source);
        return source(format!("{disk} was on {was} and is on {is} now"));
    }
    if accepted.source_identity != now.source_identity {
        let (was, is) = (&accepted.source_identity, &now.source_identity);
        return source(format!("{} was {was} and is {is} now", accepted.source));
    }
    if accepted.destination != now.destination {
        let (was, is) = (&accepted.destination, &now.destination);
        return Err(Failure::new(
            FailureCause::DestinationReplaced,
            Side::Destination,
            format!("{disk} was to go to {was}, and pool {} is at {is} now", now.destination_pool),
        ));
    }
    Ok(())
}

/// What a refusal means for an operation that was accepted before.
pub fn failure(refusal: &Refusal) -> Failure {
    use RefusalCode as R;
    let (cause, side) = match refusal.code {
        R::DomainNotFound | R::NotRunning | R::DiskNotFound => {
            (FailureCause::GuestGone, Side::Guest)
        }
        R::NoSpace => (FailureCause::DestinationFull, Side::Destination),
        R::DestinationExists | R::SameVolume => {
            (FailureCause::DestinationReplaced, Side::Destination)
        }
        R::SecretMissing => (FailureCause::SecretNeeded, Side::Destination),
        // Only the source is opened before anything is made.
        R::WrongPassphrase => (FailureCause::SecretNeeded, Side::Source),
        R::SizeMismatch => (FailureCause::SizeMismatch, Side::Source),
        R::VolumeInUse
        | R::BlockJobActive
        | R::StateMismatch
        | R::HasSnapshots
        | R::Shareable
        | R::ReadOnly
        | R::TransientDisk
        | R::NotADisk
        | R::UnsupportedSource
        | R::FileToFile => (FailureCause::VolumeInUse, Side::Source),
        R::Busy | R::HostUnsupported | R::MalformedXml => (FailureCause::LibvirtGone, Side::Host),
        R::OtherHostsLocalPool
        | R::PoolUnknown
        | R::PoolUnavailable
        | R::PoolAuthFailed
        | R::NotMounted
        | R::PermissionDenied
        | R::EncryptionUnsupported
        | R::MethodUnavailable
        | R::InvalidName
        | R::NotAllowed => (FailureCause::DestinationWriteError, Side::Destination),
    };
    Failure::new(cause, side, format!("the move can no longer begin: {refusal}"))
}

/// Whether asking again a little later may find something better.
pub fn may_pass(refusal: &Refusal) -> bool {
    matches!(refusal.code, RefusalCode::Busy | RefusalCode::PoolUnavailable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_keeps_its_code_and_its_words() {
        for code in RefusalCode::ALL {
            let failure = failure(&Refusal::new(*code, "the reason"));
            assert!(failure.text.ends_with(&format!("{code}: the reason")), "{failure}");
            assert_ne!(failure.cause, FailureCause::Internal);
        }
    }

    #[test]
    fn the_cause_is_what_was_found() {
        let cases = [
            (RefusalCode::NotRunning, FailureCause::GuestGone, Side::Guest),
            (RefusalCode::NoSpace, FailureCause::DestinationFull, Side::Destination),
            (RefusalCode::WrongPassphrase, FailureCause::SecretNeeded, Side::Source),
            (RefusalCode::DestinationExists, FailureCause::DestinationReplaced, Side::Destination),
            (RefusalCode::StateMismatch, FailureCause::VolumeInUse, Side::Source),
            (RefusalCode::PoolUnavailable, FailureCause::DestinationWriteError, Side::Destination),
            (RefusalCode::Busy, FailureCause::LibvirtGone, Side::Host),
        ];
        for (code, cause, side) in cases {
            let found = failure(&Refusal::new(code, "the reason"));
            assert_eq!((found.cause, found.side), (cause, side), "{code}");
        }
    }
}
