//! A running operation in a few words.

use crate::api::convert::request::span;
use crate::api::convert::words::word;
use crate::api::pb;
use crate::cli::output::one_line;
use crate::spec::Bytes;
use crate::spec::span::humane;

/// `domain:disk`, or `pool/volume` of a volume that no domain uses.
pub fn subject(operation: &pb::Operation) -> String {
    match (&operation.domain, &operation.source) {
        (Some(domain), _) => format!("{}:{}", one_line(&domain.name), operation.disk),
        (None, Some(volume)) => format!("{}/{}", one_line(&volume.pool), one_line(&volume.name)),
        (None, None) => "?".to_owned(),
    }
}

/// The state's stable word.
pub fn state(operation: &pb::Operation) -> String {
    word(operation.state().as_str_name(), "STATE_")
}

/// The share that is copied, while that means something: 100 only when the copy is in step.
pub fn percent(operation: &pb::Operation) -> Option<u64> {
    let progress = operation.progress.as_ref()?;
    match progress.phase() {
        pb::CopyPhase::InStep => Some(100),
        pb::CopyPhase::Copying if operation.state() == pb::State::Copying => {
            let share =
                u128::from(progress.copied_bytes) * 100 / u128::from(progress.total_bytes.max(1));
            Some(u64::try_from(share).unwrap_or(99).min(99))
        }
        pb::CopyPhase::Comparing | pb::CopyPhase::Flattening => {
            let share =
                u128::from(progress.copied_bytes) * 100 / u128::from(progress.total_bytes.max(1));
            Some(u64::try_from(share).unwrap_or(99).min(99))
        }
        pb::CopyPhase::Copying | pb::CopyPhase::Zeroing | pb::CopyPhase::Unspecified => None,
    }
}

/// What goes on, in one line.
pub fn sentence(operation: &pb::Operation) -> String {
    let mut text = state(operation);
    if let Some(copy) = copy(operation) {
        text = format!("{text} {copy}");
    }
    if operation.waits_for_pivot {
        text = format!("{text}, waits for `volferry ops pivot {}`", operation.id);
    } else if !operation.detail.is_empty() {
        text = format!("{text} ({})", one_line(&operation.detail));
    }
    text
}

fn copy(operation: &pb::Operation) -> Option<String> {
    let progress = operation.progress.as_ref()?;
    let flattening = progress.phase() == pb::CopyPhase::Flattening;
    if operation.state() != pb::State::Copying && !flattening {
        return None;
    }
    match progress.phase() {
        pb::CopyPhase::Zeroing => Some("(clearing the destination)".to_owned()),
        pb::CopyPhase::Copying => Some(numbers(progress, percent(operation)?)),
        pb::CopyPhase::Comparing => {
            Some(format!("(comparing: {})", numbers(progress, percent(operation)?)))
        }
        pb::CopyPhase::Flattening => Some(format!(
            "(usable; made independent of its source: {})",
            numbers(progress, percent(operation)?)
        )),
        pb::CopyPhase::InStep | pb::CopyPhase::Unspecified => None,
    }
}

fn numbers(progress: &pb::Progress, percent: u64) -> String {
    let mut text = format!("{percent}% of {}", Bytes(progress.total_bytes));
    if progress.rate_bytes_per_second > 0 {
        text = format!("{text}, {}/s", Bytes(progress.rate_bytes_per_second));
    }
    if let Some(left) = progress.estimate.as_ref().and_then(span) {
        text = format!("{text}, {} left", humane(left));
    }
    if progress.converges() == pb::Convergence::No {
        let dirtied = Bytes(progress.dirty_bytes_per_second);
        text = format!("{text}, guest writes {dirtied}/s: does not converge");
    }
    text
}
