//! Leftover records as the wire has them.

use crate::api::pb;
use crate::engine::Retried;
use crate::operation::{Leftover, LeftoverKind};

impl From<LeftoverKind> for pb::LeftoverKind {
    fn from(kind: LeftoverKind) -> Self {
        match kind {
            LeftoverKind::Source => Self::Source,
            LeftoverKind::Destination => Self::Destination,
            LeftoverKind::Private => Self::Private,
            LeftoverKind::Trash => Self::Trash,
            LeftoverKind::Secret => Self::Secret,
            LeftoverKind::Snapshot => Self::Snapshot,
        }
    }
}

impl From<&Leftover> for pb::Leftover {
    fn from(leftover: &Leftover) -> Self {
        Self {
            id: leftover.id.to_string(),
            operation_id: leftover.operation.to_string(),
            kind: pb::LeftoverKind::from(leftover.kind).into(),
            location: leftover.location.to_string(),
            identity: leftover.identity.as_ref().map(ToString::to_string).unwrap_or_default(),
            since: Some(leftover.since.into()),
            reason: leftover.reason.clone(),
            tries: leftover.tries,
            last_try: leftover.last_try.map(Into::into),
            due: leftover.due.map(Into::into),
            secret_uuid: leftover.secret.clone().unwrap_or_default(),
        }
    }
}

impl From<&Retried> for pb::RetryLeftoverResponse {
    fn from(retried: &Retried) -> Self {
        let (outcome, leftover) = match retried {
            Retried::Removed(leftover) => (pb::RetryOutcome::Removed, leftover),
            Retried::AlreadyGone(leftover) => (pb::RetryOutcome::AlreadyGone, leftover),
            Retried::Stays(leftover) => (pb::RetryOutcome::Stays, leftover),
        };
        Self { outcome: outcome.into(), leftover: Some(leftover.into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::convert::words::word;

    #[test]
    fn the_words_on_the_wire_are_the_records_words() {
        for kind in LeftoverKind::ALL {
            let wire = pb::LeftoverKind::from(kind);
            assert_eq!(word(wire.as_str_name(), "LEFTOVER_KIND_"), kind.as_str());
        }
    }
}
