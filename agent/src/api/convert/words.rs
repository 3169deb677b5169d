//! The closed lists: domain enums into protobuf enums, and the words for protobuf enums on the client's side.

use crate::api::pb;
use crate::operation::{Converges, Phase, RetryClass, Side, State};
use crate::spec::VolumeFormat;

impl From<State> for pb::State {
    fn from(state: State) -> Self {
        match state {
            State::Queued => Self::Queued,
            State::Planned => Self::Planned,
            State::Preparing => Self::Preparing,
            State::Copying => Self::Copying,
            State::Ready => Self::Ready,
            State::Pivoting => Self::Pivoting,
            State::Moved => Self::Moved,
            State::Cleaning => Self::Cleaning,
            State::Succeeded => Self::Succeeded,
            State::RollingBack => Self::RollingBack,
            State::Failed => Self::Failed,
            State::Cancelled => Self::Cancelled,
            State::NeedsOperator => Self::NeedsOperator,
        }
    }
}

impl From<RetryClass> for pb::RetryClass {
    fn from(retry: RetryClass) -> Self {
        match retry {
            RetryClass::Now => Self::Now,
            RetryClass::Later => Self::Later,
            RetryClass::Never => Self::Never,
            RetryClass::Operator => Self::Operator,
        }
    }
}

impl From<Side> for pb::Side {
    fn from(side: Side) -> Self {
        match side {
            Side::Source => Self::Source,
            Side::Destination => Self::Destination,
            Side::Guest => Self::Guest,
            Side::Host => Self::Host,
        }
    }
}

impl From<Phase> for pb::CopyPhase {
    fn from(phase: Phase) -> Self {
        match phase {
            Phase::None => Self::Unspecified,
            Phase::Zeroing => Self::Zeroing,
            Phase::Copying => Self::Copying,
            Phase::InStep => Self::InStep,
            Phase::Comparing => Self::Comparing,
            Phase::Flattening => Self::Flattening,
        }
    }
}

impl From<Converges> for pb::Convergence {
    fn from(converges: Converges) -> Self {
        match converges {
            Converges::Unknown => Self::Unspecified,
            Converges::Yes => Self::Yes,
            Converges::No => Self::No,
        }
    }
}

impl From<VolumeFormat> for pb::VolumeFormat {
    fn from(format: VolumeFormat) -> Self {
        match format {
            VolumeFormat::Raw => Self::Raw,
            VolumeFormat::Qcow2 => Self::Qcow2,
        }
    }
}

/// The stable word of a protobuf enum's value: its name without the enum's prefix, in kebab-case.
///
/// ```
/// use volferry_agent::api::{convert::words::word, pb};
///
/// assert_eq!(word(pb::State::RollingBack.as_str_name(), "STATE_"), "rolling-back");
/// ```
pub fn word(name: &str, prefix: &str) -> String {
    match name.strip_prefix(prefix).unwrap_or(name) {
        "UNSPECIFIED" => "unknown".to_owned(),
        name => name.to_ascii_lowercase().replace('_', "-"),
    }
}

/// The domain's state of a protobuf one; none for a value this version does not know.
pub fn state_of(state: pb::State) -> Option<State> {
    State::ALL.into_iter().find(|known| pb::State::from(*known) == state)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_on_the_wire_are_the_domains_words() {
        for state in State::ALL {
            let wire = pb::State::from(state);
            assert_eq!(word(wire.as_str_name(), "STATE_"), state.as_str());
            assert_eq!(state_of(wire), Some(state));
        }
        for retry in [RetryClass::Now, RetryClass::Later, RetryClass::Never, RetryClass::Operator] {
            let wire = pb::RetryClass::from(retry);
            assert_eq!(word(wire.as_str_name(), "RETRY_CLASS_"), retry.as_str());
        }
        for side in [Side::Source, Side::Destination, Side::Guest, Side::Host] {
            assert_eq!(word(pb::Side::from(side).as_str_name(), "SIDE_"), side.as_str());
        }
        for format in [VolumeFormat::Raw, VolumeFormat::Qcow2] {
            let wire = pb::VolumeFormat::from(format);
            assert_eq!(word(wire.as_str_name(), "VOLUME_FORMAT_"), format.as_str());
        }
        for converges in [Converges::Unknown, Converges::Yes, Converges::No] {
            let wire = pb::Convergence::from(converges);
            assert_eq!(word(wire.as_str_name(), "CONVERGENCE_"), converges.as_str());
        }
        assert_eq!(state_of(pb::State::Unspecified), None);
    }
}
