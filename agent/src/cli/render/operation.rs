//! An operation for people: a row of a table, the whole of it, and how it ended.

use super::table::{Cell, cell};
use super::{json, progress};
use crate::api::convert::request::span;
use crate::api::convert::words::{state_of, word};
use crate::api::pb;
use crate::api::status::{Exit, state_exit};
use crate::cli::client::incomplete;
use crate::cli::failure::Failure;
use crate::cli::output::{Output, Tone, one_line};
use crate::spec::Bytes;
use crate::spec::span::humane;

/// Headings of [`row`]; the second column may give way.
pub const HEADINGS: [&str; 4] = ["OPERATION", "DISK", "STATE", "VOLUME AT"];

/// A row of a list.
pub fn row(operation: &pb::Operation) -> Vec<Cell> {
    let state = match progress::percent(operation) {
        Some(share) if operation.state() == pb::State::Copying => {
            format!("{} {share}%", progress::state(operation))
        }
        _ => progress::state(operation),
    };
    vec![
        cell(&operation.id),
        cell(progress::subject(operation)),
        (state, tone(operation)),
        cell(word(operation.place().as_str_name(), "PLACE_")),
    ]
}

/// The end of a followed operation, and the exit code it means.
pub fn ending(operation: &pb::Operation, output: &mut Output) -> Result<Exit, Failure> {
    let state = state_of(operation.state()).ok_or_else(|| incomplete("known state"))?;
    if output.is_json() {
        output.json(&json::event("final", operation));
    } else {
        show(operation, output);
    }
    Ok(state_exit(state))
}

/// Everything worth reading about it.
pub fn show(operation: &pb::Operation, output: &mut Output) {
    let state = output.paint(&progress::sentence(operation), tone(operation));
    output.line(&format!("{} {state}", progress::subject(operation)));
    let mut field = |name: &str, value: &str| {
        if !value.is_empty() {
            output.line(&format!("  {name:<13} {}", one_line(value)));
        }
    };
    field("operation", &operation.id);
    field("volume is at", &place(operation));
    match &operation.result {
        Some(result) => {
            field("contents", &contents(result));
            field("source", &fate(result));
            field("depends on", &result.depends_on);
        }
        None => {
            field("source", operation.source.as_ref().map_or("", |volume| &volume.location));
            field("destination", &destination(operation));
        }
    }
    if let Some(failure) = &operation.failure {
        let side = word(failure.side().as_str_name(), "SIDE_");
        field("cause", &format!("{} ({side} side): {}", failure.cause, failure.text));
        field("retry", &word(failure.retry().as_str_name(), "RETRY_CLASS_"));
        field("hint", &failure.hint);
    }
    if let Some(resolution) = &operation.resolution {
        let kept = word(resolution.kept().as_str_name(), "PLACE_");
        let at = resolution.at.map_or("-".to_owned(), |at| at.to_string());
        field("decided", &format!("for the {kept} by {} at {at}", resolution.by));
    }
    for warning in &operation.warnings {
        field("warning", warning);
    }
    field("phases", &phases(operation));
}

/// What happened when, and what is left to do.
pub fn history(told: &pb::GetHistoryResponse, output: &mut Output) {
    output.line("  history");
    for entry in &told.entries {
        let at = entry.at.map_or("-".to_owned(), |at| at.to_string());
        output.line(&format!("    {at}  {}", one_line(&entry.text)));
    }
    if !told.to_do.is_empty() {
        output.line("  left to do");
    }
    for text in &told.to_do {
        output.line(&format!("    {}", one_line(text)));
    }
}

fn place(operation: &pb::Operation) -> String {
    match operation.place() {
        pb::Place::Unspecified | pb::Place::Unknown => {
            "unknown: it cannot be told at this moment".to_owned()
        }
        place => {
            let place = word(place.as_str_name(), "PLACE_");
            format!("{} (the {place})", operation.volume_is_at)
        }
    }
}

fn destination(operation: &pb::Operation) -> String {
    let Some(volume) = &operation.destination else { return String::new() };
    format!("{} (pool {})", volume.location, volume.pool)
}

fn contents(result: &pb::MoveResult) -> String {
    let format = word(result.format().as_str_name(), "VOLUME_FORMAT_");
    let allocated = match result.allocated_bytes {
        Some(bytes) => format!("{} allocated", Bytes(bytes)),
        None => "allocation unknown".to_owned(),
    };
    format!(
        "pool {}, {format}, encryption {}, {}, {allocated}",
        result.pool,
        result.encryption,
        Bytes(result.virtual_bytes)
    )
}

fn fate(result: &pb::MoveResult) -> String {
    let (location, reason) = (&result.source_location, &result.source_reason);
    match result.source_fate() {
        pb::SourceFate::Kept => format!("kept as {location}"),
        pb::SourceFate::Trashed => {
            let until = result.source_until.map_or("-".to_owned(), |until| until.to_string());
            format!("in the trash as {location} until {until}; back with: {reason}")
        }
        pb::SourceFate::LeftBehind => format!("left behind as {location}: {reason}"),
        pb::SourceFate::AlreadyGone => "already gone".to_owned(),
        fate => word(fate.as_str_name(), "SOURCE_FATE_"),
    }
}

fn phases(operation: &pb::Operation) -> String {
    let spans = operation.phases.iter().filter_map(|phase| {
        let lasted = span(phase.lasted.as_ref()?)?;
        Some(format!("{} {}", word(phase.state().as_str_name(), "STATE_"), humane(lasted)))
    });
    spans.collect::<Vec<_>>().join(", ")
}

fn tone(operation: &pb::Operation) -> Tone {
    match operation.state() {
        pb::State::Succeeded => Tone::Good,
        pb::State::Failed | pb::State::NeedsOperator => Tone::Bad,
        pb::State::Cancelled | pb::State::Unspecified => Tone::Plain,
        _ => Tone::Busy,
    }
}
