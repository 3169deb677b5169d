//! The SQL behind the journal. Only this file and those below it know tables and columns.

pub(super) mod leftovers;
pub(super) mod resolve;

use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rusqlite::{Connection, OpenFlags, OptionalExtension, params};

use super::{JournalError, Record, SCHEMA_VERSION, StoredOperation};
use crate::operation::{OperationView, State};
use crate::plan::Plan;

const SCHEMA: &str = "
CREATE TABLE operations (
    id       TEXT PRIMARY KEY,
    accepted INTEGER NOT NULL,          -- microseconds since the epoch
    state    TEXT NOT NULL,
    finished INTEGER NOT NULL,          -- 0 or 1
    plan     TEXT NOT NULL,             -- JSON
    view     TEXT NOT NULL              -- JSON, as last published
) STRICT;
CREATE INDEX operations_by_age ON operations (finished, accepted);
CREATE TABLE records (
    operation TEXT NOT NULL REFERENCES operations (id),
    number    INTEGER NOT NULL,
    body      TEXT NOT NULL,            -- JSON
    PRIMARY KEY (operation, number)
) STRICT, WITHOUT ROWID;
CREATE TABLE leftovers (
    id        TEXT PRIMARY KEY,
    operation TEXT NOT NULL REFERENCES operations (id),
    since     INTEGER NOT NULL,         -- microseconds since the epoch
    body      TEXT NOT NULL             -- JSON
) STRICT, WITHOUT ROWID;
";

const INDEX: &str = "CREATE INDEX IF NOT EXISTS operations_by_state ON operations (state)";

pub(super) struct Row {
    id: String,
    accepted: i64,
    plan: String,
    view: ViewColumns,
}

pub(super) struct ViewColumns {
    state: &'static str,
    finished: bool,
    json: String,
}

impl Row {
    pub(super) fn new(plan: &Plan, view: &OperationView) -> Result<Self, JournalError> {
        Ok(Self {
            id: plan.spec.operation.to_string(),
            accepted: micros(view.accepted()),
            plan: serde_json::to_string(plan).map_err(JournalError::Encode)?,
            view: ViewColumns::new(view)?,
        })
    }
}

impl ViewColumns {
    pub(super) fn new(view: &OperationView) -> Result<Self, JournalError> {
        Ok(Self {
            state: view.state.as_str(),
            finished: view.state.is_final(),
            json: serde_json::to_string(view).map_err(JournalError::Encode)?,
        })
    }
}

fn micros(time: Option<SystemTime>) -> i64 {
    time.and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok())
        .and_then(|age| i64::try_from(age.as_micros()).ok())
        .unwrap_or(0)
}

fn sqlite(action: &'static str, path: &Path) -> impl FnOnce(rusqlite::Error) -> JournalError {
    let path = path.to_owned();
    move |source| JournalError::Sqlite { action, path, source }
}

fn damaged(path: &Path, what: impl Into<String>) -> JournalError {
    JournalError::Damaged { path: path.to_owned(), what: what.into() }
}

/// The smallest page SQLite has. A shorter file is a torn one, which it would take for a new one.
const SMALLEST: u64 = 512;

pub(super) fn open(path: &Path) -> Result<Connection, JournalError> {
    let version = look(path)?;
    let connection = Connection::open(path).map_err(sqlite("open", path))?;
    connection.busy_timeout(Duration::from_secs(5)).map_err(sqlite("open", path))?;
    // WAL with FULL flushes the log at every commit: a record that was confirmed survives a power cut.
    connection
        .pragma_update(None, "journal_mode", "WAL")
        .and_then(|()| connection.pragma_update(None, "synchronous", "FULL"))
        .and_then(|()| connection.pragma_update(None, "foreign_keys", true))
        .map_err(sqlite("set up", path))?;
    if version == 0 {
        connection
            .execute_batch(&format!(
                "BEGIN; {SCHEMA} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;"
            ))
            .map_err(sqlite("create", path))?;
    }
    // Beside the schema: an older agent has no need of it and takes no offence. A journal on a full disk does without.
    if let Err(error) = connection.execute_batch(INDEX) {
        tracing::warn!(%error, "the journal has no index of states: counting them takes longer");
    }
    Ok(connection)
}

