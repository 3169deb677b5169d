//! Operations as the wire has them.

use std::time::{Duration, SystemTime};

use crate::api::pb;
use crate::engine::Examined;
use crate::operation::{
    Failure, Kept, MoveResult, OperationView, PhaseSpan, Progress, Resolution, SourceFate,
};
use crate::plan::Refusal;
use crate::spec::{DiskTarget, DomainUuid, EncryptionScheme, VolumeLocation};

impl From<&OperationView> for pb::Operation {
    fn from(view: &OperationView) -> Self {
        let place = place(view);
        Self {
            id: view.spec.operation.to_string(),
            domain: domain(&view.domain_name, &view.domain_uuid),
            disk: disk(&view.domain_uuid, &view.target),
            source: Some(volume(
                view.source_pool.as_ref().map(ToString::to_string).unwrap_or_default(),
                &view.source,
            )),
            destination: Some(volume(view.spec.to.to_string(), &view.destination)),
            state: pb::State::from(view.state).into(),
            detail: view.detail.clone().unwrap_or_default(),
            phases: view.phases.iter().map(pb::Phase::from).collect(),
            progress: Some(pb::Progress::from(&view.progress)),
            bandwidth_bytes_per_second: view.bandwidth.map_or(0, u64::from),
            waits_for_pivot: view.waits_for_pivot,
            warnings: view.warnings.clone(),
            failure: view.failure.as_ref().map(|failure| self::failure(view, failure)),
            result: view.result.as_ref().map(pb::MoveResult::from),
            volume_is_at: view.volume_is_at().map(ToString::to_string).unwrap_or_default(),
            place: place.into(),
            resolution: view.resolution.as_ref().map(pb::Resolution::from),
        }
    }
}

impl From<&Resolution> for pb::Resolution {
    fn from(resolution: &Resolution) -> Self {
        Self {
            kept: pb::Place::from(resolution.kept).into(),
            by: resolution.by.clone(),
            at: Some(timestamp(resolution.at)),
            found: resolution.found.clone(),
        }
    }
}

impl From<Kept> for pb::Place {
    fn from(kept: Kept) -> Self {
        match kept {
            Kept::Source => Self::Source,
            Kept::Destination => Self::Destination,
        }
    }
}

impl From<&Examined> for pb::ResolveOperationResponse {
    fn from(examined: &Examined) -> Self {
        let refusal = |keep| examined.evidence.allows(keep).err().unwrap_or_default();
        Self {
            operation: Some(pb::Operation::from(&*examined.view)),
            evidence: examined.evidence.lines(),
            source_refused: refusal(Kept::Source),
            destination_refused: refusal(Kept::Destination),
            removal: examined.removal.as_ref().map(pb::RetryLeftoverResponse::from),
        }
    }
}

/// The domain; none where there is none.
pub fn domain(name: &str, uuid: &DomainUuid) -> Option<pb::Domain> {
    (!uuid.is_none()).then(|| pb::Domain { name: name.to_owned(), uuid: uuid.to_string() })
}

/// The disk's target; empty without a domain.
pub fn disk(domain: &DomainUuid, target: &DiskTarget) -> String {
    if domain.is_none() { String::new() } else { target.to_string() }
}

fn place(view: &OperationView) -> pb::Place {
    match view.volume_is_at() {
        None => pb::Place::Unknown,
        Some(_) if view.state.is_moved() => pb::Place::Destination,
        Some(_) => pb::Place::Source,
    }
}

/// A volume of a pool; the pool's name is empty when it is in none.
pub fn volume(pool: String, location: &VolumeLocation) -> pb::Volume {
    pb::Volume { pool, name: location.name(), location: location.to_string() }
}

impl From<&PhaseSpan> for pb::Phase {
    fn from(span: &PhaseSpan) -> Self {
        Self {
            state: pb::State::from(span.state).into(),
            entered: Some(timestamp(span.entered)),
            lasted: span.lasted.map(duration),
        }
    }
}

impl From<&Progress> for pb::Progress {
    fn from(progress: &Progress) -> Self {
        Self {
            phase: pb::CopyPhase::from(progress.phase).into(),
            total_bytes: progress.total.0,
            copied_bytes: progress.copied.0,
            remaining_bytes: progress.remaining.0,
            rate_bytes_per_second: progress.rate.0,
            estimate: progress.estimate.map(duration),
            dirty_bytes_per_second: progress.dirty_rate.0,
            converges: pb::Convergence::from(progress.converges).into(),
        }
    }
}

/// The failure, with what follows from it in the state the operation ended in.
fn failure(view: &OperationView, failure: &Failure) -> pb::Failure {
    let retry = view.retry().unwrap_or_else(|| failure.cause.retry());
    pb::Failure {
        cause: failure.cause.as_str().to_owned(),
        side: pb::Side::from(failure.side).into(),
        retry: pb::RetryClass::from(retry).into(),
        text: failure.text.clone(),
        hint: view.hint().unwrap_or_else(|| failure.cause.hint().to_owned()),
    }
}

impl From<&MoveResult> for pb::MoveResult {
    fn from(result: &MoveResult) -> Self {
        let until = match &result.source {
            SourceFate::Trashed { until, .. } => Some(timestamp(*until)),
            _ => None,
        };
        let way_back = result.source.way_back();
        let (fate, location, reason) = match &result.source {
            SourceFate::Removed => (pb::SourceFate::Removed, None, None),
            SourceFate::Kept { location } => (pb::SourceFate::Kept, Some(location), None),
            SourceFate::Trashed { location, .. } => {
                (pb::SourceFate::Trashed, Some(location), way_back.as_ref())
            }
            SourceFate::AlreadyGone => (pb::SourceFate::AlreadyGone, None, None),
            SourceFate::LeftBehind { location, reason } => {
                (pb::SourceFate::LeftBehind, Some(location), Some(reason))
            }
        };
        Self {
            pool: result.pool.to_string(),
            volume: result.volume.clone(),
            location: result.location.to_string(),
            identity: result.identity.to_string(),
            format: pb::VolumeFormat::from(result.format).into(),
            encryption: result.encryption.map_or("none", EncryptionScheme::as_str).to_owned(),
            virtual_bytes: result.virtual_size.0,
            allocated_bytes: result.allocated.map(|bytes| bytes.0),
            source_fate: fate.into(),
            source_location: location.map(ToString::to_string).unwrap_or_default(),
            source_reason: reason.cloned().unwrap_or_default(),
            ready_to_pivot_us: result.ready_to_pivot_us,
            source_until: until,
            depends_on: result.depends_on.clone().unwrap_or_default(),
        }
    }
}

impl From<&Refusal> for pb::Refusal {
    fn from(refusal: &Refusal) -> Self {
        Self {
            code: refusal.code.as_str().to_owned(),
            retry: pb::RetryClass::from(refusal.code.retry()).into(),
            message: refusal.message.clone(),
        }
    }
}

fn timestamp(time: SystemTime) -> prost_types::Timestamp {
    time.into()
}

/// A span of time; one beyond what protobuf can say becomes the longest it can.
pub fn duration(span: Duration) -> prost_types::Duration {
    let longest = prost_types::Duration { seconds: 315_576_000_000, nanos: 0 };
    prost_types::Duration::try_from(span).unwrap_or(longest)
}
