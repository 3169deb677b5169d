//! Histories and checks as the wire has them.

use crate::api::pb;
use crate::engine::checks::{Check, Verdict};
use crate::engine::history::History;

impl From<&History> for pb::GetHistoryResponse {
    fn from(history: &History) -> Self {
        let entries = history
            .entries
            .iter()
            .map(|entry| pb::HistoryEntry { at: Some(entry.at.into()), text: entry.text.clone() });
        Self {
            operation: Some(pb::Operation::from(&*history.view)),
            entries: entries.collect(),
            to_do: history.to_do.clone(),
        }
    }
}

impl From<&Check> for pb::Check {
    fn from(check: &Check) -> Self {
        Self {
            what: check.what.clone(),
            verdict: pb::Verdict::from(check.verdict).into(),
            found: check.found.clone(),
            fix: check.fix.clone().unwrap_or_default(),
        }
    }
}

impl From<Verdict> for pb::Verdict {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Good => Self::Good,
            Verdict::Note => Self::Note,
            Verdict::Bad => Self::Bad,
        }
    }
}