/// Makes sure that there is a sound journal, or none, and returns its version, 0 of none. Nothing is written: a
/// connection that may write brings its log into the file, and takes the log away, before it says what is wrong.
fn look(path: &Path) -> Result<i64, JournalError> {
    let length = match std::fs::metadata(path) {
        Ok(found) => found.len(),
        Err(error) if error.kind() == ErrorKind::NotFound && !has_log(path) => return Ok(0),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(damaged(path, "its log is there and the file is gone"));
        }
        Err(error) => return Err(damaged(path, error.to_string())),
    };
    if length == 0 {
        return Err(damaged(
            path,
            "it is empty; where this host never had an operation, remove it",
        ));
    }
    if length < SMALLEST {
        return Err(damaged(path, "it is cut off"));
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(sqlite("open", path))?;
    connection.busy_timeout(Duration::from_secs(5)).map_err(sqlite("open", path))?;
    let version: i64 = connection
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .map_err(sqlite("read", path))?;
    if version > SCHEMA_VERSION {
        return Err(JournalError::Newer { path: path.to_owned(), found: version });
    }
    let page: i64 = connection
        .pragma_query_value(None, "page_size", |row| row.get(0))
        .map_err(sqlite("read", path))?;
    // What a full page lacks at its end may be text that no check looks at. With a log beside it the file may be short
    // of a page that the log still holds.
    let in_pages = u64::try_from(page).is_ok_and(|page| page > 0 && length.is_multiple_of(page));
    if !in_pages && !has_log(path) {
        return Err(damaged(path, "it is cut off"));
    }
    let health: String = connection
        .pragma_query_value(None, "quick_check", |row| row.get(0))
        .map_err(sqlite("check", path))?;
    if health != "ok" {
        return Err(damaged(path, health));
    }
    let tables: i64 = connection
        .query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0))
        .map_err(sqlite("read", path))?;
    if version == 0 && tables > 0 {
        return Err(damaged(path, "it is somebody else's database"));
    }
    Ok(version)
}

/// SQLite's log of what is not in the file yet.
fn has_log(path: &Path) -> bool {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    std::fs::metadata(log).is_ok_and(|found| found.len() > 0)
}

pub(super) fn states(
    connection: &mut Connection,
    path: &Path,
) -> Result<Vec<(State, u64)>, JournalError> {
    let rows: Vec<(String, u32)> = connection
        .prepare_cached("SELECT state, count(*) FROM operations GROUP BY state")
        .and_then(|mut statement| {
            statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
        })
        .map_err(sqlite("read", path))?;
    rows.into_iter()
        .map(|(word, count)| {
            let state = State::ALL.into_iter().find(|state| state.as_str() == word);
            let state = state.ok_or_else(|| damaged(path, format!("{word:?} is no state")))?;
            Ok((state, u64::from(count)))
        })
        .collect()
}

pub(super) fn encode(records: &[Record]) -> Result<Vec<String>, JournalError> {
    records
        .iter()
        .map(|record| serde_json::to_string(record).map_err(JournalError::Encode))
        .collect()
}

pub(super) fn insert(
    connection: &mut Connection,
    path: &Path,
    row: &Row,
) -> Result<(), JournalError> {
    connection
        .execute(
            "INSERT INTO operations (id, accepted, state, finished, plan, view)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            params![
                row.id,
                row.accepted,
                row.view.state,
                row.view.finished,
                row.plan,
                row.view.json
            ],
        )
        .map(drop)
        .map_err(sqlite("write", path))
}

pub(super) fn append(
    connection: &mut Connection,
    path: &Path,
    id: &str,
    records: &[String],
    leftovers: &[leftovers::Row],
    view: &ViewColumns,
) -> Result<(), JournalError> {
    change(connection, path, id, records, |transaction| {
        leftovers::insert(transaction, leftovers)?;
        transaction
            .prepare_cached(
                "UPDATE operations SET state = ?2, finished = ?3, view = ?4
                 WHERE id = ?1 AND finished = 0",
            )?
            .execute(params![id, view.state, view.finished, view.json])
    })
}

/// The same with another plan.
pub(super) fn replan(
    connection: &mut Connection,
    path: &Path,
    row: &Row,
    records: &[String],
) -> Result<(), JournalError> {
    let Row { id, plan, view, .. } = row;
    change(connection, path, id, records, |transaction| {
        transaction.execute(
            "UPDATE operations SET state = ?2, finished = ?3, view = ?4, plan = ?5
             WHERE id = ?1 AND finished = 0",
            params![id, view.state, view.finished, view.json, plan],
        )
    })
}

