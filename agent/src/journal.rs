//! The durable memory of operations: plans, intents, results and proofs, in one SQLite file.
//!
//! A record is written and flushed before its effect begins (intent) and after it ended (result). Nothing here
//! decides anything: folding the records back into an operation is `engine::recovery`'s work. No secret is ever
//! written.

#[cfg(feature = "testing")]
pub mod hook;
pub mod record;
mod store;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

pub use record::{Proof, Record, StepOutcome, What, Wish};
use rusqlite::Connection;

use crate::operation::{Leftover, OperationView, State};
use crate::plan::Plan;
use crate::spec::{LeftoverId, OperationId};

/// The schema this version writes; a newer one is refused.
pub const SCHEMA_VERSION: i64 = 1;

/// Why the journal could not be opened, read or written.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// SQLite's own error.
    #[error("cannot {action} the journal {}", path.display())]
    Sqlite {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// SQLite's words.
        #[source]
        source: rusqlite::Error,
    },
    /// Written by a newer version of the agent.
    #[error(
        "the journal {} has schema {found}, newer than {SCHEMA_VERSION}: start the newer agent",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its schema.
        found: i64,
    },
    /// The content contradicts itself.
    #[error("the journal {} is damaged: {what}; it was left as it is", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A value could not be written as JSON.
    #[error("cannot encode a journal record")]
    Encode(#[source] serde_json::Error),
    /// The thread that wrote was lost.
    #[error("the journal's writer is gone")]
    WriterGone,
}

/// An unfinished or finished operation as it stands in the journal.
#[derive(Debug, Clone)]
pub struct StoredOperation {
    /// Its plan.
    pub plan: Plan,
    /// The view as last published.
    pub view: OperationView,
    /// Its records, in order.
    pub records: Vec<Record>,
}

/// The journal; cheap to clone.
#[derive(Debug, Clone)]
pub struct Journal {
    path: Arc<PathBuf>,
    connection: Arc<Mutex<Connection>>,
    #[cfg(feature = "testing")]
    hook: hook::Slot,
}

