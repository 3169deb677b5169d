//! Plain lines on standard error, for logs: every state, and the copy every few seconds.

use std::time::Duration;

use tokio::time::Instant;

use super::Reporter;
use crate::api::pb;
use crate::cli::output::{self, Output};
use crate::cli::render::progress;

const EVERY: Duration = Duration::from_secs(5);

/// What was told last, and when.
#[derive(Debug, Default)]
pub struct Lines {
    state: Option<(i32, String)>,
    told: Option<Instant>,
}

impl Reporter for Lines {
    fn change(&mut self, operation: &pb::Operation, _output: &mut Output) {
        let state = (operation.state, operation.detail.clone());
        let new = self.state.as_ref() != Some(&state);
        let due = self.told.is_none_or(|told| told.elapsed() >= EVERY);
        if new || due {
            let subject = progress::subject(operation);
            output::note(&format!("{subject}: {}", progress::sentence(operation)));
            self.state = Some(state);
            self.told = Some(Instant::now());
        }
    }

    fn note(&mut self, text: &str, _output: &mut Output) {
        output::note(text);
    }
}
