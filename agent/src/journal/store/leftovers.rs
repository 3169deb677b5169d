//! The table of leftover records.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension, params};

use super::{decode, micros, sqlite};
use crate::journal::JournalError;
use crate::operation::Leftover;

pub(in crate::journal) struct Row {
    id: String,
    operation: String,
    since: i64,
    body: String,
}

impl Row {
    pub(in crate::journal) fn new(leftover: &Leftover) -> Result<Self, JournalError> {
        Ok(Self {
            id: leftover.id.to_string(),
            operation: leftover.operation.to_string(),
            since: micros(Some(leftover.since)),
            body: serde_json::to_string(leftover).map_err(JournalError::Encode)?,
        })
    }
}

pub(in crate::journal) fn encode(leftovers: &[Leftover]) -> Result<Vec<Row>, JournalError> {
    leftovers.iter().map(Row::new).collect()
}

/// Writes them within a transaction; an operation that ends a second time writes the same ones.
pub(super) fn insert(connection: &Connection, rows: &[Row]) -> Result<(), rusqlite::Error> {
    for row in rows {
        connection
            .prepare_cached(
                "INSERT OR REPLACE INTO leftovers (id, operation, since, body) VALUES (?1, ?2, ?3, ?4)",
            )?
            .execute(params![row.id, row.operation, row.since, row.body])?;
    }
    Ok(())
}

pub(in crate::journal) fn all(
    connection: &mut Connection,
    path: &Path,
) -> Result<Vec<Leftover>, JournalError> {
    let rows: Vec<(String, String)> = connection
        .prepare_cached("SELECT id, body FROM leftovers ORDER BY since, id")
        .and_then(|mut statement| {
            statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
        })
        .map_err(sqlite("read", path))?;
    rows.iter().map(|(id, body)| decode(path, id, body)).collect()
}

pub(in crate::journal) fn one(
    connection: &mut Connection,
    path: &Path,
    id: &str,
) -> Result<Option<Leftover>, JournalError> {
    let body: Option<String> = connection
        .query_row("SELECT body FROM leftovers WHERE id = ?1", [id], |row| row.get(0))
        .optional()
        .map_err(sqlite("read", path))?;
    body.map(|body| decode(path, id, &body)).transpose()
}

pub(in crate::journal) fn update(
    connection: &mut Connection,
    path: &Path,
    row: &Row,
) -> Result<bool, JournalError> {
    connection
        .execute("UPDATE leftovers SET body = ?2 WHERE id = ?1", params![row.id, row.body])
        .map(|changed| changed == 1)
        .map_err(sqlite("write", path))
}

pub(in crate::journal) fn delete(
    connection: &mut Connection,
    path: &Path,
    id: &str,
) -> Result<bool, JournalError> {
    connection
        .execute("DELETE FROM leftovers WHERE id = ?1", [id])
        .map(|changed| changed == 1)
        .map_err(sqlite("write", path))
}
