//! The agent's life in this world: numbered points at which it can be killed, before and after every effect and
//! every write to its journal.

#[cfg(feature = "testing")]
use std::path::Path;
#[cfg(feature = "testing")]
use std::sync::Arc;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::World;
#[cfg(feature = "testing")]
use crate::journal::{Journal, JournalError};

/// How far the agent has come and where it is to be killed.
#[derive(Debug, Default)]
pub(super) struct Life {
    inner: Mutex<Inner>,
    died: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    reached: Vec<String>,
    kill_at: Option<usize>,
    hold_at: Option<usize>,
    writes_fail: std::ops::Range<usize>,
    writes: usize,
    dead: bool,
}

impl World {
    fn life(&self) -> MutexGuard<'_, Inner> {
        self.0.life.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Kills the agent at this point from now on, counted from zero: whoever reaches it stops there for ever, and
    /// so does everybody who calls after that.
    pub fn kill_agent_at(&self, point: usize) {
        let mut life = self.life();
        life.kill_at = Some(point);
        life.reached.clear();
    }

    /// Holds the agent at this point, counted from the last time points were forgotten, until [`Self::release`].
    pub fn hold_agent_at(&self, point: usize) {
        self.life().hold_at = Some(point);
    }

    /// Waits until the agent is dead.
    pub async fn agent_died(&self) {
        let died = self.0.life.died.notified();
        tokio::pin!(died);
        died.as_mut().enable();
        if !self.life().dead {
            died.await;
        }
    }

    /// A new agent may live. Drop everything of the old one before.
    pub fn revive_agent(&self) {
        *self.life() = Inner::default();
    }

    /// The points reached since the last [`Self::kill_agent_at`] or [`Self::revive_agent`].
    pub fn points(&self) -> Vec<String> {
        self.life().reached.clone()
    }

    /// A point at which the agent can be killed.
    pub(super) async fn point(&self, name: String) {
        let held = {
            let mut life = self.life();
            let here = life.reached.len();
            let held = life.hold_at.take_if(|point| *point == here).is_some();
            if !life.dead {
                life.dead = life.kill_at == Some(life.reached.len());
                life.reached.push(name);
            }
            if life.dead {
                self.0.life.died.notify_waiters();
            }
            held
        };
        if held {
            self.0.released.notified().await;
        }
        self.live().await;
    }

    /// Returns only to the living.
    pub(super) async fn live(&self) {
        if self.life().dead {
            std::future::pending::<()>().await;
        }
    }

    /// Lets these writes to the journal fail, counted from one from now on.
    pub fn fail_journal(&self, writes: std::ops::Range<usize>) {
        let mut life = self.life();
        (life.writes, life.writes_fail) = (0, writes);
    }

    /// How many writes were tried since.
    pub fn journal_writes(&self) -> usize {
        self.life().writes
    }

    #[cfg(feature = "testing")]
    fn journal_takes(&self, point: &str) -> Result<(), JournalError> {
        let mut life = self.life();
        if point.starts_with("before ") {
            life.writes += 1;
            if life.writes_fail.contains(&life.writes) {
                return Err(JournalError::WriterGone);
            }
        }
        Ok(())
    }

    /// Opens the agent's journal, with points before and after every write.
    ///
    /// Errors: as [`Journal::open`].
    #[cfg(feature = "testing")]
    pub fn journal(&self, path: &Path) -> Result<Journal, JournalError> {
        let world = self.clone();
        let journal = Journal::open(path)?;
        Ok(journal.with_hook(Arc::new(move |name| {
            let world = world.clone();
            Box::pin(async move {
                world.point(name.clone()).await;
                world.journal_takes(&name)
            })
        })))
    }
}
