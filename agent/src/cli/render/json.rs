//! Operations as JSON. The keys are those of `volferry.v1`, enums are their words, absent things are null.

use serde_json::{Value, json};

use crate::api::convert::request::span;
use crate::api::convert::words::word;
use crate::api::pb;

/// A line of `migrate` and `ops watch`.
pub fn event(event: &str, operation: &pb::Operation) -> Value {
    json!({ "event": event, "operation": self::operation(operation) })
}

/// An operation.
pub fn operation(operation: &pb::Operation) -> Value {
    let domain = operation.domain.as_ref();
    json!({
        "id": operation.id,
        "domain": domain.map(|domain| json!({ "name": domain.name, "uuid": domain.uuid })),
        "disk": operation.disk,
        "source": operation.source.as_ref().map(volume),
        "destination": operation.destination.as_ref().map(volume),
        "state": word(operation.state().as_str_name(), "STATE_"),
        "detail": text(&operation.detail),
        "phases": operation.phases.iter().map(phase).collect::<Vec<_>>(),
        "progress": operation.progress.as_ref().map(progress),
        "bandwidth_bytes_per_second": number(operation.bandwidth_bytes_per_second),
        "waits_for_pivot": operation.waits_for_pivot,
        "warnings": operation.warnings,
        "failure": operation.failure.as_ref().map(failure),
        "result": operation.result.as_ref().map(result),
        "volume_is_at": text(&operation.volume_is_at),
        "place": word(operation.place().as_str_name(), "PLACE_"),
        "resolution": operation.resolution.as_ref().map(resolution),
    })
}

/// An operation with its history, beside its own keys.
pub fn history(operation: &pb::Operation, told: &pb::GetHistoryResponse) -> Value {
    let entry = |entry: &pb::HistoryEntry| json!({ "at": entry.at.map(|at| at.to_string()), "text": entry.text });
    let mut whole = self::operation(operation);
    whole["history"] = told.entries.iter().map(entry).collect();
    whole["to_do"] = json!(told.to_do);
    whole
}

fn resolution(resolution: &pb::Resolution) -> Value {
    json!({
        "kept": word(resolution.kept().as_str_name(), "PLACE_"),
        "by": resolution.by,
        "at": resolution.at.map(|at| at.to_string()),
        "found": resolution.found,
    })
}

fn volume(volume: &pb::Volume) -> Value {
    json!({ "pool": text(&volume.pool), "name": volume.name, "location": volume.location })
}

fn phase(phase: &pb::Phase) -> Value {
    json!({
        "state": word(phase.state().as_str_name(), "STATE_"),
        "entered": phase.entered.map(|entered| entered.to_string()),
        "seconds": phase.lasted.as_ref().and_then(seconds),
    })
}

fn progress(progress: &pb::Progress) -> Value {
    let phase = match progress.phase() {
        pb::CopyPhase::Unspecified => "none".to_owned(),
        phase => word(phase.as_str_name(), "COPY_PHASE_"),
    };
    json!({
        "phase": phase,
        "total_bytes": progress.total_bytes,
        "copied_bytes": progress.copied_bytes,
        "remaining_bytes": progress.remaining_bytes,
        "rate_bytes_per_second": progress.rate_bytes_per_second,
        "estimate_seconds": progress.estimate.as_ref().and_then(seconds),
        "dirty_bytes_per_second": progress.dirty_bytes_per_second,
        "converges": word(progress.converges().as_str_name(), "CONVERGENCE_"),
    })
}

fn failure(failure: &pb::Failure) -> Value {
    json!({
        "cause": failure.cause,
        "side": word(failure.side().as_str_name(), "SIDE_"),
        "retry": word(failure.retry().as_str_name(), "RETRY_CLASS_"),
        "text": failure.text,
        "hint": failure.hint,
    })
}

fn result(result: &pb::MoveResult) -> Value {
    json!({
        "pool": result.pool,
        "volume": result.volume,
        "location": result.location,
        "identity": result.identity,
        "format": word(result.format().as_str_name(), "VOLUME_FORMAT_"),
        "encryption": result.encryption,
        "virtual_bytes": result.virtual_bytes,
        "allocated_bytes": result.allocated_bytes,
        "source": {
            "fate": word(result.source_fate().as_str_name(), "SOURCE_FATE_"),
            "location": text(&result.source_location),
            "reason": text(&result.source_reason),
            "until": result.source_until.map(|until| until.to_string()),
        },
        "depends_on": text(&result.depends_on),
        "ready_to_pivot_us": result.ready_to_pivot_us,
    })
}

/// A refusal.
pub fn refusal(refusal: &pb::Refusal) -> Value {
    json!({
        "code": refusal.code,
        "retry": word(refusal.retry().as_str_name(), "RETRY_CLASS_"),
        "message": refusal.message,
    })
}

/// Text, or null where the wire has none.
pub fn text(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

fn number(number: u64) -> Option<u64> {
    (number != 0).then_some(number)
}

fn seconds(wire: &prost_types::Duration) -> Option<f64> {
    span(wire).map(|span| span.as_secs_f64())
}
