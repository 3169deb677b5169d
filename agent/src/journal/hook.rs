//! Points before and after every write, for tests that kill the agent there. Not compiled into the agent.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;

use super::{Journal, JournalError};

/// Called with the point's name; the write goes on when the future ends, or fails with its error.
pub type Hook = Arc<dyn Fn(String) -> BoxFuture<'static, Result<(), JournalError>> + Send + Sync>;

/// The place of a hook in the journal.
#[derive(Clone, Default)]
pub(super) struct Slot(Option<Hook>);

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slot({})", if self.0.is_some() { "set" } else { "empty" })
    }
}

impl Slot {
    pub(super) async fn reach(&self, name: &str) -> Result<(), JournalError> {
        match &self.0 {
            Some(hook) => hook(name.to_owned()).await,
            None => Ok(()),
        }
    }
}

impl Journal {
    /// The same journal with a hook at every write.
    #[must_use]
    pub fn with_hook(mut self, hook: Hook) -> Self {
        self.hook = Slot(Some(hook));
        self
    }
}
