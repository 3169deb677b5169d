//! One JSON object a line on standard output: `state`, `progress`, `note` and at last `final`.

use serde_json::json;

use super::Reporter;
use crate::api::convert::words::state_of;
use crate::api::pb;
use crate::cli::output::Output;
use crate::cli::render::json::event;

/// The state that was told last.
#[derive(Debug, Default)]
pub struct JsonLines {
    state: Option<i32>,
}

impl Reporter for JsonLines {
    fn change(&mut self, operation: &pb::Operation, output: &mut Output) {
        if state_of(operation.state()).is_some_and(|state| state.is_final()) {
            // The command's last line tells it, as `final`.
            return;
        }
        let new = self.state.replace(operation.state) != Some(operation.state);
        output.json(&event(if new { "state" } else { "progress" }, operation));
    }

    fn note(&mut self, text: &str, output: &mut Output) {
        output.json(&json!({ "event": "note", "text": text }));
    }
}