impl Journal {
    /// Opens or creates the journal.
    ///
    /// Errors: unreadable, damaged, or written by a newer version; the file is then left as it is.
    pub fn open(path: &Path) -> Result<Self, JournalError> {
        let connection = store::open(path)?;
        Ok(Self {
            path: Arc::new(path.to_owned()),
            connection: Arc::new(Mutex::new(connection)),
            #[cfg(feature = "testing")]
            hook: hook::Slot::default(),
        })
    }

    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection, &Path) -> Result<T, JournalError> + Send + 'static,
    ) -> Result<T, JournalError> {
        let (path, connection) = (Arc::clone(&self.path), Arc::clone(&self.connection));
        tokio::task::spawn_blocking(move || {
            // A panic while holding the lock leaves at most an open transaction, which SQLite rolls back.
            let mut connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
            work(&mut connection, &path)
        })
        .await
        .map_err(|_| JournalError::WriterGone)?
    }

    /// One write, between two points at which a test can kill the agent.
    async fn write<T: Send + 'static>(
        &self,
        point: impl FnOnce() -> String,
        work: impl FnOnce(&mut Connection, &Path) -> Result<T, JournalError> + Send + 'static,
    ) -> Result<T, JournalError> {
        #[cfg(feature = "testing")]
        let name = point();
        #[cfg(feature = "testing")]
        self.hook.reach(&format!("before {name}")).await?;
        let written = self.run(work).await;
        #[cfg(feature = "testing")]
        self.hook.reach(&format!("after {name}")).await?;
        #[cfg(not(feature = "testing"))]
        drop(point);
        written
    }

    /// Writes a new operation down. Durable when it returns.
    pub async fn create(&self, plan: &Plan, view: &OperationView) -> Result<(), JournalError> {
        let row = store::Row::new(plan, view)?;
        self.write(
            || "create".to_owned(),
            move |connection, path| store::insert(connection, path, &row),
        )
        .await
    }

    /// Appends records, the view they lead to and what is left, in one transaction. Durable when it returns.
    pub async fn append(
        &self,
        operation: &OperationId,
        records: &[Record],
        leftovers: &[Leftover],
        view: &OperationView,
    ) -> Result<(), JournalError> {
        let rows = store::encode(records)?;
        let leftovers = store::leftovers::encode(leftovers)?;
        let id = operation.to_string();
        let view = store::ViewColumns::new(view)?;
        let point = || record::summary("append", records);
        self.write(point, move |connection, path| {
            store::append(connection, path, &id, &rows, &leftovers, &view)
        })
        .await
    }

    /// The same with another plan in place of the one the operation was accepted with.
    pub async fn replan(
        &self,
        plan: &Plan,
        records: &[Record],
        view: &OperationView,
    ) -> Result<(), JournalError> {
        let row = store::Row::new(plan, view)?;
        let rows = store::encode(records)?;
        let point = || record::summary("replan", records);
        self.write(point, move |connection, path| store::replan(connection, path, &row, &rows))
            .await
    }

    /// Writes a wish down for its owner, or for the owner's next life. Durable when it returns true; false when
    /// the operation has ended.
    pub async fn wish(
        &self,
        id: &OperationId,
        at: SystemTime,
        wish: Wish,
    ) -> Result<bool, JournalError> {
        let rows = store::encode(&[Record { at, what: What::Wished { wish } }])?;
        let id = id.to_string();
        self.write(
            || "wish".to_owned(),
            move |connection, path| store::note(connection, path, &id, &rows),
        )
        .await
    }

    /// Writes records of an undecided operation beside its end. Durable when it returns true; false when it is not
    /// undecided.
    pub async fn note_undecided(
        &self,
        operation: &OperationId,
        records: &[Record],
    ) -> Result<bool, JournalError> {
        let rows = store::encode(records)?;
        let id = operation.to_string();
        let point = || record::summary("resolve", records);
        self.write(point, move |connection, path| {
            store::resolve::note(connection, path, &id, &rows)
        })
        .await
    }

    /// Gives an undecided operation its end, with what is left, in one transaction. Durable when it returns true;
    /// false when it is not undecided.
    pub async fn resolve(
        &self,
        operation: &OperationId,
        records: &[Record],
        leftovers: &[Leftover],
        view: &OperationView,
    ) -> Result<bool, JournalError> {
        let rows = store::encode(records)?;
        let leftovers = store::leftovers::encode(leftovers)?;
        let id = operation.to_string();
        let view = store::ViewColumns::new(view)?;
        let point = || record::summary("resolve", records);
        self.write(point, move |connection, path| {
            store::resolve::end(connection, path, &id, &rows, &leftovers, &view)
        })
        .await
    }

    /// One operation whole.
    pub async fn stored(&self, id: &OperationId) -> Result<Option<StoredOperation>, JournalError> {
        let id = id.to_string();
        self.run(move |connection, path| store::stored(connection, path, &id)).await
    }

    /// Every unfinished operation, oldest first.
    pub async fn unfinished(&self) -> Result<Vec<StoredOperation>, JournalError> {
        self.run(store::unfinished).await
    }

    /// The views of the newest finished operations, newest first.
    pub async fn finished(&self, most: usize) -> Result<Vec<OperationView>, JournalError> {
        self.run(move |connection, path| store::finished(connection, path, most)).await
    }

    /// The view of one operation.
    pub async fn view(&self, id: &OperationId) -> Result<Option<OperationView>, JournalError> {
        let id = id.to_string();
        self.run(move |connection, path| store::view(connection, path, &id)).await
    }

    /// How many operations are in each state that occurs.
    pub async fn states(&self) -> Result<Vec<(State, u64)>, JournalError> {
        self.run(store::states).await
    }

    /// Every leftover record, oldest first.
    pub async fn leftovers(&self) -> Result<Vec<Leftover>, JournalError> {
        self.run(store::leftovers::all).await
    }

    /// One leftover record.
    pub async fn leftover(&self, id: &LeftoverId) -> Result<Option<Leftover>, JournalError> {
        let id = id.to_string();
        self.run(move |connection, path| store::leftovers::one(connection, path, &id)).await
    }

    /// Changes a leftover record. Durable when it returns true; false when it was dropped meanwhile.
    pub async fn update_leftover(&self, leftover: &Leftover) -> Result<bool, JournalError> {
        let row = store::leftovers::Row::new(leftover)?;
        self.write(
            || "leftover".to_owned(),
            move |connection, path| store::leftovers::update(connection, path, &row),
        )
        .await
    }

    /// Drops a leftover record. Durable when it returns true; false when there is none.
    pub async fn drop_leftover(&self, id: &LeftoverId) -> Result<bool, JournalError> {
        let id = id.to_string();
        self.write(
            || "leftover".to_owned(),
            move |connection, path| store::leftovers::delete(connection, path, &id),
        )
        .await
    }

    /// The records of one operation.
    pub async fn records(&self, id: &OperationId) -> Result<Vec<Record>, JournalError> {
        let id = id.to_string();
        self.run(move |connection, path| store::records(connection, path, &id)).await
    }
}