/// Records and what they change of their operation, in one transaction.
fn change(
    connection: &mut Connection,
    path: &Path,
    id: &str,
    records: &[String],
    update: impl FnOnce(&Connection) -> Result<usize, rusqlite::Error>,
) -> Result<(), JournalError> {
    let write = || -> Result<usize, rusqlite::Error> {
        let transaction = connection.transaction()?;
        insert_records(&transaction, id, records)?;
        let changed = update(&transaction)?;
        transaction.commit()?;
        Ok(changed)
    };
    match write().map_err(sqlite("write", path))? {
        1 => Ok(()),
        _ => Err(damaged(path, format!("operation {id} is finished or unknown"))),
    }
}

fn insert_records(
    connection: &Connection,
    id: &str,
    records: &[String],
) -> Result<(), rusqlite::Error> {
    for body in records {
        connection
            .prepare_cached(
                "INSERT INTO records (operation, number, body) VALUES (?1,
                 (SELECT coalesce(max(number), 0) + 1 FROM records WHERE operation = ?1), ?2)",
            )?
            .execute(params![id, body])?;
    }
    Ok(())
}

/// Records beside the view; false when the operation is finished or unknown.
pub(super) fn note(
    connection: &mut Connection,
    path: &Path,
    id: &str,
    records: &[String],
) -> Result<bool, JournalError> {
    let mut write = || -> Result<bool, rusqlite::Error> {
        let transaction = connection.transaction()?;
        let unfinished = transaction
            .prepare_cached("SELECT 1 FROM operations WHERE id = ?1 AND finished = 0")?
            .exists(params![id])?;
        if unfinished {
            insert_records(&transaction, id, records)?;
        }
        transaction.commit()?;
        Ok(unfinished)
    };
    write().map_err(sqlite("write", path))
}

pub(super) fn unfinished(
    connection: &mut Connection,
    path: &Path,
) -> Result<Vec<StoredOperation>, JournalError> {
    let rows: Vec<(String, String, String)> = connection
        .prepare(
            "SELECT id, plan, view FROM operations WHERE finished = 0 ORDER BY accepted, rowid",
        )
        .and_then(|mut statement| {
            statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?.collect()
        })
        .map_err(sqlite("read", path))?;
    rows.into_iter()
        .map(|(id, plan, view)| {
            Ok(StoredOperation {
                plan: decode(path, &id, &plan)?,
                view: decode(path, &id, &view)?,
                records: records(connection, path, &id)?,
            })
        })
        .collect()
}

pub(super) fn stored(
    connection: &mut Connection,
    path: &Path,
    id: &str,
) -> Result<Option<StoredOperation>, JournalError> {
    let row: Option<(String, String)> = connection
        .query_row("SELECT plan, view FROM operations WHERE id = ?1", [id], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .optional()
        .map_err(sqlite("read", path))?;
    let Some((plan, view)) = row else { return Ok(None) };
    Ok(Some(StoredOperation {
        plan: decode(path, id, &plan)?,
        view: decode(path, id, &view)?,
        records: records(connection, path, id)?,
    }))
}

fn decode<T: serde::de::DeserializeOwned>(
    path: &Path,
    id: &str,
    json: &str,
) -> Result<T, JournalError> {
    serde_json::from_str(json).map_err(|error| damaged(path, format!("operation {id}: {error}")))
}

pub(super) fn records(
    connection: &mut Connection,
    path: &Path,
    id: &str,
) -> Result<Vec<Record>, JournalError> {
    let bodies: Vec<String> = connection
        .prepare_cached("SELECT body FROM records WHERE operation = ?1 ORDER BY number")
        .and_then(|mut statement| statement.query_map([id], |row| row.get(0))?.collect())
        .map_err(sqlite("read", path))?;
    bodies.iter().map(|body| decode(path, id, body)).collect()
}

pub(super) fn finished(
    connection: &mut Connection,
    path: &Path,
    most: usize,
) -> Result<Vec<OperationView>, JournalError> {
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    let rows: Vec<(String, String)> = connection
        .prepare_cached(
            "SELECT id, view FROM operations WHERE finished = 1 ORDER BY accepted DESC LIMIT ?1",
        )
        .and_then(|mut statement| {
            statement.query_map([most], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
        })
        .map_err(sqlite("read", path))?;
    rows.iter().map(|(id, view)| decode(path, id, view)).collect()
}

pub(super) fn view(
    connection: &mut Connection,
    path: &Path,
    id: &str,
) -> Result<Option<OperationView>, JournalError> {
    let json: Option<String> = connection
        .query_row("SELECT view FROM operations WHERE id = ?1", [id], |row| row.get(0))
        .optional()
        .map_err(sqlite("read", path))?;
    json.map(|json| decode(path, id, &json)).transpose()
}
