//! The one exit of an operation that has ended: undecided, then decided.

use std::path::Path;

use rusqlite::{Connection, params};

use super::{ViewColumns, insert_records, leftovers, sqlite};
use crate::journal::JournalError;
use crate::operation::State;

fn is_undecided(connection: &Connection, id: &str) -> Result<bool, rusqlite::Error> {
    connection
        .prepare_cached("SELECT 1 FROM operations WHERE id = ?1 AND state = ?2")?
        .exists(params![id, State::NeedsOperator.as_str()])
}

/// Records beside the end; false when the operation is not undecided.
pub(in crate::journal) fn note(
    connection: &mut Connection,
    path: &Path,
    id: &str,
    records: &[String],
) -> Result<bool, JournalError> {
    let mut write = || -> Result<bool, rusqlite::Error> {
        let transaction = connection.transaction()?;
        let undecided = is_undecided(&transaction, id)?;
        if undecided {
            insert_records(&transaction, id, records)?;
        }
        transaction.commit()?;
        Ok(undecided)
    };
    write().map_err(sqlite("write", path))
}

/// Another end; false when the operation is not undecided.
pub(in crate::journal) fn end(
    connection: &mut Connection,
    path: &Path,
    id: &str,
    records: &[String],
    left: &[leftovers::Row],
    view: &ViewColumns,
) -> Result<bool, JournalError> {
    let mut write = || -> Result<bool, rusqlite::Error> {
        let transaction = connection.transaction()?;
        let undecided = is_undecided(&transaction, id)?;
        if undecided {
            insert_records(&transaction, id, records)?;
            leftovers::insert(&transaction, left)?;
            transaction.execute(
                "UPDATE operations SET state = ?2, view = ?3 WHERE id = ?1",
                params![id, view.state, view.json],
            )?;
        }
        transaction.commit()?;
        Ok(undecided)
    };
    write().map_err(sqlite("write", path))
}
